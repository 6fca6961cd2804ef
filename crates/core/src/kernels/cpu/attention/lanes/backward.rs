//! The backward pass of narrow heads.

use std::ops::Range;

use super::super::head::{Drop, Head, HeadGradients};
use super::{Keys, LANES, Lanes, dot, limits, pack_keys, take, turn, write_factors};
use crate::kernels::cpu::float::Float;

/// Scaled queries, output gradients, and per query the log-sum-exp and delta = Σ dout · out, one row per query.
struct Queries<'a, T, const D: usize> {
    queries: &'a [[T; D]],
    douts: &'a [[T; D]],
    lse: &'a [T],
    delta: &'a [T],
}

/// # Safety
/// The views of `head` and `gradients` are valid, and D is their width or more.
#[inline(always)]
unsafe fn pack_queries<'a, T: Float, const D: usize>(
    head: &Head<T>,
    gradients: &HeadGradients<T>,
    scratch: &mut &'a mut [T],
) -> Queries<'a, T, D> {
    let queries = take(scratch, head.q_len * D).as_chunks_mut::<D>().0;
    let douts = take(scratch, head.q_len * D).as_chunks_mut::<D>().0;
    let lse = take(scratch, head.q_len);
    let delta = take(scratch, head.q_len);
    for i in 0..head.q_len {
        // SAFETY: `i` is below `q_len`, which queries, outputs and their gradients all have.
        unsafe {
            head.q.read(i, head.scale, &mut queries[i]);
            gradients.dout.read(i, T::ONE, &mut douts[i]);
            lse[i] = head.saved_lse(i);
            delta[i] = head.out.dot(i, &douts[i]);
        }
    }
    Queries { queries, douts, lse, delta }
}

/// `values[first..]`, with `missing` past the end.
#[inline(always)]
fn load<T: Float>(values: &[T], first: usize, missing: T) -> Lanes<T> {
    let mut lanes = [missing; LANES];
    lanes.iter_mut().zip(&values[first..]).for_each(|(lane, value)| *lane = *value);
    lanes
}

/// Two sweeps, each recomputing the weights: over keys for the gradients of queries, over queries for those of keys
/// and values. That costs a second exponential and saves all sums across lanes.
///
/// # Safety
/// As `pack_queries`; nobody else touches the gradients of this head.
#[inline(always)]
pub(in super::super) unsafe fn backward<T: Float, const D: usize>(
    head: &Head<T>,
    gradients: &HeadGradients<T>,
    mut scratch: &mut [T],
) {
    // SAFETY: the head's views are valid, as the caller promises.
    let keys = unsafe { pack_keys::<T, D>(head, &mut scratch) };
    // SAFETY: the same, and those of its gradients.
    let queries = unsafe { pack_queries::<T, D>(head, gradients, &mut scratch) };
    let factors = take(&mut scratch, head.k_len.max(head.q_len) * LANES).as_chunks_mut::<LANES>().0;
    for first in (0..head.q_len).step_by(LANES) {
        let dq = if let Some(drop) = head.drop {
            write_factors(drop, first, &mut factors[..head.k_len]);
            query_block::<T, D, true>(head, &keys, &queries, first, factors)
        } else {
            query_block::<T, D, false>(head, &keys, &queries, first, factors)
        };
        for l in 0..LANES.min(head.q_len - first) {
            let row: [T; D] = std::array::from_fn(|d| dq[d][l]);
            // SAFETY: the query lies in the head, whose gradients this task alone writes.
            unsafe { gradients.dq.write(first + l, head.scale, &row) };
        }
    }
    for first in (0..head.k_len).step_by(LANES) {
        let [dk, dv] = if let Some(drop) = head.drop {
            write_key_factors(drop, first, &mut factors[..head.q_len]);
            key_block::<T, D, true>(head, &keys, &queries, first, factors)
        } else {
            key_block::<T, D, false>(head, &keys, &queries, first, factors)
        };
        for l in 0..LANES.min(head.k_len - first) {
            let dk: [T; D] = std::array::from_fn(|d| dk[d][l]);
            let dv: [T; D] = std::array::from_fn(|d| dv[d][l]);
            // SAFETY: the key lies in the head, whose gradients this task alone writes.
            unsafe {
                gradients.dk.write(first + l, T::ONE, &dk);
                gradients.dv.write(first + l, T::ONE, &dv);
            }
        }
    }
}

/// Fills `factors[i][l]` with the dropout factor of query i on key `first + l`; `first` is a multiple of 4.
#[inline(always)]
fn write_key_factors<T: Float>(drop: Drop<T>, first: usize, factors: &mut [Lanes<T>]) {
    for (i, row) in factors.iter_mut().enumerate() {
        for (quad, part) in row.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *part = drop.factors(i, first / 4 + quad);
        }
    }
}

