//! Batch norm over the rows of a channels-last tensor. Rows of padded samples neither count nor come out: their y and
//! dx are zero, and what they hold is never read.

#[cfg(test)]
mod tests;

use super::column_sums::{Chunks, LANES, column_blocks};
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::{SharedMut, parallel};
use plimsoll_base::simd::simd;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchNormShape {
    pub rows: usize,
    pub channels: usize,
}

/// Which rows count: all, or those whose sample weight is not 0. `rows_per_weight` consecutive rows share a weight.
#[derive(Clone, Copy)]
pub struct Rows<'a, T> {
    pub weights: Option<&'a [T]>,
    pub rows_per_weight: usize,
}

impl<T: Float> Rows<'_, T> {
    #[inline(always)]
    fn counts(&self, row: usize) -> bool {
        self.weights.is_none_or(|weights| weights[row / self.rows_per_weight] != T::ZERO)
    }

    /// How many of `rows` count.
    pub fn count(&self, rows: Range<usize>) -> usize {
        match self.weights {
            Some(_) => rows.filter(|&row| self.counts(row)).count(),
            None => rows.len(),
        }
    }
}

/// The learned factor and offset of each channel, and what keeps the division finite.
#[derive(Clone, Copy)]
pub struct Layer<'a, T> {
    pub gamma: &'a [T],
    pub beta: &'a [T],
    pub eps: T,
}

/// What [`forward`] leaves per channel: `var` is the biased variance, `rstd` is 1 / √(var + layer.eps).
pub struct Statistics<'a, T> {
    pub mean: &'a mut [T],
    pub var: &'a mut [T],
    pub rstd: &'a mut [T],
}

/// Elements of scratch that [`forward`] and [`backward`] need: two partial results per chunk of rows and channel.
pub(crate) fn scratch(shape: BatchNormShape) -> usize {
    2 * Chunks::new(shape.rows).count() * shape.channels
}

/// Normalizes with the statistics of the counting rows.
pub fn forward<T: Float>(
    shape: BatchNormShape,
    x: &[T],
    rows: Rows<T>,
    layer: Layer<T>,
    y: &mut [T],
    statistics: Statistics<T>,
    scratch: &mut [T],
) {
    let n = shape.channels;
    let Statistics { mean, var, rstd } = statistics;
    per_chunk(
        shape,
        scratch,
        #[inline(always)]
        |range, means, squares| moments(n, x, rows, range, means, squares),
    );
    simd(
        #[inline(always)]
        || combine_moments(shape, rows, scratch, mean, var),
    );
    rstd.iter_mut().zip(&*var).for_each(|(rstd, &var)| *rstd = T::ONE / (var + layer.eps).sqrt());
    normalize(
        shape,
        x,
        rows,
        layer,
        (mean, rstd),
        #[inline(always)]
        |rstd| rstd,
        y,
    );
}

/// Normalizes every row with running statistics.
pub fn evaluate<T: Float>(
    shape: BatchNormShape,
    x: &[T],
    layer: Layer<T>,
    running_mean: &[T],
    running_var: &[T],
    y: &mut [T],
) {
    let all = Rows { weights: None, rows_per_weight: 1 };
    normalize(
        shape,
        x,
        all,
        layer,
        (running_mean, running_var),
        #[inline(always)]
        |var| T::ONE / (var + layer.eps).sqrt(),
        y,
    );
}

/// Moves running statistics towards those of a batch with `count` counting rows, as PyTorch does: by the unbiased
/// variance.
pub(crate) fn update_running<T: Float>(
    mean: &[T],
    var: &[T],
    count: usize,
    momentum: T,
    running_mean: &mut [T],
    running_var: &mut [T],
) {
    if count == 0 {
        return;
    }
    // One row has no unbiased variance: it enters with its biased one, 0.
    let unbiased = T::of(count as f64 / (count.max(2) - 1) as f64);
    let step = |running: &mut T, value: T| *running += momentum * (value - *running);
    running_mean.iter_mut().zip(mean).for_each(|(running, &mean)| step(running, mean));
    running_var.iter_mut().zip(var).for_each(|(running, &var)| step(running, var * unbiased));
}

