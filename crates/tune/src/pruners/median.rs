//! A trial stops when its best so far is worse than the median of what complete trials had reported at that step.

use super::{Judgement, Pruner, best_loss, direction};
use crate::samplers::History;
use crate::trial::{State, Trial};

/// The median rule, with Optuna's settings and defaults.
#[derive(Clone, Debug)]
pub struct Median {
    /// No trial stops before so many are complete.
    pub startup_trials: usize,
    /// No trial stops before this step.
    pub warmup_steps: i64,
    /// So many steps lie between two judgements.
    pub interval: i64,
    /// So many complete trials must have reported at the step.
    pub min_trials: usize,
}

impl Default for Median {
    fn default() -> Self {
        Self { startup_trials: 5, warmup_steps: 0, interval: 1, min_trials: 1 }
    }
}

impl Pruner for Median {
    fn judge(&mut self, history: &History, trial: &Trial, _: &str) -> Judgement {
        Judgement::stop(self.is_behind(history, trial).unwrap_or(false))
    }
}

impl Median {
    fn is_behind(&self, history: &History, trial: &Trial) -> Option<bool> {
        let complete: Vec<_> = history.trials.iter().filter(|other| other.state == State::Complete).collect();
        let step = trial.last_step()?;
        let early = complete.is_empty() || complete.len() < self.startup_trials || step < self.warmup_steps;
        if early || !self.is_first_of_interval(trial, step) {
            return None;
        }
        let direction = direction(history);
        let Some(best) = best_loss(trial.intermediate.values(), direction) else { return Some(true) };
        let reports: Vec<f64> = complete.iter().filter_map(|other| other.intermediate.get(&step)).copied().collect();
        if reports.len() < self.min_trials {
            return None;
        }
        let losses = reports.into_iter().filter(|value| !value.is_nan()).map(|value| direction.loss(value)).collect();
        Some(best > median(losses)?)
    }

    /// Judged once per interval, at the first report in it.
    fn is_first_of_interval(&self, trial: &Trial, step: i64) -> bool {
        let start = (step - self.warmup_steps) / self.interval * self.interval + self.warmup_steps;
        let before = trial.intermediate.keys().rev().find(|earlier| **earlier != step);
        before.is_none_or(|before| *before < start)
    }
}

fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len().checked_sub(1)? as f64 / 2.0;
    let (below, above) = (numbers[middle.floor() as usize], numbers[middle.ceil() as usize]);
    Some(if below == above { below } else { below + (above - below) * 0.5 })
}
