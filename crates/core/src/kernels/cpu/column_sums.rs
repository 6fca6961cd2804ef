//! Sums over the rows of a matrix, column by column: bias gradients, and the statistics of batch norm.

use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::{SharedMut, parallel};
use plimsoll_base::simd::simd;
use std::ops::Range;
use std::slice::from_raw_parts;

/// Columns summed at a time, in registers.
pub(crate) const LANES: usize = 64;
/// Fewest rows of a chunk.
const CHUNK: usize = 64;
/// Most chunks; with [`CHUNK`] it fixes the order of summation for a number of rows.
const MAX_CHUNKS: usize = 64;

/// The cut of `rows` rows into chunks which are summed alone and combined in order: a function of `rows` only.
#[derive(Clone, Copy)]
pub struct Chunks {
    rows: usize,
    size: usize,
}

impl Chunks {
    pub fn new(rows: usize) -> Self {
        Chunks { rows, size: rows.div_ceil(MAX_CHUNKS).max(CHUNK) }
    }

    pub fn count(&self) -> usize {
        self.rows.div_ceil(self.size)
    }

    pub fn range(&self, chunk: usize) -> Range<usize> {
        chunk * self.size..((chunk + 1) * self.size).min(self.rows)
    }
}

/// Calls `block(first column, width)` for all columns, with width [`LANES`] wherever it fits. The width is a constant
/// in the first call, so that loops over it unroll.
#[inline(always)]
pub(crate) fn column_blocks(cols: usize, mut block: impl FnMut(usize, usize)) {
    let whole = cols / LANES * LANES;
    for first in (0..whole).step_by(LANES) {
        block(first, LANES);
    }
    if whole < cols {
        block(whole, cols - whole);
    }
}

/// Elements of scratch that [`column_sums`] needs.
pub(crate) fn column_sums_scratch(rows: usize, cols: usize) -> usize {
    Chunks::new(rows).count() * cols
}

/// out[j] = Σ_i x[i·cols + j].
///
/// # Safety
/// x holds rows·cols values, out `cols`; out overlaps nothing.
pub(crate) unsafe fn column_sums<T: Float>(rows: usize, cols: usize, x: *const T, out: *mut T, scratch: &mut [T]) {
    let chunks = Chunks::new(rows);
    // SAFETY: x holds this many values, out is ours alone.
    let (x, out) = unsafe { (from_raw_parts(x, rows * cols), SharedMut::new(out).slice(0, cols)) };
    let partial = &mut scratch[..chunks.count() * cols];
    let shared = SharedMut::new(partial.as_mut_ptr());
    parallel(chunks.count(), |chunk| {
        // SAFETY: each chunk has its own row of partial sums.
        let sums = unsafe { shared.slice(chunk * cols, cols) };
        let range = chunks.range(chunk);
        simd(
            #[inline(always)]
            || sum_rows(cols, &x[range.start * cols..range.end * cols], sums),
        );
    });
    simd(
        #[inline(always)]
        || sum_rows(cols, partial, out),
    );
}

/// The column sums of the rows in `x`, one after the other.
#[inline(always)]
pub(crate) fn sum_rows<T: Float>(cols: usize, x: &[T], out: &mut [T]) {
    column_blocks(
        cols,
        #[inline(always)]
        |first, width| {
            let mut sums = [T::ZERO; LANES];
            for row in x.chunks_exact(cols) {
                let row = &row[first..first + width];
                for j in 0..width {
                    sums[j] += row[j];
                }
            }
            out[first..first + width].copy_from_slice(&sums[..width]);
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::cpu::testing::*;

    fn run<T: Float>(rows: usize, cols: usize, x: &[T]) -> Vec<T> {
        let (mut out, mut scratch) = (poisoned(cols), poisoned(column_sums_scratch(rows, cols)));
        // SAFETY: `x` is rows × cols, `out` cols, and the scratch as long as asked for.
        unsafe { column_sums(rows, cols, x.as_ptr(), out.as_mut_ptr(), &mut scratch) };
        out
    }

    #[test]
    fn sums_every_column() {
        for (rows, cols) in [(0, 3), (1, 1), (5, 7), (64, 64), (65, 130), (1000, 65), (5000, 3)] {
            let x = noise(rows * cols, 3);
            let expected: Vec<f64> = (0..cols).map(|j| (0..rows).map(|i| x[i * cols + j]).sum()).collect();
            assert_close("f64", &run::<f64>(rows, cols, &x), &expected, 1e-13);
            assert_close("f32", &run::<f32>(rows, cols, &cast(&x)), &expected, 1e-5);
        }
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        let x = cast::<f32>(&noise(3000 * 70, 4));
        assert_same_bits_on_any_threads(|| run(3000, 70, &x));
    }
}
