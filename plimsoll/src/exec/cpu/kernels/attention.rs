//! Fused scaled dot-product attention, forward and backward, which never stores a T×T matrix.
//!
//! One (batch, head) pair is computed by one task from start to end, so every sum has a fixed order and results are
//! the same for any number of threads. Heads of at most 16 dimensions run in `lanes` (a vector holds one value of 16
//! queries or 16 keys, so no sum crosses lanes); wider heads run in `wide` (matrix products over a strip of queries).

// Loops over lanes index several arrays at once; iterators over them do not become vectors as reliably.
#![allow(clippy::needless_range_loop)]

mod head;
mod lanes;
#[cfg(test)]
mod tests;
mod wide;

use std::ops::Range;

use super::super::float::Float;
use super::super::parallel::{SharedMut, parallel};
use super::super::random::Stream;
use head::{Head, HeadGradients};

/// Sizes of one attention call.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub batch: usize,
    pub q_len: usize,
    pub k_len: usize,
    pub heads: usize,
    pub head_dim: usize,
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

/// What is visible, how scores are scaled, what is dropped.
#[derive(Clone, Copy, Debug)]
pub struct Options<T> {
    pub scale: T,
    /// Key j is visible to query i if and only if j ≤ i + (k_len − q_len).
    pub causal: bool,
    /// (batch, k_len), contiguous; 0 hides the key.
    pub key_mask: Option<*const i32>,
    pub dropout: Option<Dropout>,
}

/// Dropout of the probabilities after the softmax. The random word of (sample, head, i, j) is
/// `stream.word(sample, head · 65536 + i, j)`: a function of the coordinates alone, never of lengths or micro-batch.
/// It holds up to [`LIMIT`] queries and heads.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    pub stream: Stream,
    /// Probability that a weight is dropped; in 0..1.
    pub p: f32,
    /// Index in the effective batch of batch row 0; the others follow.
    pub first_sample: u32,
}

/// The largest number of queries, and of heads, that dropout can tell apart.
pub const LIMIT: usize = 65_535;

/// Elements of scratch that `forward` needs to run on `threads` threads.
pub fn forward_scratch(shape: Shape, threads: usize) -> usize {
    threads.max(1) * forward_slot(shape)
}

/// Elements of scratch that `backward` needs to run on `threads` threads.
pub fn backward_scratch(shape: Shape, threads: usize) -> usize {
    threads.max(1) * backward_slot(shape)
}

fn forward_slot(shape: Shape) -> usize {
    if lanes::fits(shape.head_dim) { lanes::forward_scratch(shape) } else { wide::forward_scratch(shape) }
}

fn backward_slot(shape: Shape) -> usize {
    if lanes::fits(shape.head_dim) { lanes::backward_scratch(shape) } else { wide::backward_scratch(shape) }
}

/// Writes `out` = dropout(softmax(scale · q kᵀ + masks)) v and `lse`, the logarithm of each row's sum of exponentials
/// as (batch, heads, q_len). A query that sees no key gets output 0 and lse −∞.
///
/// # Safety
/// Every view covers `shape` with valid memory of its own, elements of `out` and `lse` are distinct and overlap no
/// input; `key_mask` holds batch × k_len values.
///
/// # Panics
/// If `scratch` is shorter than [`forward_scratch`] for one thread.
#[allow(clippy::too_many_arguments)] // the operands of the operation; a struct would only rename them
pub unsafe fn forward<T: Float>(
    shape: Shape,
    q: View<T>,
    k: View<T>,
    v: View<T>,
    options: Options<T>,
    out: ViewMut<T>,
    lse: *mut T,
    scratch: &mut [T],
) {
    let slot = forward_slot(shape);
    let slots = scratch.len() / slot;
    let pairs = shape.batch * shape.heads;
    // With fewer heads than threads, a head's queries are shared out, in whole strips so that nothing is rounded
    // differently.
    let parts = slots.checked_div(pairs).map_or(1, |parts| parts.clamp(1, shape.q_len.div_ceil(STRIP).max(1)));
    let strips = shape.q_len.div_ceil(STRIP).div_ceil(parts);
    let job = Job { shape, options, q, k, v, out, lse };
    share(pairs * parts, slot, scratch, |tasks, scratch| {
        Forward { job: &job, tasks, parts, part_len: strips * STRIP, scratch }.run();
    });
}

/// Writes the gradients of q, k and v, given those of the output (`dout`) and what `forward` wrote (`out`, `lse`).
///
/// # Safety
/// As for [`forward`]; `dq`, `dk` and `dv` overlap neither each other nor any input.
///
/// # Panics
/// If `scratch` is shorter than [`backward_scratch`] for one thread.
#[allow(clippy::too_many_arguments)] // as above
pub unsafe fn backward<T: Float>(
    shape: Shape,
    q: View<T>,
    k: View<T>,
    v: View<T>,
    out: View<T>,
    lse: *const T,
    dout: View<T>,
    options: Options<T>,
    dq: ViewMut<T>,
    dk: ViewMut<T>,
    dv: ViewMut<T>,
    scratch: &mut [T],
) {
    let slot = backward_slot(shape);
    let saved = ViewMut { ptr: out.ptr.cast_mut(), strides: out.strides };
    let job = Job { shape, options, q, k, v, out: saved, lse: lse.cast_mut() };
    let gradients = Gradients { dout, dq, dk, dv };
    share(shape.batch * shape.heads, slot, scratch, |tasks, scratch| {
        Backward { job: &job, gradients: &gradients, tasks, scratch }.run();
    });
}

