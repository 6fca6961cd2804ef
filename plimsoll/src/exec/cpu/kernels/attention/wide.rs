//! Heads of more than 16 dimensions: a strip of queries at a time against all visible keys, as products of register
//! tiles. Only a strip's scores (32 × keys) exist at any time.

mod backward;

use std::ops::Range;

use super::super::super::float::Float;
use super::head::{Drop, Head, Rows};
use super::lanes::take;
use super::tile::{Matrix, WIDTH, product};
use super::{STRIP, Shape};
pub(super) use backward::backward;

/// Rows that share one limit of visible keys inside a strip.
const GROUP: usize = 4;

fn round_up(n: usize) -> usize {
    n.next_multiple_of(WIDTH)
}

/// Keys by panel, values by row, bias, the queries, scores and outputs of a strip, a row of factors, a row of zeros.
pub(super) fn forward_scratch(shape: Shape) -> usize {
    let (keys, dim) = (round_up(shape.k_len), round_up(shape.head_dim));
    2 * keys * dim + 2 * keys + STRIP * (2 * dim + keys) + keys.max(WIDTH)
}

/// Keys and values by panel, keys by row, gradients of both, bias, factors; the queries, output gradients, query
/// gradients, scores and their gradients of a strip; a row of zeros.
pub(super) fn backward_scratch(shape: Shape) -> usize {
    let (keys, dim) = (round_up(shape.k_len), round_up(shape.head_dim));
    5 * keys * dim + 2 * keys + STRIP * (3 * dim + 2 * keys) + keys.max(WIDTH)
}

#[inline(always)]
fn matrix<T: Float>(scratch: &mut &mut [T], rows: usize, row: usize) -> Matrix<T> {
    Matrix { ptr: take(scratch, rows * row).as_mut_ptr(), row }
}

#[inline(always)]
unsafe fn row_of<'a, T>(m: Matrix<T>, row: usize, len: usize) -> &'a mut [T] {
    unsafe { std::slice::from_raw_parts_mut(m.at(row, 0).ptr, len) }
}

/// Copies rows `range`, scaled, to the front rows of `to`.
#[inline(always)]
unsafe fn pack_rows<T: Float>(rows: &Rows<T>, range: Range<usize>, factor: T, to: Matrix<T>) {
    for (r, i) in range.enumerate() {
        unsafe { rows.read(i, factor, row_of(to, r, to.row)) };
    }
}

/// Panels of WIDTH keys, each (dim, WIDTH): the right side of a product whose columns are keys. `to` has rows of
/// WIDTH; missing keys are zeros.
#[inline(always)]
unsafe fn pack_panels<T: Float>(rows: &Rows<T>, len: usize, dim: usize, to: Matrix<T>) {
    for first in (0..len).step_by(WIDTH) {
        for d in 0..dim {
            let row = unsafe { row_of(to, first / WIDTH * dim + d, WIDTH) };
            let (present, missing) = row.split_at_mut(WIDTH.min(len - first));
            present.iter_mut().enumerate().for_each(|(l, to)| *to = unsafe { rows.get(first + l, d) });
            missing.fill(T::ZERO);
        }
    }
}

/// C = start + A · panels for the rows of a strip, each group only as far as it sees: C's columns are keys. `start` is
/// one row for all.
#[inline(always)]
unsafe fn against_keys<T: Float>(
    head: &Head<T>,
    strip: &Range<usize>,
    a: Matrix<T>,
    panels: Matrix<T>,
    start: Matrix<T>,
    c: Matrix<T>,
) {
    for column in (0..head.visible_end(strip.end - 1)).step_by(WIDTH) {
        let panel = unsafe { panels.at(column / WIDTH * head.dim, 0) };
        for row in (0..strip.len()).step_by(GROUP) {
            let rows = GROUP.min(strip.len() - row);
            if column < head.visible_end(strip.start + row + rows - 1) {
                unsafe {
                    product(rows, head.dim, a.at(row, 0).left(), panel, start.at(0, column), c.at(row, column));
                }
            }
        }
    }
}

