//! Heads of more than 16 dimensions, and all with a bias: matrix products over a strip of queries at a time against
//! all keys it sees. Only a strip's scores exist at any time.

mod backward;
mod disentangled;

use std::ops::Range;

use super::head::{Drop, FACTOR_BLOCK, Head, HeadBias, Rows};
use super::lanes::take;
use super::{AttentionShape, STRIP};
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::gemm::{Activation, Dims, Epilogue, Matrix, gemm_serial, serial_scratch_up_to};
pub(super) use backward::{backward, backward_scratch};
use disentangled::Positions;
use plimsoll_base::simd::simd;

/// Scores and output of a strip, mask and dropout factors of a row, what positions give, and what a product wants.
pub(super) fn forward_scratch(shape: AttentionShape) -> usize {
    let own = STRIP * (shape.k_len + shape.head_dim) + 2 * row_len(shape.k_len);
    own + disentangled::forward_scratch(shape) + product_scratch(shape)
}

/// Dropout factors come in blocks.
fn row_len(keys: usize) -> usize {
    keys.next_multiple_of(FACTOR_BLOCK)
}

fn product_scratch(shape: AttentionShape) -> usize {
    let (keys, dim) = (shape.k_len, shape.head_dim);
    let products =
        [Dims { m: STRIP, n: keys, k: dim }, Dims { m: STRIP, n: dim, k: keys }, Dims { m: keys, n: dim, k: STRIP }];
    let most = products.map(serial_scratch_up_to).into_iter().max().unwrap_or(0);
    most.max(disentangled::product_scratch(shape))
}

/// C (row-major, `ldc` apart) = alpha · A · B, or added to what is there.
///
/// # Safety
/// As [`gemm_serial`].
unsafe fn product<T: Float>(
    dims: Dims,
    a: Matrix<T>,
    b: Matrix<T>,
    (c, ldc): (*mut T, usize),
    alpha: T,
    accumulate: bool,
    scratch: &mut [T],
) {
    let epilogue = Epilogue { alpha, bias: None, activation: Activation::None, accumulate };
    // SAFETY: as the caller promises; the product's scratch is as long as `product_scratch` says.
    unsafe { gemm_serial(dims, a, b, c, ldc, epilogue, scratch) };
}

/// A row-major scratch matrix as an operand.
fn rows<T>(data: &[T], row_stride: usize) -> Matrix<T> {
    Matrix { ptr: data.as_ptr(), row_stride, col_stride: 1 }
}

/// Its transpose.
fn columns<T>(data: &[T], row_stride: usize) -> Matrix<T> {
    Matrix { ptr: data.as_ptr(), row_stride: 1, col_stride: row_stride }
}

/// Where a product writes the rows from `first` on: in place where a row's elements are neighbours, else to `space`,
/// from where [`put`] brings them.
///
/// # Safety
/// The head has a row `first`.
unsafe fn target<T: Float>(to: &Rows<T>, first: usize, space: &mut [T], dim: usize) -> (*mut T, usize) {
    // SAFETY: the caller promises the row.
    unsafe { to.target(first) }.unwrap_or((space.as_mut_ptr(), dim))
}

/// # Safety
/// The head has these rows, nobody else touches them, and `space` holds them `dim` apart unless they are there
/// already.
unsafe fn put<T: Float>(to: &Rows<T>, range: Range<usize>, space: &[T], dim: usize) {
    // SAFETY: the caller promises the rows, and that they are its own.
    unsafe {
        if to.target(range.start).is_none() {
            range.zip(space.chunks_exact(dim)).for_each(|(i, row)| to.write(i, T::ONE, row));
        }
    }
}

/// # Safety
/// The views of `head` are valid, the queries lie in it, and nobody else touches `out` and `lse` of these.
pub(super) unsafe fn forward<T: Float>(head: &Head<T>, queries: Range<usize>, mut scratch: &mut [T]) {
    let (keys, dim) = (head.k_len, head.dim);
    let scores = take(&mut scratch, STRIP * keys);
    let out = take(&mut scratch, STRIP * dim);
    let mask = take(&mut scratch, row_len(keys));
    let factors = take(&mut scratch, row_len(keys));
    // SAFETY: the mask is as long as the head says.
    unsafe { head.write_mask(mask) };
    // SAFETY: the same mask.
    let seen = unsafe { head.seen_keys() };
    // SAFETY: the tables of the bias are as the job promises; `seen` is at most `k_len`.
    let mut positions = unsafe { Positions::new(head, seen, &mut scratch) };
    for first in queries.clone().step_by(STRIP) {
        let strip = first..(first + STRIP).min(queries.end);
        let (count, end) = (strip.len(), head.visible_end(strip.end - 1).min(seen));
        // SAFETY: strips lie in the head and `end` is at most `k_len`; scores, weights and outputs are scratch or
        // rows of this task alone.
        unsafe {
            let dims = Dims { m: count, n: end, k: dim };
            let (q, k) = (head.q.matrix(first, false), head.k.matrix(0, true));
            product(dims, q, k, (scores.as_mut_ptr(), keys), head.scale, false, scratch);
            if let Some(positions) = &mut positions {
                positions.add(head, strip.clone(), end, scores, scratch);
            }
            softmax_strip(head, strip.clone(), end, scores, mask, factors);
            let dims = Dims { m: count, n: dim, k: end };
            let to = target(&head.out, first, out, dim);
            product(dims, rows(scores, keys), head.v.matrix(0, false), to, T::ONE, false, scratch);
            put(&head.out, strip, out, dim);
        }
    }
}