/// What [`backward`] reads: `mean` and `rstd` are those that [`forward`] left.
#[derive(Clone, Copy)]
pub struct Saved<'a, T> {
    pub x: &'a [T],
    pub rows: Rows<'a, T>,
    pub gamma: &'a [T],
    pub mean: &'a [T],
    pub rstd: &'a [T],
}

/// Gradients of [`forward`].
pub fn backward<T: Float>(
    shape: BatchNormShape,
    dy: &[T],
    saved: Saved<T>,
    dx: &mut [T],
    dgamma: &mut [T],
    dbeta: &mut [T],
    scratch: &mut [T],
) {
    let n = shape.channels;
    per_chunk(
        shape,
        scratch,
        #[inline(always)]
        |range, sums, products| slopes(n, dy, saved, range, sums, products),
    );
    let partial = &scratch[..self::scratch(shape)];
    simd(
        #[inline(always)]
        || combine_slopes(n, partial, dgamma, dbeta),
    );
    let (dgamma, dbeta) = (&*dgamma, &*dbeta);
    let share = T::ONE / T::of(saved.rows.count(0..shape.rows).max(1) as f64);
    per_row(
        shape,
        saved.rows,
        dx,
        #[inline(always)]
        |at, dx| {
            let (x, dy) = (&saved.x[at..at + n], &dy[at..at + n]);
            let (gamma, mean, rstd) = (&saved.gamma[..n], &saved.mean[..n], &saved.rstd[..n]);
            let (dgamma, dbeta) = (&dgamma[..n], &dbeta[..n]);
            for j in 0..n {
                let normal = (x[j] - mean[j]) * rstd[j];
                let common = normal.mul_add(dgamma[j], dbeta[j]) * share;
                dx[j] = gamma[j] * rstd[j] * (dy[j] - common);
            }
        },
    );
}

/// Runs `chunk(rows, first results, second results)` on every chunk, each with its own pair of rows in the scratch.
fn per_chunk<T: Float>(
    shape: BatchNormShape,
    scratch: &mut [T],
    chunk: impl Fn(Range<usize>, &mut [T], &mut [T]) + Sync,
) {
    let (chunks, n) = (Chunks::new(shape.rows), shape.channels);
    let partial = SharedMut::new(scratch[..self::scratch(shape)].as_mut_ptr());
    parallel(chunks.count(), |i| {
        // SAFETY: each chunk has its own part.
        let (first, second) = unsafe { partial.slice(2 * i * n, 2 * n) }.split_at_mut(n);
        simd(
            #[inline(always)]
            || chunk(chunks.range(i), first, second),
        );
    });
}

/// Runs `row(offset, target)` on every counting row of the target; the others become zero.
fn per_row<T: Float>(shape: BatchNormShape, rows: Rows<T>, target: &mut [T], row: impl Fn(usize, &mut [T]) + Sync) {
    let (chunks, n) = (Chunks::new(shape.rows), shape.channels);
    let target = SharedMut::new(target[..shape.rows * n].as_mut_ptr());
    parallel(chunks.count(), |i| {
        simd(
            #[inline(always)]
            || {
                for index in chunks.range(i) {
                    // SAFETY: each row belongs to one chunk.
                    let target = unsafe { target.slice(index * n, n) };
                    if rows.counts(index) { row(index * n, target) } else { target.fill(T::ZERO) }
                }
            },
        );
    });
}

/// Mean and sum of squared deviations of the counting rows of one chunk.
#[inline(always)]
fn moments<T: Float>(n: usize, x: &[T], rows: Rows<T>, range: Range<usize>, means: &mut [T], squares: &mut [T]) {
    let share = T::ONE / T::of(rows.count(range.clone()).max(1) as f64);
    column_blocks(
        n,
        #[inline(always)]
        |first, width| {
            let mut mean = [T::ZERO; LANES];
            for row in range.clone() {
                if !rows.counts(row) {
                    continue;
                }
                let x = &x[row * n + first..][..width];
                for j in 0..width {
                    mean[j] += x[j];
                }
            }
            for mean in &mut mean[..width] {
                *mean *= share;
            }
            let mut square = [T::ZERO; LANES];
            for row in range.clone() {
                if !rows.counts(row) {
                    continue;
                }
                let x = &x[row * n + first..][..width];
                for j in 0..width {
                    square[j] = (x[j] - mean[j]).mul_add(x[j] - mean[j], square[j]);
                }
            }
            means[first..first + width].copy_from_slice(&mean[..width]);
            squares[first..first + width].copy_from_slice(&square[..width]);
        },
    );
}

