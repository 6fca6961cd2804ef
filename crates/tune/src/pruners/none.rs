//! No trial is stopped.

use super::{Judgement, Pruner};
use crate::samplers::History;
use crate::trial::Trial;

/// Lets every trial run to its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPruner;

impl Pruner for NoPruner {
    fn judge(&mut self, _: &History, _: &Trial, _: &str) -> Judgement {
        Judgement::default()
    }
}
