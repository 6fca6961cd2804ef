//! Heads of more than 16 dimensions: matrix products over a strip of queries at a time against all keys it sees. Only a
//! strip's scores exist at any time.

mod backward;

use std::ops::Range;

use super::super::super::float::Float;
use super::super::super::gemm::{Activation, Dims, Epilogue, Matrix, gemm_serial, serial_scratch_up_to};
use super::super::super::simd::simd;
use super::head::{Drop, Head};
use super::lanes::take;
use super::{STRIP, Shape};
pub(super) use backward::backward;

/// Scores and output of a strip, bias and dropout factors of a row, and what a product wants.
pub(super) fn forward_scratch(shape: Shape) -> usize {
    STRIP * (shape.k_len + shape.head_dim) + 2 * row_len(shape.k_len) + product_scratch(shape)
}

/// Scores and their gradients, query gradients of a strip, gradients of keys and values, bias and factors of a row, and
/// what a product wants.
pub(super) fn backward_scratch(shape: Shape) -> usize {
    let (keys, dim) = (shape.k_len, shape.head_dim);
    STRIP * (2 * keys + dim) + 2 * keys * dim + 2 * row_len(keys) + product_scratch(shape)
}

/// Dropout factors come four at a time.
fn row_len(keys: usize) -> usize {
    keys.next_multiple_of(4)
}

fn product_scratch(shape: Shape) -> usize {
    let (keys, dim) = (shape.k_len, shape.head_dim);
    let products =
        [Dims { m: STRIP, n: keys, k: dim }, Dims { m: STRIP, n: dim, k: keys }, Dims { m: keys, n: dim, k: STRIP }];
    products.map(serial_scratch_up_to).into_iter().max().unwrap_or(0)
}

/// C (row-major, `ldc` apart) = alpha · A · B, or added to what is there.
unsafe fn product<T: Float>(
    dims: Dims,
    a: Matrix<T>,
    b: Matrix<T>,
    c: (&mut [T], usize),
    alpha: T,
    accumulate: bool,
    scratch: &mut [T],
) {
    let epilogue = Epilogue { alpha, bias: None, activation: Activation::None, accumulate };
    unsafe { gemm_serial(dims, a, b, c.0.as_mut_ptr(), c.1, epilogue, scratch) };
}

/// A row-major scratch matrix as an operand.
fn rows<T>(data: &[T], row_stride: usize) -> Matrix<T> {
    Matrix { ptr: data.as_ptr(), row_stride, col_stride: 1 }
}

/// Its transpose.
fn columns<T>(data: &[T], row_stride: usize) -> Matrix<T> {
    Matrix { ptr: data.as_ptr(), row_stride: 1, col_stride: row_stride }
}

/// Fills `factors[j]` with the dropout factor of query `i` on key j, or with ones.
fn write_factors<T: Float>(drop: Option<Drop<T>>, i: usize, factors: &mut [T]) {
    let Some(drop) = drop else { return factors.fill(T::ONE) };
    for (quad, part) in factors.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        *part = drop.factors(i, quad);
    }
}

pub(super) unsafe fn forward<T: Float>(head: &Head<T>, queries: Range<usize>, mut scratch: &mut [T]) {
    let (keys, dim) = (head.k_len, head.dim);
    let scores = take(&mut scratch, STRIP * keys);
    let out = take(&mut scratch, STRIP * dim);
    let bias = take(&mut scratch, row_len(keys));
    let factors = take(&mut scratch, row_len(keys));
    unsafe { head.write_bias(bias) };
    for first in queries.clone().step_by(STRIP) {
        let strip = first..(first + STRIP).min(queries.end);
        let (count, end) = (strip.len(), head.visible_end(strip.end - 1));
        unsafe {
            let dims = Dims { m: count, n: end, k: dim };
            product(
                dims,
                head.q.matrix(first, false),
                head.k.matrix(0, true),
                (scores, keys),
                head.scale,
                false,
                scratch,
            );
            for (r, i) in strip.clone().enumerate() {
                let row = &mut scores[r * keys..][..end];
                write_factors(head.drop, i, factors);
                *head.lse.add(i) = softmax(row, bias, factors, head.visible_end(i));
            }
            let dims = Dims { m: count, n: dim, k: end };
            product(dims, rows(scores, keys), head.v.matrix(0, false), (out, dim), T::ONE, false, scratch);
            for (r, i) in strip.enumerate() {
                head.out.write(i, T::ONE, &out[r * dim..][..dim]);
            }
        }
    }
}

/// Turns the scores before `end` into dropped weights and the rest of the row into zeros. Returns the log of the sum of
/// exponentials (−∞ if there is nothing to see).
fn softmax<T: Float>(row: &mut [T], bias: &[T], factors: &[T], end: usize) -> T {
    row[end..].fill(T::ZERO);
    let row = &mut row[..end];
    simd(
        #[inline(always)]
        || {
            let top = add_bias(row, &bias[..row.len()]);
            let shift = if top == T::NEG_INFINITY { T::ZERO } else { top };
            let sum = exponentials(row, shift);
            let inverse = if sum > T::ZERO { T::ONE / sum } else { T::ZERO };
            for (weight, factor) in row.iter_mut().zip(factors) {
                *weight *= inverse * *factor;
            }
            if sum > T::ZERO { shift + sum.ln() } else { T::NEG_INFINITY }
        },
    )
}

/// Lanes of a sum or maximum over a row.
const LANES: usize = 16;

/// Adds the bias and returns the largest score.
#[inline(always)]
fn add_bias<T: Float>(row: &mut [T], bias: &[T]) -> T {
    let mut top = [T::NEG_INFINITY; LANES];
    let (chunks, tail) = row.as_chunks_mut::<LANES>();
    let (bias_chunks, bias_tail) = bias.as_chunks::<LANES>();
    for (chunk, bias) in chunks.iter_mut().zip(bias_chunks) {
        for l in 0..LANES {
            chunk[l] += bias[l];
            top[l] = top[l].max(chunk[l]);
        }
    }
    for (l, (x, bias)) in tail.iter_mut().zip(bias_tail).enumerate() {
        *x += *bias;
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