/// Turns a strip's scores on the keys before `end` into dropped weights, and writes the log of each sum of
/// exponentials (−∞ if there is nothing to see).
///
/// # Safety
/// The strip lies in the head, and nobody else touches `lse` of its queries.
unsafe fn softmax_strip<T: Float>(
    head: &Head<T>,
    strip: Range<usize>,
    end: usize,
    scores: &mut [T],
    mask: &[T],
    factors: &mut [T],
) {
    simd(
        #[inline(always)]
        || {
            for (r, i) in strip.enumerate() {
                let (row, hidden) = scores[r * head.k_len..][..end].split_at_mut(head.visible_end(i).min(end));
                hidden.fill(T::ZERO);
                // SAFETY: the query lies in the head.
                unsafe {
                    add_relative(head, i, row);
                    *head.lse.add(i) = softmax(row, mask);
                }
                if let Some(drop) = head.drop {
                    write_factors(drop, i, &mut factors[..row_len(row.len())]);
                    for (weight, factor) in row.iter_mut().zip(&*factors) {
                        *weight *= *factor;
                    }
                }
            }
        },
    );
}

/// Fills `factors[j]` with the dropout factor of query `i` on key j.
#[inline(always)]
fn write_factors<T: Float>(drop: Drop<T>, i: usize, factors: &mut [T]) {
    for (block, factors) in factors.as_chunks_mut::<FACTOR_BLOCK>().0.iter_mut().enumerate() {
        drop.write_factors(i, block, factors);
    }
}

/// Adds a relative bias to the scores of query `i`.
///
/// # Safety
/// The head has a query `i`, and `row` no more than its keys.
#[inline(always)]
unsafe fn add_relative<T: Float>(head: &Head<T>, i: usize, row: &mut [T]) {
    if let HeadBias::Relative { values } = head.bias {
        // SAFETY: a value for every distance: from query `i`'s first on there are at least `k_len`, and a row has no
        // more.
        let values = unsafe { std::slice::from_raw_parts(values.add(head.first_distance(i)), row.len()) };
        for (score, bias) in row.iter_mut().zip(values) {
            *score += *bias;
        }
    }
}

/// Turns scores into weights. Returns the log of the sum of exponentials.
#[inline(always)]
fn softmax<T: Float>(row: &mut [T], mask: &[T]) -> T {
    let top = add_mask(row, &mask[..row.len()]);
    let shift = if top == T::NEG_INFINITY { T::ZERO } else { top };
    let sum = exponentials(row, shift);
    if sum == T::ZERO {
        return T::NEG_INFINITY;
    }
    let inverse = T::ONE / sum;
    for weight in row {
        *weight *= inverse;
    }
    shift + sum.ln()
}

/// Lanes of a sum or maximum over a row.
const LANES: usize = 16;

/// Adds the mask and returns the largest score.
#[inline(always)]
fn add_mask<T: Float>(row: &mut [T], mask: &[T]) -> T {
    let mut top = [T::NEG_INFINITY; LANES];
    let (chunks, tail) = row.as_chunks_mut::<LANES>();
    let (mask_chunks, mask_tail) = mask.as_chunks::<LANES>();
    for (chunk, mask) in chunks.iter_mut().zip(mask_chunks) {
        for l in 0..LANES {
            chunk[l] += mask[l];
            top[l] = top[l].max(chunk[l]);
        }
    }
    for (l, (x, mask)) in tail.iter_mut().zip(mask_tail).enumerate() {
        *x += *mask;
        top[l] = top[l].max(*x);
    }
    let mut highest = T::NEG_INFINITY;
    for x in top {
        highest = highest.max(x);
    }
    highest
}

/// Replaces scores by exponentials and returns their sum.
#[inline(always)]
fn exponentials<T: Float>(row: &mut [T], shift: T) -> T {
    let mut sums = [T::ZERO; LANES];
    let (chunks, tail) = row.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for l in 0..LANES {
            chunk[l] = (chunk[l] - shift).exp();
            sums[l] += chunk[l];
        }
    }
    for (l, x) in tail.iter_mut().enumerate() {
        *x = (*x - shift).exp();
        sums[l] += *x;
    }
    let mut sum = T::ZERO;
    for x in sums {
        sum += x;
    }
    sum
}
