//! Row kernels: sums and maxima in lanes, rows transformed where they lie, sums over rows in a fixed order.

use super::float::Float;
use super::parallel::SharedMut;
use super::{CpuIo, Element};
use std::ops::Range;

/// Independent sums that a reduction runs in: wide enough for two AVX-512 registers of f32.
const LANES: usize = 32;

/// Rows of this width that make a task worth its fork; a function of the width alone.
pub(crate) fn rows_per_task(width: usize) -> usize {
    ((16 << 10) / width.max(1)).max(1)
}

/// An output that begins as a copy of an input, or is that input where the plan put both at one address.
#[derive(Clone, Copy)]
pub struct InPlace<T> {
    from: Option<SharedMut<T>>,
    to: SharedMut<T>,
}

impl<T: Element> InPlace<T> {
    pub fn new(io: &CpuIo<'_>, output: usize, input: usize) -> Self {
        let from = (!io.is_in_place(output, input)).then(|| SharedMut::new(io.input_ptr(input) as *mut T));
        InPlace { from, to: SharedMut::new(io.output_ptr(output).cast()) }
    }

    /// The elements of the output in `start..start + len`, holding the input's values.
    ///
    /// # Safety
    /// The range lies inside both tensors, and no other task touches it meanwhile.
    #[inline(always)]
    pub unsafe fn load<'a>(&self, start: usize, len: usize) -> &'a mut [T] {
        // SAFETY: the caller's promise.
        let to = unsafe { self.to.slice(start, len) };
        if let Some(from) = self.from {
            // SAFETY: the same range of the input, which is not written: it is not where the output is.
            to.copy_from_slice(unsafe { from.slice(start, len) });
        }
        to
    }
}

/// Adds lanes up as a tree: fewer dependent additions than one after the other, and an order of its own.
#[inline(always)]
fn fold<T: Copy>(mut lanes: [T; LANES], combine: impl Fn(T, T) -> T) -> T {
    let mut half = LANES / 2;
    while half > 0 {
        for l in 0..half {
            lanes[l] = combine(lanes[l], lanes[l + half]);
        }
        half /= 2;
    }
    lanes[0]
}

#[inline(always)]
fn plus<T: Float>(a: T, b: T) -> T {
    a + b
}

/// Σ term(x). `term`, as every function given to these loops, has to be `#[inline(always)]`: what is not inlined is
/// compiled without wide vectors.
#[inline(always)]
pub fn sum<T: Float>(row: &[T], term: impl Fn(T) -> T) -> T {
    let mut lanes = [T::ZERO; LANES];
    let (blocks, rest) = row.as_chunks::<LANES>();
    for (l, &x) in rest.iter().enumerate() {
        lanes[l] = term(x);
    }
    for block in blocks {
        for (l, lane) in lanes.iter_mut().enumerate() {
            *lane += term(block[l]);
        }
    }
    fold(lanes, plus)
}

/// Σ term(x, y) over two rows of the same length.
#[inline(always)]
pub(crate) fn sum2<T: Float>(xs: &[T], ys: &[T], term: impl Fn(T, T) -> T) -> T {
    let mut lanes = [T::ZERO; LANES];
    let ((xs, x_rest), (ys, y_rest)) = (xs.as_chunks::<LANES>(), ys.as_chunks::<LANES>());
    for (l, (&x, &y)) in x_rest.iter().zip(y_rest).enumerate() {
        lanes[l] = term(x, y);
    }
    for (xs, ys) in xs.iter().zip(ys) {
        for (l, lane) in lanes.iter_mut().enumerate() {
            *lane += term(xs[l], ys[l]);
        }
    }
    fold(lanes, plus)
}

/// The largest element; −∞ of none. A NaN may or may not show.
#[inline(always)]
pub fn max<T: Float>(row: &[T]) -> T {
    let mut lanes = [T::NEG_INFINITY; LANES];
    let (blocks, rest) = row.as_chunks::<LANES>();
    lanes[..rest.len()].copy_from_slice(rest);
    for block in blocks {
        for (l, lane) in lanes.iter_mut().enumerate() {
            *lane = lane.max(block[l]);
        }
    }
    fold(lanes, T::max)
}

/// Into how many stretches rows are cut before what was summed over each is added up in order. It depends on the
/// number of rows alone, so that the result does too.
pub(crate) fn stretches(rows: usize) -> usize {
    (rows / 16).clamp(1, 16)
}

/// The rows of one stretch.
pub(crate) fn stretch(rows: usize, index: usize) -> Range<usize> {
    let size = rows.div_ceil(stretches(rows));
    (index * size).min(rows)..((index + 1) * size).min(rows)
}

/// `out += row`.
#[inline(always)]
pub fn add<T: Float>(out: &mut [T], row: &[T]) {
    for (a, b) in out.iter_mut().zip(row) {
        *a += *b;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_maxima_see_every_element() {
        for n in [0, 1, 31, 32, 33, 100] {
            let row: Vec<f64> = (1..=n).map(f64::from).collect();
            let total = f64::from(n * (n + 1) / 2);
            assert_eq!(sum(&row, |x| x), total);
            assert_eq!(sum2(&row, &row, |x, y| 2.0 * x - y), total);
            assert_eq!(max(&row), if n == 0 { f64::NEG_INFINITY } else { f64::from(n) });
        }
    }

    #[test]
    fn stretches_cover_rows_once() {
        for rows in [0, 1, 15, 33, 257, 5000] {
            let all: Vec<usize> = (0..stretches(rows)).flat_map(|i| stretch(rows, i)).collect();
            assert!(all.into_iter().eq(0..rows));
        }
    }
}
