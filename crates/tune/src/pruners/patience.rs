//! A trial stops once it has not improved for a while; or, around another pruner, only then may that one stop it.

use super::{Judgement, Pruner, best_loss, direction};
use crate::samplers::History;
use crate::trial::{Trial, TrialId};

/// Waits for `patience` reports without improvement by more than `min_delta`.
pub struct Patience {
    pub patience: usize,
    pub min_delta: f64,
    /// Who decides then; none: the trial stops.
    pub inner: Option<Box<dyn Pruner>>,
}

impl Pruner for Patience {
    fn judge(&mut self, history: &History, trial: &Trial, study: &str) -> Judgement {
        if !self.is_stuck(history, trial) {
            return Judgement::default();
        }
        match &mut self.inner {
            Some(inner) => inner.judge(history, trial, study),
            None => Judgement::stop(true),
        }
    }

    fn promotable(&mut self, history: &History, study: &str) -> Option<TrialId> {
        self.inner.as_mut()?.promotable(history, study)
    }
}

impl Patience {
    fn is_stuck(&self, history: &History, trial: &Trial) -> bool {
        let direction = direction(history);
        let reports: Vec<f64> = trial.intermediate.values().copied().collect();
        if reports.len() <= self.patience + 1 {
            return false;
        }
        let (before, after) = reports.split_at(reports.len() - self.patience - 1);
        match (best_loss(before, direction), best_loss(after, direction)) {
            (Some(before), Some(after)) => before + self.min_delta < after,
            _ => false,
        }
    }
}
