//! How scratch is cut: what all heads read, then one slot for each task that runs at a time.

use std::ops::Range;

use super::{AttentionShape, Bias, lanes, wide};
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::{SharedMut, parallel};

/// Elements of scratch that `forward` needs to run on `threads` threads.
pub fn forward_scratch(shape: AttentionShape, threads: usize) -> usize {
    Parts::forward(shape).total(threads)
}

/// Elements of scratch that `backward` needs to run on `threads` threads.
pub fn backward_scratch(shape: AttentionShape, threads: usize) -> usize {
    Parts::backward(shape).total(threads)
}

pub(super) struct Parts {
    /// What all tasks share, `partials` at its end.
    pub shared: usize,
    pub partials: usize,
    /// One task's own; never 0.
    pub slot: usize,
}

impl Parts {
    pub(super) fn forward(shape: AttentionShape) -> Parts {
        let slot = if lanes::fits(shape) { lanes::forward_scratch(shape) } else { wide::forward_scratch(shape) };
        Parts { shared: by_distance(shape), partials: 0, slot: slot.max(1) }
    }

    pub(super) fn backward(shape: AttentionShape) -> Parts {
        let slot = if lanes::fits(shape) { lanes::backward_scratch(shape) } else { wide::backward_scratch(shape) };
        let partials = match shape.bias {
            Bias::Relative { .. } => shape.batch * shape.heads * shape.bias_rows,
            _ => 0,
        };
        Parts { shared: by_distance(shape) + partials, partials, slot: slot.max(1) }
    }

    fn total(&self, threads: usize) -> usize {
        self.shared + threads.max(1) * self.slot
    }
}

/// The row of each distance; of a relative bias, its values for each head too.
fn by_distance(shape: AttentionShape) -> usize {
    match shape.bias {
        Bias::None => 0,
        Bias::Relative { .. } => shape.distances() * (1 + shape.heads),
        Bias::Disentangled { .. } => shape.distances(),
    }
}

/// Runs `0..tasks` in as many contiguous ranges as `scratch` has slots.
pub(super) fn share<T: Float>(
    tasks: usize,
    slot: usize,
    scratch: &mut [T],
    run: impl Fn(Range<usize>, &mut [T]) + Sync,
) {
    let slots = (scratch.len() / slot).min(tasks);
    assert!(slots > 0 || tasks == 0, "attention scratch of {} elements, {slot} needed", scratch.len());
    let base = SharedMut::new(scratch.as_mut_ptr());
    parallel(slots, |s| {
        // SAFETY: slots are disjoint and lie in `scratch`.
        run(tasks * s / slots..tasks * (s + 1) / slots, unsafe { base.slice(s * slot, slot) })
    });
}