/// Gradients of the queries `first..first + LANES`, before scaling.
#[inline(always)]
fn query_block<T: Float, const D: usize, const DROP: bool>(
    head: &Head<T>,
    keys: &Keys<T, D>,
    queries: &Queries<T, D>,
    first: usize,
    factors: &[Lanes<T>],
) -> [Lanes<T>; D] {
    let block = QueryBlock {
        q: turn(queries.queries, first),
        dout: turn(queries.douts, first),
        // Missing queries subtract +∞: their weights are 0.
        lse: load(queries.lse, first, -T::NEG_INFINITY),
        delta: load(queries.delta, first, T::ZERO),
        limits: limits(head, first),
    };
    let full = head.visible_end(first);
    let end = head.visible_end((first + LANES).min(head.q_len) - 1);
    let mut dq = [[T::ZERO; LANES]; D];
    block.sweep::<DROP, false>(keys, 0..full, factors, &mut dq);
    block.sweep::<DROP, true>(keys, full..end, factors, &mut dq);
    dq
}

struct QueryBlock<T, const D: usize> {
    q: [Lanes<T>; D],
    dout: [Lanes<T>; D],
    lse: Lanes<T>,
    delta: Lanes<T>,
    limits: [u32; LANES],
}

impl<T: Float, const D: usize> QueryBlock<T, D> {
    /// Adds what the keys in `range` give; on the diagonal, not every query sees every key.
    #[inline(always)]
    fn sweep<const DROP: bool, const DIAGONAL: bool>(
        &self,
        keys: &Keys<T, D>,
        range: Range<usize>,
        factors: &[Lanes<T>],
        total: &mut [Lanes<T>; D],
    ) {
        // In locals, rows of keys as well: a load that might see a store of the loop would keep it from becoming vectors.
        let (q, dout, lse, delta, limits, mut dq) = (self.q, self.dout, self.lse, self.delta, self.limits, *total);
        for j in range {
            let (key, value, bias) = (keys.keys[j], keys.values[j], keys.bias[j]);
            let factor = if DROP { factors[j] } else { [T::ONE; LANES] };
            for l in 0..LANES {
                let weight = (dot(&q, l, &key, bias) - lse[l]).exp();
                let weight = if !DIAGONAL || (j as u32) < limits[l] { weight } else { T::ZERO };
                let dweight = dot(&dout, l, &value, T::ZERO);
                let dweight = if DROP { dweight * factor[l] } else { dweight };
                let dscore = weight * (dweight - delta[l]);
                for d in 0..D {
                    dq[d][l] = dscore.mul_add(key[d], dq[d][l]);
                }
            }
        }
        *total = dq;
    }
}

/// Gradients of the keys and of the values `first..first + LANES`.
#[inline(always)]
fn key_block<T: Float, const D: usize, const DROP: bool>(
    head: &Head<T>,
    keys: &Keys<T, D>,
    queries: &Queries<T, D>,
    first: usize,
    factors: &[Lanes<T>],
) -> [[Lanes<T>; D]; 2] {
    let block = KeyBlock {
        key: turn(keys.keys, first),
        value: turn(keys.values, first),
        // Missing keys have a bias of −∞: their weights are 0.
        bias: load(&keys.bias[..head.k_len], first, T::NEG_INFINITY),
        position: std::array::from_fn(|l| (first + l) as u32),
    };
    let start = head.first_query(first);
    let full = head.first_query(first + LANES - 1);
    let mut totals = [[[T::ZERO; LANES]; D]; 2];
    block.sweep::<DROP, true>(head, queries, start..full, factors, &mut totals);
    block.sweep::<DROP, false>(head, queries, full..head.q_len, factors, &mut totals);
    totals
}

struct KeyBlock<T, const D: usize> {
    key: [Lanes<T>; D],
    value: [Lanes<T>; D],
    bias: Lanes<T>,
    position: [u32; LANES],
}

impl<T: Float, const D: usize> KeyBlock<T, D> {
    /// Adds what the queries in `range` give; on the diagonal, not every query sees every key.
    #[inline(always)]
    fn sweep<const DROP: bool, const DIAGONAL: bool>(
        &self,
        head: &Head<T>,
        queries: &Queries<T, D>,
        range: Range<usize>,
        factors: &[Lanes<T>],
        totals: &mut [[Lanes<T>; D]; 2],
    ) {
        // In locals, as above.
        let (key, value, bias, position) = (self.key, self.value, self.bias, self.position);
        let [mut dk, mut dv] = *totals;
        for i in range {
            let (q, dout) = (queries.queries[i], queries.douts[i]);
            let (lse, delta, limit) = (queries.lse[i], queries.delta[i], head.visible_end(i) as u32);
            let factor = if DROP { factors[i] } else { [T::ONE; LANES] };
            for l in 0..LANES {
                let weight = (dot(&key, l, &q, bias[l]) - lse).exp();
                let weight = if !DIAGONAL || position[l] < limit { weight } else { T::ZERO };
                let dweight = dot(&value, l, &dout, T::ZERO);
                let dweight = if DROP { dweight * factor[l] } else { dweight };
                let dscore = weight * (dweight - delta);
                let weight = if DROP { weight * factor[l] } else { weight };
                for d in 0..D {
                    dk[d][l] = dscore.mul_add(q[d], dk[d][l]);
                    dv[d][l] = weight.mul_add(dout[d], dv[d][l]);
                }
            }
        }
        *totals = [dk, dv];
    }
}
