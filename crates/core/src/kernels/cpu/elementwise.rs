//! Loops over elements, in parallel and vectorized, in place where the plan says so.

use super::parallel::{SharedMut, parallel, parallel_chunks};
use super::{CpuIo, Element};
use plimsoll_base::simd::simd;

/// Elements a task should handle for the fork to pay.
const TASK: usize = 16 << 10;

/// `output[i] = f(output[i])` over pieces of a slice. `f` should be `#[inline(always)]`, here and below: what is not
/// inlined is not compiled for the machine's vectors.
pub fn update<T: Element>(data: &mut [T], f: impl Fn(T) -> T + Sync) {
    parallel_chunks(data, TASK, |_, piece| {
        simd(
            #[inline(always)]
            || {
                for x in piece {
                    *x = f(*x);
                }
            },
        );
    });
}

/// Zeros in the first `len` elements, which nobody else uses now.
pub(crate) fn clear<T: Element + Default>(data: SharedMut<T>, len: usize) {
    ranges(len, |range| {
        // SAFETY: ranges are disjoint and inside the tensor.
        unsafe { data.slice(range.start, range.len()) }.fill(T::default());
    });
}

/// `output 0 [i] = f(input[i])`; in place if the plan put them at the same address.
pub(crate) fn map1<T: Element>(io: &CpuIo<'_>, input: usize, f: impl Fn(T) -> T + Sync) {
    let output = io.output::<T>(0);
    if io.is_in_place(0, input) {
        return update(output, f);
    }
    let source = io.input::<T>(input);
    parallel_chunks(output, TASK, |i, piece| {
        let source = &source[i * TASK..][..piece.len()];
        simd(
            #[inline(always)]
            || {
                for (y, x) in piece.iter_mut().zip(source) {
                    *y = f(*x);
                }
            },
        );
    });
}

/// `output 0 [i] = f(a[i], b[i])`; in place over either.
pub(crate) fn map2<T: Element>(io: &CpuIo<'_>, a: usize, b: usize, f: impl Fn(T, T) -> T + Sync) {
    let (over_a, over_b) = (io.is_in_place(0, a), io.is_in_place(0, b));
    match (over_a, over_b) {
        (true, true) => update(
            io.output::<T>(0),
            #[inline(always)]
            |x| f(x, x),
        ),
        (true, false) => combine(io.output(0), io.input(b), f),
        (false, true) => combine(
            io.output(0),
            io.input(a),
            #[inline(always)]
            |y, x| f(x, y),
        ),
        (false, false) => map2_apart(io.output(0), io.input(a), io.input(b), f),
    }
}

fn map2_apart<T: Element>(output: &mut [T], a: &[T], b: &[T], f: impl Fn(T, T) -> T + Sync) {
    parallel_chunks(output, TASK, |i, piece| {
        let (a, b) = (&a[i * TASK..][..piece.len()], &b[i * TASK..][..piece.len()]);
        simd(
            #[inline(always)]
            || {
                for ((y, a), b) in piece.iter_mut().zip(a).zip(b) {
                    *y = f(*a, *b);
                }
            },
        );
    });
}

/// `data[i] = f(data[i], other[i])`.
pub(crate) fn combine<T: Element>(data: &mut [T], other: &[T], f: impl Fn(T, T) -> T + Sync) {
    parallel_chunks(data, TASK, |i, piece| {
        let other = &other[i * TASK..][..piece.len()];
        simd(
            #[inline(always)]
            || {
                for (x, y) in piece.iter_mut().zip(other) {
                    *x = f(*x, *y);
                }
            },
        );
    });
}

/// Runs `piece(range)` over ranges of `0..len` worth a fork each; the ranges do not depend on the thread count.
pub(crate) fn ranges(len: usize, piece: impl Fn(std::ops::Range<usize>) + Sync) {
    parallel(len.div_ceil(TASK), |i| piece(i * TASK..((i + 1) * TASK).min(len)));
}

/// The sum of `term(i)` over `0..len` in f64, in a fixed order whatever the threads. `partials` is scratch for
/// [`partial_sums`] values.
pub fn sum(len: usize, partials: &mut [f64], term: impl Fn(std::ops::Range<usize>) -> f64 + Sync) -> f64 {
    let count = partial_sums(len);
    let slots = SharedMut::new(partials[..count].as_mut_ptr());
    let chunk = len.div_ceil(count.max(1)).max(1);
    parallel(count, |i| {
        // SAFETY: task i writes slot i only.
        unsafe { slots.slice(i, 1)[0] = term((i * chunk).min(len)..((i + 1) * chunk).min(len)) };
    });
    partials[..count].iter().sum()
}

/// How many partial sums [`sum`] keeps for this length; a function of the length alone, so that bits are too.
pub(crate) fn partial_sums(len: usize) -> usize {
    len.div_ceil(TASK).clamp(1, 64)
}
