//! What batches of texts cost, known before training.

use crate::compose::Composer;
use crate::order::Order;
use crate::{DataError, Dataset, Ladder, Position};
use plimsoll_base::batching::Batching;

/// How batches will be composed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Composition {
    pub batch: usize,
    pub seed: u64,
    pub batching: Batching,
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
