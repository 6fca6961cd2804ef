//! Heads of at most 16 dimensions. Here the exponential dominates, so a vector holds the same quantity of `LANES`
//! queries (or, for the gradients of keys and values, of `LANES` keys) and the loop runs over the other side: no sum
//! ever crosses lanes. `D` is the head size rounded up to 2, 4, 8 or 16; the missing dimensions are zeros.

mod backward;

use std::ops::Range;

use super::{AttentionShape, Bias};
use crate::kernels::cpu::float::Float;
pub(super) use backward::backward;

use super::head::{Drop, Head};

const LANES: usize = 16;
type Lanes<T> = [T; LANES];

/// Whether heads of this shape run here.
pub(super) fn fits(shape: AttentionShape) -> bool {
    shape.head_dim <= 16 && shape.bias == Bias::None
}

fn padded(head_dim: usize) -> usize {
    head_dim.max(2).next_power_of_two()
}

/// keys, values, bias; scores and dropout factors of one block of queries.
pub(super) fn forward_scratch(shape: AttentionShape) -> usize {
    shape.k_len * (2 * padded(shape.head_dim) + 1 + 2 * LANES) + LANES
}

/// keys, values, bias; queries, output gradients, lse, delta; dropout factors of one block.
pub(super) fn backward_scratch(shape: AttentionShape) -> usize {
    let width = 2 * padded(shape.head_dim) + 1;
    shape.k_len * width + LANES + shape.q_len * (width + 1) + shape.k_len.max(shape.q_len) * LANES
}

/// Takes `len` elements off the front of `scratch`.
#[inline(always)]
pub(super) fn take<'a, T>(scratch: &mut &'a mut [T], len: usize) -> &'a mut [T] {
    let (front, rest) = std::mem::take(scratch).split_at_mut(len);
    *scratch = rest;
    front
}

/// Keys, values and bias of a head, one row per key.
struct Keys<'a, T, const D: usize> {
    keys: &'a [[T; D]],
    values: &'a [[T; D]],
    bias: &'a [T],
}

/// # Safety
/// The views of `head` are valid, and D is its width or more.
#[inline(always)]
unsafe fn pack_keys<'a, T: Float, const D: usize>(head: &Head<T>, scratch: &mut &'a mut [T]) -> Keys<'a, T, D> {
    let keys = take(scratch, head.k_len * D).as_chunks_mut::<D>().0;
    let values = take(scratch, head.k_len * D).as_chunks_mut::<D>().0;
    let bias = take(scratch, head.k_len + LANES);
    for (j, (key, value)) in keys.iter_mut().zip(values.iter_mut()).enumerate() {
        // SAFETY: `j` is below `k_len`, which keys and values both have.
        unsafe {
            head.k.read(j, T::ONE, key);
            head.v.read(j, T::ONE, value);
        }
    }
    // SAFETY: the mask is as long as the head says.
    unsafe { head.write_mask(bias) };
    Keys { keys, values, bias }
}

/// Rows `first..` turned so that lane l holds row `first + l`; lanes past the end hold 0.
#[inline(always)]
fn turn<T: Float, const D: usize>(rows: &[[T; D]], first: usize) -> [Lanes<T>; D] {
    let mut turned = [[T::ZERO; LANES]; D];
    for (l, row) in rows[first..].iter().take(LANES).enumerate() {
        for d in 0..D {
            turned[d][l] = row[d];
        }
    }
    turned
}

/// Per lane, where the keys visible to query `first + l` end.
#[inline(always)]
fn limits<T: Float>(head: &Head<T>, first: usize) -> [u32; LANES] {
    let mut limits = [0; LANES];
    for (l, limit) in limits.iter_mut().enumerate() {
        *limit = head.visible_end(first + l) as u32;
    }
    limits
}

/// Fills `factors[j][l]` with the dropout factor of query `first + l` on key j.
#[inline(always)]
fn write_factors<T: Float>(drop: Drop<T>, first: usize, factors: &mut [Lanes<T>]) {
    for (quad, rows) in factors.chunks_mut(4).enumerate() {
        let mut block = [[T::ZERO; LANES]; 4];
        for l in 0..LANES {
            let column = drop.factors(first + l, quad);
            for c in 0..4 {
                block[c][l] = column[c];
            }
        }
        rows.iter_mut().enumerate().for_each(|(c, row)| *row = block[c]);
    }
}

/// Σ over d of `a[d][l] · b[d]`, starting from `start`.
#[inline(always)]
fn dot<T: Float, const D: usize>(a: &[Lanes<T>; D], l: usize, b: &[T; D], start: T) -> T {
    let mut sum = start;
    for d in 0..D {
        sum = a[d][l].mul_add(b[d], sum);
    }
    sum
}

