//! Pruners: whether a trial that is under way had better stop, judging by what it and others have reported. They work
//! on the first objective.

pub mod asha;
pub mod hyperband;
pub mod median;
pub mod none;
pub mod patience;

use crate::json::Json;
use crate::samplers::History;
use crate::trial::{Direction, Trial, TrialId};

pub use asha::Asha;
pub use hyperband::Hyperband;
pub use median::Median;
pub use none::NoPruner;
pub use patience::Patience;

/// What a pruner thinks of a trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    pub stop: bool,
    /// What the pruner wants to find again in the trial.
    pub system_attrs: Vec<(String, Json)>,
}

impl Judgement {
    fn stop(stop: bool) -> Self {
        Self { stop, system_attrs: Vec::new() }
    }
}

pub trait Pruner: Send {
    /// Judges a trial after its newest report. Paused trials are in the history as pruned ones.
    fn judge(&mut self, history: &History, trial: &Trial, study: &str) -> Judgement;

    /// A stopped trial that has since earned to go on.
    fn promotable(&mut self, _history: &History, _study: &str) -> Option<TrialId> {
        None
    }
}

impl Pruner for Box<dyn Pruner> {
    fn judge(&mut self, history: &History, trial: &Trial, study: &str) -> Judgement {
        self.as_mut().judge(history, trial, study)
    }

    fn promotable(&mut self, history: &History, study: &str) -> Option<TrialId> {
        self.as_mut().promotable(history, study)
    }
}

fn direction(history: &History) -> Direction {
    history.directions.first().copied().unwrap_or(Direction::Minimize)
}

/// The lowest loss of some reports, NaN left out; none if there is no other.
fn best_loss<'a>(values: impl IntoIterator<Item = &'a f64>, direction: Direction) -> Option<f64> {
    values.into_iter().filter(|value| !value.is_nan()).map(|value| direction.loss(*value)).reduce(f64::min)
}