/// Mean and variance over all chunks: squared deviations are moved from the chunk's mean to the common one.
#[inline(always)]
fn combine_moments<T: Float>(shape: BatchNormShape, rows: Rows<T>, partial: &[T], mean: &mut [T], var: &mut [T]) {
    let (chunks, n) = (Chunks::new(shape.rows), shape.channels);
    let share = T::ONE / T::of(rows.count(0..shape.rows).max(1) as f64);
    let (mean, var) = (&mut mean[..n], &mut var[..n]);
    mean.fill(T::ZERO);
    for chunk in 0..chunks.count() {
        let weight = T::of(rows.count(chunks.range(chunk)) as f64) * share;
        let means = &partial[2 * chunk * n..][..n];
        for j in 0..n {
            mean[j] = weight.mul_add(means[j], mean[j]);
        }
    }
    var.fill(T::ZERO);
    for chunk in 0..chunks.count() {
        let weight = T::of(rows.count(chunks.range(chunk)) as f64) * share;
        let (means, squares) = (&partial[2 * chunk * n..][..n], &partial[(2 * chunk + 1) * n..][..n]);
        for j in 0..n {
            let apart = means[j] - mean[j];
            var[j] += squares[j].mul_add(share, weight * apart * apart);
        }
    }
}

/// The sums over all chunks.
#[inline(always)]
fn combine_slopes<T: Float>(n: usize, partial: &[T], dgamma: &mut [T], dbeta: &mut [T]) {
    let (dgamma, dbeta) = (&mut dgamma[..n], &mut dbeta[..n]);
    dgamma.fill(T::ZERO);
    dbeta.fill(T::ZERO);
    for partial in partial.chunks_exact(2 * n) {
        let (sums, products) = (&partial[..n], &partial[n..2 * n]);
        for j in 0..n {
            dbeta[j] += sums[j];
            dgamma[j] += products[j];
        }
    }
}

/// Σ dy and Σ dy · normalized x of the counting rows of one chunk.
#[inline(always)]
fn slopes<T: Float>(n: usize, dy: &[T], saved: Saved<T>, range: Range<usize>, sums: &mut [T], products: &mut [T]) {
    column_blocks(
        n,
        #[inline(always)]
        |first, width| {
            let (mean, rstd) = (&saved.mean[first..][..width], &saved.rstd[first..][..width]);
            let (mut sum, mut product) = ([T::ZERO; LANES], [T::ZERO; LANES]);
            for row in range.clone() {
                if !saved.rows.counts(row) {
                    continue;
                }
                let (x, dy) = (&saved.x[row * n + first..][..width], &dy[row * n + first..][..width]);
                for j in 0..width {
                    sum[j] += dy[j];
                }
                for j in 0..width {
                    product[j] = dy[j].mul_add(x[j] - mean[j], product[j]);
                }
            }
            for j in 0..width {
                product[j] *= rstd[j];
            }
            sums[first..first + width].copy_from_slice(&sum[..width]);
            products[first..first + width].copy_from_slice(&product[..width]);
        },
    );
}

/// y = (x − mean) · rstd · gamma + beta on the counting rows, `rstd` being computed from the channel's `spread`.
fn normalize<T: Float>(
    shape: BatchNormShape,
    x: &[T],
    rows: Rows<T>,
    layer: Layer<T>,
    (mean, spread): (&[T], &[T]),
    rstd: impl Fn(T) -> T + Sync,
    y: &mut [T],
) {
    let n = shape.channels;
    per_row(
        shape,
        rows,
        y,
        #[inline(always)]
        |at, y| {
            // Slices of one known length: without them every element would be checked, and nothing vectorized.
            let (x, gamma, beta) = (&x[at..at + n], &layer.gamma[..n], &layer.beta[..n]);
            let (mean, spread) = (&mean[..n], &spread[..n]);
            for j in 0..n {
                y[j] = ((x[j] - mean[j]) * rstd(spread[j])).mul_add(gamma[j], beta[j]);
            }
        },
    );
}
