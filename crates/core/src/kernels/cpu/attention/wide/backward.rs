//! The backward pass of wide heads.

use std::ops::Range;

use super::super::head::{BiasGradients, Head, HeadGradients};
use super::super::lanes::take;
use super::super::{AttentionShape, Bias, STRIP};
use super::disentangled::{self, Positions};
use super::{add_relative, columns, product, product_scratch, put, row_len, rows, target, write_factors};
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::gemm::Dims;
use crate::kernels::cpu::rows::add;
use plimsoll_base::simd::simd;

/// Scores and their gradients, query gradients of a strip, gradients of keys and values, mask and factors of a row,
/// what a bias keeps, and what a product wants.
pub(in super::super) fn backward_scratch(shape: AttentionShape) -> usize {
    let (keys, dim) = (shape.k_len, shape.head_dim);
    let own = STRIP * (2 * keys + dim) + 2 * keys * dim + 2 * row_len(keys);
    let bias = match shape.bias {
        Bias::None => 0,
        Bias::Relative { .. } => shape.distances(),
        Bias::Disentangled { .. } => disentangled::forward_scratch(shape) + disentangled::backward_scratch(shape),
    };
    own + bias + product_scratch(shape)
}

/// Per strip of queries: recomputes the weights, forms the gradients of the scores, writes the gradients of the
/// queries and adds to those of keys, values and bias, strip after strip.
///
/// # Safety
/// The views of `head` and `gradients` are valid, and nobody else touches the gradients of this head.
pub(in super::super) unsafe fn backward<T: Float>(head: &Head<T>, gradients: &HeadGradients<T>, mut scratch: &mut [T]) {
    let (keys, dim) = (head.k_len, head.dim);
    let weights = take(&mut scratch, STRIP * keys);
    let dscores = take(&mut scratch, STRIP * keys);
    let dq = take(&mut scratch, STRIP * dim);
    let dk = take(&mut scratch, keys * dim);
    let dv = take(&mut scratch, keys * dim);
    let mask = take(&mut scratch, row_len(keys));
    let factors = take(&mut scratch, row_len(keys));
    // SAFETY: the mask is as long as the head says.
    let seen = unsafe { head.seen_keys() };
    let by_distance = match gradients.bias {
        BiasGradients::Relative { .. } => take(&mut scratch, (head.q_len + keys).saturating_sub(1)),
        _ => &mut [],
    };
    // SAFETY: the tables of the bias are as the job promises; `seen` is at most `k_len`.
    let mut positions = unsafe { Positions::new(head, seen, &mut scratch) };
    let dby_key = take(&mut scratch, positions.as_ref().map_or(0, |p| p.by_key_len()));
    // SAFETY: the same mask.
    unsafe { head.write_mask(mask) };
    for sums in [&mut *dk, &mut *dv, &mut *by_distance, &mut *dby_key] {
        sums.fill(T::ZERO);
    }
    for first in (0..head.q_len).step_by(STRIP) {
        let strip = first..(first + STRIP).min(head.q_len);
        let (count, end) = (strip.len(), head.visible_end(strip.end - 1).min(seen));
        // SAFETY: strips lie in the head and `end` is at most `k_len`; what is written is scratch or gradients of
        // this head alone.
        unsafe {
            let dims = Dims { m: count, n: end, k: dim };
            let (q, dout) = (head.q.matrix(first, false), gradients.dout.matrix(first, false));
            product(dims, q, head.k.matrix(0, true), (weights.as_mut_ptr(), keys), head.scale, false, scratch);
            product(dims, dout, head.v.matrix(0, true), (dscores.as_mut_ptr(), keys), T::ONE, false, scratch);
            if let Some(positions) = &mut positions {
                positions.add(head, strip.clone(), end, weights, scratch);
            }
            let space = Strip { weights, dscores, mask, factors, by_distance };
            softmax_gradient(head, gradients, strip.clone(), end, space);
            let dims = Dims { m: count, n: dim, k: end };
            let to = target(&gradients.dq, first, dq, dim);
            product(dims, rows(dscores, keys), head.k.matrix(0, false), to, head.scale, false, scratch);
            if let Some(positions) = &mut positions {
                positions.backward(head, gradients, strip.clone(), end, dscores, to, dby_key, scratch);
            }
            put(&gradients.dq, strip, dq, dim);
            let dims = Dims { m: end, n: dim, k: count };
            product(dims, columns(dscores, keys), q, (dk.as_mut_ptr(), dim), head.scale, true, scratch);
            product(dims, columns(weights, keys), dout, (dv.as_mut_ptr(), dim), T::ONE, true, scratch);
        }
    }
    // SAFETY: the keys lie in the head, whose gradients this task alone writes; `dk` and `dv` hold a row for each.
    unsafe {
        if let Some(positions) = &positions {
            positions.finish(head, gradients, seen, (dk.as_mut_ptr(), dim), dby_key, scratch);
        }
        for j in 0..keys {
            gradients.dk.write(j, T::ONE, &dk[j * dim..][..dim]);
            gradients.dv.write(j, T::ONE, &dv[j * dim..][..dim]);
        }
        sum_by_row(gradients.bias, by_distance);
    }
}

