//! Fused scaled dot-product attention, forward and backward, which never stores a T×T matrix.
//!
//! One (batch, head) pair is computed by one task from start to end, so every sum has a fixed order and results are
//! the same for any number of threads. Heads of at most 16 dimensions run in `lanes` (a vector holds one value of 16
//! queries or 16 keys, so no sum crosses lanes); wider heads, and all with a bias, run in `wide` (matrix products over
//! a strip of queries).

// Loops over lanes index several arrays at once; iterators over them do not become vectors as reliably.
#![allow(clippy::needless_range_loop)]

mod bias;
mod head;
mod lanes;
mod scratch;
mod tasks;
#[cfg(test)]
mod tests;
mod wide;

use crate::kernels::cpu::float::Float;
pub use bias::Bias;
use head::{Drop, FACTOR_BLOCK};
use plimsoll_base::random::Stream;
use plimsoll_base::simd::simd;
use scratch::{Parts, share};
pub use scratch::{backward_scratch, forward_scratch};
use tasks::{Backward, Forward};

/// Sizes of one attention call, and all else that its scratch depends on.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    pub batch: usize,
    pub q_len: usize,
    pub k_len: usize,
    pub heads: usize,
    pub head_dim: usize,
    /// Queries are the last ones of the keys' positions and see up to their own: key j is visible to query i if and
    /// only if j ≤ i + (k_len − q_len). Without it query i has position i, and sees everything.
    pub causal: bool,
    pub bias: Bias,
    /// Rows of the bias's tables.
    pub bias_rows: usize,
}

/// A tensor to read, indexed (batch, time, head, dim), with strides in elements.
#[derive(Clone, Copy, Debug)]
pub struct View<T> {
    pub ptr: *const T,
    pub strides: [usize; 4],
}

/// A tensor to write, indexed like [`View`].
#[derive(Clone, Copy, Debug)]
pub struct ViewMut<T> {
    pub ptr: *mut T,
    pub strides: [usize; 4],
}

/// How scores are scaled, what is added to them, what is visible, what is dropped.
#[derive(Clone, Copy, Debug)]
pub struct Options<T> {
    pub scale: T,
    /// The tables of the bias, contiguous: as many as [`Bias::tables`] says, null beyond.
    pub tables: [*const T; 2],
    /// The position of query 0, in place of what the shape says; key j is visible to query i if and only if
    /// j ≤ position + i. Not for a disentangled bias.
    pub position: Option<i64>,
    /// (batch, k_len), contiguous; 0 hides the key.
    pub key_mask: Option<*const i32>,
    pub dropout: Option<Dropout>,
}

/// Dropout of the probabilities after the softmax. Query i, query i + 8 (where i mod 16 is below 8) and four keys share
/// a draw, as a lane of a tensor core has them: `stream.eight(sample, head · 65536 + i / 16 · 8 + i mod 8, j / 4)`, word
/// j mod 4, its lower half for the first query. A function of the coordinates alone, never of lengths or micro-batch. It
/// holds up to [`LIMIT`] queries and heads.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    pub stream: Stream,
    /// Probability that a weight is dropped; in 0..1.
    pub p: f32,
    /// Index in the effective batch of batch row 0; the others follow.
    pub first_sample: u32,
}

/// Drops from a row of weights that exist as a value: those of one query of one head.
pub(crate) fn drop_weights<T: Float>(
    stream: Stream,
    p: f32,
    sample: u32,
    head: usize,
    query: usize,
    weights: &mut [T],
) {
    simd(
        #[inline(always)]
        || {
            let drop = Drop::new(stream, p, sample, head);
            let mut factors = [T::ZERO; FACTOR_BLOCK];
            for (block, weights) in weights.chunks_mut(FACTOR_BLOCK).enumerate() {
                drop.write_factors(query, block, &mut factors);
                for (weight, factor) in weights.iter_mut().zip(factors) {
                    *weight *= factor;
                }
            }
        },
    );
}

/// The largest number of queries, and of heads, that dropout can tell apart.
pub(crate) const LIMIT: usize = 65_535;

/// Queries whose scores exist at one time in `wide`; also the grain at which a head's queries are shared out.
const STRIP: usize = 64;

/// Writes `out` = dropout(softmax(scale · q kᵀ + bias + masks)) v and `lse`, the logarithm of each row's sum of
/// exponentials as (batch, heads, q_len). A query that sees no key gets output 0 and lse −∞.
///
/// # Safety
/// Every view covers `shape` with valid memory of its own, elements of `out` and `lse` are distinct and overlap no
/// input; `key_mask` holds batch × k_len values and the tables what [`Bias`] says.
///
/// # Panics
/// If `scratch` is shorter than [`forward_scratch`] for one thread.
#[allow(clippy::too_many_arguments)] // the operands of the operation; a struct would only rename them
pub unsafe fn forward<T: Float>(
    shape: AttentionShape,
    q: View<T>,
    k: View<T>,
    v: View<T>,
    options: Options<T>,
    out: ViewMut<T>,
    lse: *mut T,
    scratch: &mut [T],
) {
    let parts = Parts::forward(shape);
    let (shared, slots) = scratch.split_at_mut(parts.shared);
    // SAFETY: the caller promises valid operands; `shared` is as long as a bias by distance needs.
    let job = unsafe { Job::new(shape, options, [q, k, v], out, lse, shared) };
    let pairs = shape.batch * shape.heads;
    // With fewer heads than threads, a head's queries are shared out, in whole strips so that nothing is rounded
    // differently.
    let strips = shape.q_len.div_ceil(STRIP).max(1);
    let cuts = (slots.len() / parts.slot).checked_div(pairs).map_or(1, |cuts| cuts.clamp(1, strips));
    let cut_len = strips.div_ceil(cuts) * STRIP;
    share(pairs * cuts, parts.slot, slots, |tasks, scratch| {
        Forward { job: &job, tasks, cuts, cut_len, scratch }.run();
    });
}

