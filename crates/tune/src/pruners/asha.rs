//! Asynchronous successive halving, promotion type (Li et al., 2020): trials are measured at rungs, each η times as far
//! as the one before. At a rung a trial goes on if it is among the best 1/η of those that came so far; else it is
//! paused, and goes on later if it gets there as others come in. No trial is stopped for good while the study runs.

use std::sync::Arc;

use super::{Judgement, Pruner, direction};
use crate::json::Json;
use crate::samplers::History;
use crate::trial::{State, Trial, TrialId};

/// Rungs at `min_resource · η^(skip + k)` steps, for k = 0, 1, ….
#[derive(Clone, Debug)]
pub struct Asha {
    pub min_resource: i64,
    /// η: how much farther the next rung is, and which share gets there.
    pub reduction_factor: i64,
    /// So many of the lowest rungs are left out.
    pub skip: u32,
}

impl Default for Asha {
    fn default() -> Self {
        Self { min_resource: 1, reduction_factor: 4, skip: 0 }
    }
}

/// Under this attribute and the rung's number stands what a trial had reached there; the name is Optuna's.
const RUNG: &str = "completed_rung_";

impl Asha {
    /// The step of a rung; none if it is beyond any number of steps.
    pub(crate) fn rung_step(&self, rung: u32) -> Option<i64> {
        let factor = self.reduction_factor.max(2).checked_pow(self.skip.checked_add(rung)?)?;
        self.min_resource.max(1).checked_mul(factor)
    }

    /// Whether `trial` is among the best 1/η of those measured at a rung, itself included.
    fn is_among_best(&self, rung: u32, trial: TrialId, loss: f64, history: &History) -> bool {
        let direction = direction(history);
        let others = history.trials.iter().filter(|other| other.id != trial);
        let losses: Vec<f64> =
            others.filter_map(|other| at_rung(other, rung)).map(|value| direction.loss(value)).collect();
        let places = (losses.len() + 1) / self.reduction_factor.max(2) as usize;
        losses.iter().filter(|other| **other < loss).count() < places
    }

    fn judge_rungs(&self, history: &History, trial: &Trial) -> Judgement {
        let Some((step, value)) = trial.intermediate.last_key_value() else { return Judgement::default() };
        let loss = direction(history).loss(*value);
        let mut judgement = Judgement::default();
        for rung in next_rung(trial).. {
            if self.rung_step(rung).is_none_or(|target| *step < target) {
                break;
            }
            if value.is_nan() {
                return Judgement { stop: true, ..judgement };
            }
            judgement.system_attrs.push((format!("{RUNG}{rung}"), Json::Float(*value)));
            // What lies behind counts when a report jumps over several rungs; the last one passed decides.
            judgement.stop = !self.is_among_best(rung, trial.id, loss, history);
        }
        judgement
    }

    /// The best paused trial of the highest rung that has one with a right to go on.
    fn promotable_among(&self, trials: &[Arc<Trial>], history: &History) -> Option<TrialId> {
        let bracket = History { directions: history.directions, trials };
        let top = trials.iter().map(|trial| next_rung(trial)).max().unwrap_or(0);
        (0..top).rev().find_map(|rung| {
            let waiting = trials.iter().filter(|trial| is_waiting_at(trial, rung));
            let with_loss = waiting.filter_map(|trial| {
                let loss = direction(history).loss(at_rung(trial, rung)?);
                self.is_among_best(rung, trial.id, loss, &bracket).then_some((loss, trial.id))
            });
            with_loss.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, id)| id)
        })
    }
}

impl Pruner for Asha {
    fn judge(&mut self, history: &History, trial: &Trial, _: &str) -> Judgement {
        self.judge_rungs(history, trial)
    }

    fn promotable(&mut self, history: &History, _: &str) -> Option<TrialId> {
        self.promotable_among(history.trials, history)
    }
}

impl Asha {
    pub(super) fn judge_in(&self, trials: &[Arc<Trial>], history: &History, trial: &Trial) -> Judgement {
        self.judge_rungs(&History { directions: history.directions, trials }, trial)
    }

    pub(super) fn promotable_in(&self, trials: &[Arc<Trial>], history: &History) -> Option<TrialId> {
        self.promotable_among(trials, history)
    }
}

fn at_rung(trial: &Trial, rung: u32) -> Option<f64> {
    trial.system_attrs.get(&format!("{RUNG}{rung}")).and_then(Json::as_f64)
}

fn next_rung(trial: &Trial) -> u32 {
    (0..).find(|rung| at_rung(trial, *rung).is_none()).unwrap_or(u32::MAX)
}

/// Paused at this rung: not ended, so that it can still go on.
fn is_waiting_at(trial: &Trial, rung: u32) -> bool {
    trial.state == State::Pruned && trial.completed.is_none() && next_rung(trial) == rung + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::Direction;

    fn paused(id: i64, value: f64) -> Arc<Trial> {
        let mut trial = Trial::new(id, id as u64, State::Pruned);
        trial.intermediate.insert(1, value);
        trial.system_attrs.insert("completed_rung_0".into(), Json::Float(value));
        Arc::new(trial)
    }

    #[test]
    fn a_paused_trial_is_promoted_once_enough_worse_ones_have_come() {
        let mut asha = Asha { reduction_factor: 3, ..Asha::default() };
        let mut trials = vec![paused(0, 1.0), paused(1, 2.0)];
        let directions = [Direction::Minimize];
        let promoted =
            |asha: &mut Asha, trials: &[Arc<Trial>]| asha.promotable(&History { directions: &directions, trials }, "s");
        assert_eq!(promoted(&mut asha, &trials), None);
        trials.push(paused(2, 3.0));
        assert_eq!(promoted(&mut asha, &trials), Some(0));
        let maximize = [Direction::Maximize];
        assert_eq!(asha.promotable(&History { directions: &maximize, trials: &trials }, "s"), Some(2));
    }

    #[test]
    fn the_first_at_a_rung_pauses_and_a_later_better_one_goes_on() {
        let mut asha = Asha { reduction_factor: 3, ..Asha::default() };
        let trials = vec![paused(0, 1.0), paused(1, 2.0)];
        let history = History { directions: &[Direction::Minimize], trials: &trials };
        let mut newcomer = Trial::new(2, 2, State::Running);
        newcomer.intermediate.insert(1, 0.5);
        let judgement = asha.judge(&history, &newcomer, "s");
        assert!(!judgement.stop);
        assert_eq!(judgement.system_attrs, [("completed_rung_0".to_string(), Json::Float(0.5))]);
        newcomer.intermediate.insert(1, 1.5);
        assert!(asha.judge(&history, &newcomer, "s").stop);
        newcomer.intermediate.insert(1, f64::NAN);
        assert!(asha.judge(&history, &newcomer, "s").stop);
    }

    #[test]
    fn rungs_lie_a_factor_apart_and_never_overflow() {
        let asha = Asha { min_resource: 2, reduction_factor: 3, skip: 1 };
        assert_eq!((0..3).map(|rung| asha.rung_step(rung)).collect::<Vec<_>>(), [Some(6), Some(18), Some(54)]);
        assert_eq!(asha.rung_step(1000), None);
    }
}