/// Adds what was summed by distance into the rows of a relative bias's table.
///
/// # Safety
/// The partial sums are this pair's own, and `by_distance` has at most a value per distance.
unsafe fn sum_by_row<T: Float>(bias: BiasGradients<T>, by_distance: &[T]) {
    let BiasGradients::Relative { rows, sums, count } = bias else { return };
    // SAFETY: `sums` are the `count` partial sums of this pair.
    let sums = unsafe { std::slice::from_raw_parts_mut(sums, count) };
    sums.fill(T::ZERO);
    for (n, sum) in by_distance.iter().enumerate() {
        // SAFETY: `rows` holds a row for each distance, of which `by_distance` has no more.
        sums[unsafe { *rows.add(n) } as usize] += *sum;
    }
}

/// What a strip works on.
struct Strip<'a, T> {
    weights: &'a mut [T],
    dscores: &'a mut [T],
    mask: &'a [T],
    factors: &'a mut [T],
    by_distance: &'a mut [T],
}

/// From scores and gradients of the dropped weights to dropped weights and gradients of the scores, in place, on the
/// keys before `end`.
///
/// # Safety
/// The strip lies in the head, and the forward pass has written `lse` and `out`.
unsafe fn softmax_gradient<T: Float>(
    head: &Head<T>,
    gradients: &HeadGradients<T>,
    strip: Range<usize>,
    end: usize,
    space: Strip<'_, T>,
) {
    simd(
        #[inline(always)]
        || {
            for (r, i) in strip.enumerate() {
                let (seen, start) = (head.visible_end(i).min(end), r * head.k_len);
                let (weights, hidden) = space.weights[start..][..end].split_at_mut(seen);
                hidden.fill(T::ZERO);
                let (dscores, hidden) = space.dscores[start..][..end].split_at_mut(seen);
                hidden.fill(T::ZERO);
                // SAFETY: the query lies in the head.
                let [lse, delta] = unsafe {
                    add_relative(head, i, weights);
                    [head.saved_lse(i), head.out.dot_rows(&gradients.dout, i)]
                };
                if let Some(drop) = head.drop {
                    write_factors(drop, i, &mut space.factors[..row_len(seen)]);
                    dropped_row(weights, dscores, space.mask, space.factors, lse, delta);
                } else {
                    plain_row(weights, dscores, space.mask, lse, delta);
                }
                if !space.by_distance.is_empty() {
                    add(&mut space.by_distance[head.first_distance(i)..][..seen], dscores);
                }
            }
        },
    );
}

#[inline(always)]
fn plain_row<T: Float>(weights: &mut [T], dscores: &mut [T], mask: &[T], lse: T, delta: T) {
    for ((weight, dscore), mask) in weights.iter_mut().zip(dscores).zip(mask) {
        *weight = (*weight + *mask - lse).exp();
        *dscore = *weight * (*dscore - delta);
    }
}

#[inline(always)]
fn dropped_row<T: Float>(weights: &mut [T], dscores: &mut [T], mask: &[T], factors: &[T], lse: T, delta: T) {
    for (((weight, dscore), mask), factor) in weights.iter_mut().zip(dscores).zip(mask).zip(factors) {
        let whole = (*weight + *mask - lse).exp();
        *weight = whole * *factor;
        *dscore = whole * (*dscore * *factor - delta);
    }
}