/// Writes the gradients of q, k, v and of the bias's tables, given those of the output (`dout`) and what `forward`
/// wrote (`out`, `lse`).
///
/// # Safety
/// As for [`forward`]; the gradients overlap neither each other nor any input.
///
/// # Panics
/// If `scratch` is shorter than [`backward_scratch`] for one thread, or a position is given.
#[allow(clippy::too_many_arguments)] // as above
pub unsafe fn backward<T: Float>(
    shape: AttentionShape,
    q: View<T>,
    k: View<T>,
    v: View<T>,
    out: View<T>,
    lse: *const T,
    dout: View<T>,
    options: Options<T>,
    gradients: Targets<T>,
    scratch: &mut [T],
) {
    assert!(options.position.is_none(), "attention at a position has no gradient");
    let parts = Parts::backward(shape);
    let (shared, slots) = scratch.split_at_mut(parts.shared);
    let (shared, partials) = shared.split_at_mut(parts.shared - parts.partials);
    let saved = ViewMut { ptr: out.ptr.cast_mut(), strides: out.strides };
    // SAFETY: as in `forward`; `out` and `lse` are not written by a backward pass.
    let job = unsafe { Job::new(shape, options, [q, k, v], saved, lse.cast_mut(), shared) };
    let gradients = Gradients { dout, to: gradients, partials: partials.as_mut_ptr() };
    // The tables of a disentangled bias get their gradients from one sample after the other.
    let by_head = matches!(shape.bias, Bias::Disentangled { .. });
    let tasks = if by_head { shape.heads } else { shape.batch * shape.heads };
    share(tasks, parts.slot, slots, |tasks, scratch| {
        Backward { job: &job, gradients: &gradients, tasks, by_head, scratch }.run();
    });
    if let Bias::Relative { .. } = shape.bias {
        // SAFETY: every task is done, so each pair has written its partial sums, and nobody else writes the table.
        unsafe { gradients.add_up(shape) };
    }
}

/// Where gradients go; those of the bias's tables as in [`Options::tables`].
#[derive(Clone, Copy, Debug)]
pub struct Targets<T> {
    pub q: ViewMut<T>,
    pub k: ViewMut<T>,
    pub v: ViewMut<T>,
    pub tables: [*mut T; 2],
}

/// The operands of a call. `out` and `lse` are written by the forward pass and only read by the backward pass.
struct Job<T> {
    shape: AttentionShape,
    options: Options<T>,
    q: View<T>,
    k: View<T>,
    v: View<T>,
    out: ViewMut<T>,
    lse: *mut T,
    /// (distances): the row of the bias's tables for each distance, if there is a bias.
    rows: *const u32,
    /// (heads, distances): a relative bias.
    by_distance: *const T,
}

impl<T: Float> Job<T> {
    /// `shared` holds what all heads read: a bias by distance.
    ///
    /// # Safety
    /// The operands are as [`forward`] demands; `shared` outlives the job, which points into it.
    unsafe fn new(
        shape: AttentionShape,
        options: Options<T>,
        [q, k, v]: [View<T>; 3],
        out: ViewMut<T>,
        lse: *mut T,
        shared: &mut [T],
    ) -> Self {
        let (mut rows, mut by_distance) = (std::ptr::null(), std::ptr::null());
        if shape.bias != Bias::None {
            let (front, values) = shared.split_at_mut(shape.distances());
            // SAFETY: an element of scratch is at least as large and as aligned as a u32.
            let indices = unsafe { std::slice::from_raw_parts_mut(front.as_mut_ptr().cast::<u32>(), front.len()) };
            shape.write_rows(options.position.unwrap_or(shape.first_position()), indices);
            (rows, by_distance) = (indices.as_ptr(), values.as_ptr());
            if let Bias::Relative { .. } = shape.bias {
                let table = options.tables[0];
                for (head, values) in values.chunks_exact_mut(indices.len().max(1)).enumerate() {
                    for (value, row) in values.iter_mut().zip(&*indices) {
                        // SAFETY: a row of the table for each distance, with a value for each head, as `Bias` says.
                        *value = unsafe { *table.add(*row as usize * shape.heads + head) };
                    }
                }
            }
        }
        Job { shape, options, q, k, v, out, lse, rows, by_distance }
    }
}

struct Gradients<T> {
    dout: View<T>,
    to: Targets<T>,
    /// (batch · heads, rows): the part of each pair in the gradient of a relative bias.
    partials: *mut T,
}

impl<T: Float> Gradients<T> {
    /// The gradient of a relative bias: the parts of all samples, in order.
    ///
    /// # Safety
    /// All pairs have written their partial sums, and no task runs any more.
    unsafe fn add_up(&self, shape: AttentionShape) {
        for n in 0..shape.bias_rows * shape.heads {
            let (row, head) = (n / shape.heads, n % shape.heads);
            // SAFETY: `partials` holds `bias_rows` sums for each of batch × heads pairs.
            let part = |b: usize| unsafe { *self.partials.add((b * shape.heads + head) * shape.bias_rows + row) };
            // SAFETY: the table of a relative bias has `bias_rows` × heads values, and this is the only thread.
            unsafe { *self.to.tables[0].add(n) = (0..shape.batch).map(part).sum() };
        }
    }
}

// SAFETY: tasks write only the rows of their own (batch, head, queries), which the callers promise to be distinct.
unsafe impl<T: Send> Sync for Job<T> {}
// SAFETY: as for `Job`: each pair writes its own rows and its own partial sums.
unsafe impl<T: Send> Sync for Gradients<T> {}