/// # Safety
/// The views of `head` are valid, D is its width or more, and nobody else touches `out` and `lse` of these queries.
#[inline(always)]
pub(super) unsafe fn forward<T: Float, const D: usize>(head: &Head<T>, queries: Range<usize>, mut scratch: &mut [T]) {
    // SAFETY: the head's views are valid, as the caller promises.
    let keys = unsafe { pack_keys::<T, D>(head, &mut scratch) };
    let scores = take(&mut scratch, head.k_len * LANES).as_chunks_mut::<LANES>().0;
    let factors = take(&mut scratch, head.k_len * LANES).as_chunks_mut::<LANES>().0;
    for first in queries.clone().step_by(LANES) {
        let count = LANES.min(queries.end - first);
        let full = head.visible_end(first);
        let end = head.visible_end(first + count - 1);
        let mut rows = [[T::ZERO; D]; LANES];
        for (l, row) in rows.iter_mut().take(count).enumerate() {
            // SAFETY: the query lies in the head.
            unsafe { head.q.read(first + l, head.scale, row) };
        }
        let q = turn(&rows, 0);
        let mut top = [T::NEG_INFINITY; LANES];
        let limits = limits(head, first);
        write_scores::<T, D, false>(&q, &keys, 0..full, &limits, scores, &mut top);
        write_scores::<T, D, true>(&q, &keys, full..end, &limits, scores, &mut top);
        // A query that sees nothing subtracts 0 instead of −∞: its exponentials are 0, not NaN.
        let mut shift = top;
        for t in &mut shift {
            *t = if *t == T::NEG_INFINITY { T::ZERO } else { *t };
        }
        let sums = if let Some(drop) = head.drop {
            write_factors(drop, first, &mut factors[..end]);
            weigh::<T, D, true>(&scores[..end], factors, keys.values, &shift)
        } else {
            weigh::<T, D, false>(&scores[..end], &scores[..end], keys.values, &shift)
        };
        for l in 0..count {
            let sum = sums.0[l];
            let seen = sum > T::ZERO;
            let row: [T; D] = std::array::from_fn(|d| sums.1[d][l]);
            // SAFETY: the query lies in the head and belongs to this task alone, its row of `out` and its `lse` too.
            unsafe {
                head.out.write(first + l, if seen { T::ONE / sum } else { T::ZERO }, &row);
                *head.lse.add(first + l) = if seen { shift[l] + sum.ln() } else { T::NEG_INFINITY };
            }
        }
    }
}

/// Scores of one block of queries on `range`, and their running maximum; on the diagonal, not every query sees every
/// key.
#[inline(always)]
fn write_scores<T: Float, const D: usize, const DIAGONAL: bool>(
    q: &[Lanes<T>; D],
    keys: &Keys<T, D>,
    range: Range<usize>,
    limits: &[u32; LANES],
    scores: &mut [Lanes<T>],
    top: &mut Lanes<T>,
) {
    // In locals, keys as well: a load that might see a store through `row` would keep the loop from becoming vectors.
    let (q, limits, mut running) = (*q, *limits, *top);
    let rows = keys.keys[range.clone()].iter().zip(&keys.bias[range.clone()]).zip(&mut scores[range.clone()]);
    for (j, ((key, bias), row)) in range.zip(rows) {
        let (key, bias, mut block) = (*key, *bias, [T::ZERO; LANES]);
        for l in 0..LANES {
            let score = dot(&q, l, &key, bias);
            block[l] = if !DIAGONAL || (j as u32) < limits[l] { score } else { T::NEG_INFINITY };
        }
        for l in 0..LANES {
            running[l] = running[l].max(block[l]);
        }
        *row = block;
    }
    *top = running;
}

/// Sums of exponentials, and of the (dropped) exponentials times the values.
#[inline(always)]
fn weigh<T: Float, const D: usize, const DROP: bool>(
    scores: &[Lanes<T>],
    factors: &[Lanes<T>],
    values: &[[T; D]],
    shift: &Lanes<T>,
) -> (Lanes<T>, [Lanes<T>; D]) {
    let (shift, mut sum, mut out) = (*shift, [T::ZERO; LANES], [[T::ZERO; LANES]; D]);
    for ((score, factor), value) in scores.iter().zip(factors).zip(values) {
        let (score, factor, value) = (*score, if DROP { *factor } else { [T::ONE; LANES] }, *value);
        for l in 0..LANES {
            let weight = (score[l] - shift[l]).exp();
            sum[l] += weight;
            let weight = if DROP { weight * factor[l] } else { weight };
            for d in 0..D {
                out[d][l] = weight.mul_add(value[d], out[d][l]);
            }
        }
    }
    (sum, out)
}
