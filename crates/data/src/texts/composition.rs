//! What batches of texts cost, known before training.

use crate::compose::Composer;
use crate::order::Order;
use crate::{DataError, Dataset, Ladder, Position};
use plimsoll_base::batching::Batching;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How batches will be composed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Composition {
    pub batch: usize,
    pub seed: u64,
    pub batching: Batching,
}

/// Lengths of texts in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LengthReport {
    pub shortest: usize,
    pub median: usize,
    /// 90 and 99 of 100 are no longer.
    pub p90: usize,
    pub p99: usize,
    pub longest: usize,
    pub tokens: usize,
}

impl LengthReport {
    pub(super) fn new(mut lengths: Vec<usize>) -> Self {
        lengths.sort_unstable();
        let at = |share: f64| {
            let index = (share * lengths.len().saturating_sub(1) as f64).round() as usize;
            lengths.get(index).copied().unwrap_or(0)
        };
        LengthReport {
            shortest: at(0.0),
            median: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            longest: at(1.0),
            tokens: lengths.iter().sum(),
        }
    }
}

impl fmt::Display for LengthReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LengthReport { shortest, median, p90, p99, longest, tokens } = self;
        write!(f, "{shortest} to {longest} tokens, median {median}, p90 {p90}, p99 {p99}; {tokens} in all")
    }
}

/// Tokens computed over real tokens in epoch 0. `lengths` gives those of a sample on each axis.
pub(super) fn padding_cost(
    dataset: &dyn Dataset,
    composition: &Composition,
    lengths: impl Fn(usize) -> [usize; 2],
) -> Result<f64, DataError> {
    let Composition { batch, seed, batching } = *composition;
    let (len, batch) = (dataset.len(), batch.max(1));
    let composer = Composer::new(Order::shuffled(len, seed), len, batch, batching.compose)?;
    let ladders = Ladder::of_fields(dataset.fields(), batching.buckets);
    let (mut computed, mut real, mut samples) = (0usize, 0usize, Vec::with_capacity(batch));
    for start in (0..len).step_by(batch) {
        let at = |index: usize| Position { epoch: 0, index: index as u64 };
        composer.samples(dataset, at(start), at((start + batch).min(len)), &mut samples);
        for (axis, ladder) in ladders.iter().enumerate() {
            let of = |&sample: &usize| lengths(sample)[axis];
            computed += samples.len() * ladder.round(samples.iter().map(of).max().unwrap_or(0));
            real += samples.iter().map(of).sum::<usize>();
        }
    }
    Ok(computed as f64 / real.max(1) as f64)
}