/// C = A · rows for the rows of a strip, where A's columns are keys, each group only as far as it sees.
#[inline(always)]
unsafe fn over_keys<T: Float>(
    head: &Head<T>,
    strip: &Range<usize>,
    a: Matrix<T>,
    rows: Matrix<T>,
    zeros: Matrix<T>,
    c: Matrix<T>,
) {
    for column in (0..head.dim).step_by(WIDTH) {
        for row in (0..strip.len()).step_by(GROUP) {
            let count = GROUP.min(strip.len() - row);
            let depth = head.visible_end(strip.start + row + count - 1);
            unsafe { product(count, depth, a.at(row, 0).left(), rows.at(0, column), zeros, c.at(row, column)) };
        }
    }
}

/// Fills `factors[j]` with the dropout factor of query `i` on key j.
#[inline(always)]
fn write_factors<T: Float>(drop: Drop<T>, i: usize, factors: &mut [T]) {
    for (quad, part) in factors.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        *part = drop.factors(i, quad);
    }
}

#[inline(always)]
pub(super) unsafe fn forward<T: Float>(head: &Head<T>, queries: Range<usize>, mut scratch: &mut [T]) {
    let (keys, dim) = (round_up(head.k_len), round_up(head.dim));
    let key_panels = matrix(&mut scratch, keys / WIDTH * head.dim, WIDTH);
    let values = matrix(&mut scratch, head.k_len, dim);
    let bias = take(&mut scratch, keys);
    let factors = take(&mut scratch, keys);
    let q = matrix(&mut scratch, STRIP, dim);
    let out = matrix(&mut scratch, STRIP, dim);
    let scores = matrix(&mut scratch, STRIP, keys);
    let zeros = take(&mut scratch, keys.max(WIDTH));
    zeros.fill(T::ZERO);
    unsafe {
        pack_panels(&head.k, head.k_len, head.dim, key_panels);
        pack_rows(&head.v, 0..head.k_len, T::ONE, values);
        head.write_bias(bias);
    }
    let bias = Matrix { ptr: bias.as_mut_ptr(), row: 0 };
    let zeros = Matrix { ptr: zeros.as_mut_ptr(), row: 0 };
    for first in queries.clone().step_by(STRIP) {
        let strip = first..(first + STRIP).min(queries.end);
        let width = round_up(head.visible_end(strip.end - 1));
        unsafe {
            pack_rows(&head.q, strip.clone(), head.scale, q);
            against_keys(head, &strip, q, key_panels, bias, scores);
            let mut inverse = [T::ZERO; STRIP];
            for (r, i) in strip.clone().enumerate() {
                let row = row_of(scores, r, width);
                let (lse, sum) = softmax(row, head.visible_end(i));
                *head.lse.add(i) = lse;
                inverse[r] = sum;
                if let Some(drop) = head.drop {
                    write_factors(drop, i, &mut factors[..width]);
                    row.iter_mut().zip(factors.iter()).for_each(|(weight, factor)| *weight *= *factor);
                }
            }
            over_keys(head, &strip, scores, values, zeros, out);
            for (r, i) in strip.enumerate() {
                head.out.write(i, inverse[r], row_of(out, r, dim));
            }
        }
    }
}

/// Turns the scores before `end` into exponentials and the rest of the row into zeros. Returns the log of the sum of
/// exponentials and the inverse of that sum (−∞ and 0 if there is nothing to see).
#[inline(always)]
fn softmax<T: Float>(row: &mut [T], end: usize) -> (T, T) {
    let reached = end.next_multiple_of(WIDTH);
    row[end..reached].fill(T::NEG_INFINITY);
    row[reached..].fill(T::ZERO);
    let chunks = row[..reached].as_chunks_mut::<WIDTH>().0;
    let mut top = [T::NEG_INFINITY; WIDTH];
    for chunk in chunks.iter() {
        for l in 0..WIDTH {
            top[l] = top[l].max(chunk[l]);
        }
    }
    let top = top.into_iter().fold(T::NEG_INFINITY, T::max);
    let shift = if top == T::NEG_INFINITY { T::ZERO } else { top };
    let mut sums = [T::ZERO; WIDTH];
    for chunk in chunks {
        for l in 0..WIDTH {
            chunk[l] = (chunk[l] - shift).exp();
            sums[l] += chunk[l];
        }
    }
    let sum: T = sums.into_iter().sum();
    if sum > T::ZERO { (shift + sum.ln(), T::ONE / sum) } else { (T::NEG_INFINITY, T::ZERO) }
}