/// Queries whose scores exist at one time in `wide`; also the grain at which a head's queries are shared out.
const STRIP: usize = 64;

/// The operands of a call. `out` and `lse` are written by the forward pass and only read by the backward pass.
struct Job<T> {
    shape: Shape,
    options: Options<T>,
    q: View<T>,
    k: View<T>,
    v: View<T>,
    out: ViewMut<T>,
    lse: *mut T,
}

struct Gradients<T> {
    dout: View<T>,
    dq: ViewMut<T>,
    dk: ViewMut<T>,
    dv: ViewMut<T>,
}

// SAFETY: tasks write only the rows of their own (batch, head, queries), which the callers promise to be distinct.
unsafe impl<T: Send> Sync for Job<T> {}
unsafe impl<T: Send> Sync for Gradients<T> {}

/// Runs `0..tasks` in as many contiguous ranges as `scratch` has slots.
fn share<T: Float>(tasks: usize, slot: usize, scratch: &mut [T], run: impl Fn(Range<usize>, &mut [T]) + Sync) {
    let slots = (scratch.len() / slot).min(tasks);
    assert!(slots > 0 || tasks == 0, "attention scratch of {} elements, {slot} needed", scratch.len());
    let base = SharedMut::new(scratch.as_mut_ptr());
    parallel(slots, |s| {
        // SAFETY: slots are disjoint and lie in `scratch`.
        run(tasks * s / slots..tasks * (s + 1) / slots, unsafe { base.slice(s * slot, slot) })
    });
}

/// The forward tasks of one slot.
struct Forward<'a, T> {
    job: &'a Job<T>,
    tasks: Range<usize>,
    parts: usize,
    part_len: usize,
    scratch: &'a mut [T],
}

impl<T: Float> Forward<'_, T> {
    fn run(self) {
        let arch = pulp::Arch::new();
        match self.job.shape.head_dim {
            0..=2 => arch.dispatch(NarrowForward::<T, 2>(self)),
            3..=4 => arch.dispatch(NarrowForward::<T, 4>(self)),
            5..=8 => arch.dispatch(NarrowForward::<T, 8>(self)),
            9..=16 => arch.dispatch(NarrowForward::<T, 16>(self)),
            // SAFETY: the caller of `forward` promises valid operands; tasks lie inside the shape.
            _ => self.each(|head, queries, scratch| unsafe { wide::forward(head, queries, scratch) }),
        }
    }

    #[inline(always)]
    fn each(self, task: impl Fn(&Head<T>, Range<usize>, &mut [T])) {
        for index in self.tasks {
            let first = (index % self.parts * self.part_len).min(self.job.shape.q_len);
            let queries = first..(first + self.part_len).min(self.job.shape.q_len);
            // SAFETY: the task lies inside the shape.
            let head = unsafe { Head::new(self.job, index / self.parts) };
            task(&head, queries, self.scratch);
        }
    }
}

/// Narrow heads are compiled for each size and instruction set on their own: in one function with the others the
/// compiler loses sight of the registers.
struct NarrowForward<'a, T, const D: usize>(Forward<'a, T>);

impl<T: Float, const D: usize> pulp::WithSimd for NarrowForward<'_, T, D> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        self.0.each(
            #[inline(always)]
            // SAFETY: as above.
            |head, queries, scratch| unsafe { lanes::forward::<T, D>(head, queries, scratch) },
        );
    }
}

/// The backward tasks of one slot.
struct Backward<'a, T> {
    job: &'a Job<T>,
    gradients: &'a Gradients<T>,
    tasks: Range<usize>,
    scratch: &'a mut [T],
}

impl<T: Float> Backward<'_, T> {
    fn run(self) {
        let arch = pulp::Arch::new();
        match self.job.shape.head_dim {
            0..=2 => arch.dispatch(NarrowBackward::<T, 2>(self)),
            3..=4 => arch.dispatch(NarrowBackward::<T, 4>(self)),
            5..=8 => arch.dispatch(NarrowBackward::<T, 8>(self)),
            9..=16 => arch.dispatch(NarrowBackward::<T, 16>(self)),
            // SAFETY: as in the forward pass.
            _ => self.each(|head, gradients, scratch| unsafe { wide::backward(head, gradients, scratch) }),
        }
    }

    #[inline(always)]
    fn each(self, task: impl Fn(&Head<T>, &HeadGradients<T>, &mut [T])) {
        for index in self.tasks {
            // SAFETY: the task lies inside the shape.
            let (head, gradients) = unsafe {
                let head = Head::new(self.job, index);
                let gradients = head.gradients(self.gradients, index, self.job.shape.heads);
                (head, gradients)
            };
            task(&head, &gradients, self.scratch);
        }
    }
}

struct NarrowBackward<'a, T, const D: usize>(Backward<'a, T>);

impl<T: Float, const D: usize> pulp::WithSimd for NarrowBackward<'_, T, D> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        self.0.each(
            #[inline(always)]
            // SAFETY: as above.
            |head, gradients, scratch| unsafe { lanes::backward::<T, D>(head, gradients, scratch) },
        );
    }
}
