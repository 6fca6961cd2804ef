//! The backward pass of wide heads.

use super::super::super::super::float::Float;
use super::super::super::super::gemm::Dims;
use super::super::super::super::simd::simd;
use super::super::STRIP;
use super::super::head::{Head, HeadGradients};
use super::super::lanes::take;
use super::{columns, product, row_len, rows, write_factors};

/// Per strip of queries: recomputes the weights, forms the gradients of the scores, writes the gradients of the
/// queries and adds to those of keys and values, strip after strip.
pub(in super::super) unsafe fn backward<T: Float>(head: &Head<T>, gradients: &HeadGradients<T>, mut scratch: &mut [T]) {
    let (keys, dim) = (head.k_len, head.dim);
    let weights = take(&mut scratch, STRIP * keys);
    let dscores = take(&mut scratch, STRIP * keys);
    let dq = take(&mut scratch, STRIP * dim);
    let dk = take(&mut scratch, keys * dim);
    let dv = take(&mut scratch, keys * dim);
    let bias = take(&mut scratch, row_len(keys));
    let factors = take(&mut scratch, row_len(keys));
    unsafe { head.write_bias(bias) };
    dk.fill(T::ZERO);
    dv.fill(T::ZERO);
    for first in (0..head.q_len).step_by(STRIP) {
        let strip = first..(first + STRIP).min(head.q_len);
        let (count, end) = (strip.len(), head.visible_end(strip.end - 1));
        unsafe {
            let dims = Dims { m: count, n: end, k: dim };
            let (q, dout) = (head.q.matrix(first, false), gradients.dout.matrix(first, false));
            product(dims, q, head.k.matrix(0, true), (weights, keys), head.scale, false, scratch);
            product(dims, dout, head.v.matrix(0, true), (dscores, keys), T::ONE, false, scratch);
            for (r, i) in strip.clone().enumerate() {
                write_factors(head.drop, i, factors);
                let (lse, delta) = (head.saved_lse(i), head.out.dot_rows(&gradients.dout, i));
                let row = r * keys..r * keys + end;
                let (weights, dscores) = (&mut weights[row.clone()], &mut dscores[row]);
                softmax_gradient(weights, dscores, bias, factors, head.visible_end(i), lse, delta);
            }
            let dims = Dims { m: count, n: dim, k: end };
            product(dims, rows(dscores, keys), head.k.matrix(0, false), (dq, dim), head.scale, false, scratch);
            for (r, i) in strip.enumerate() {
                gradients.dq.write(i, T::ONE, &dq[r * dim..][..dim]);
            }
            let dims = Dims { m: end, n: dim, k: count };
            product(dims, columns(dscores, keys), q, (dk, dim), head.scale, true, scratch);
            product(dims, columns(weights, keys), dout, (dv, dim), T::ONE, true, scratch);
        }
    }
    for j in 0..keys {
        unsafe {
            gradients.dk.write(j, T::ONE, &dk[j * dim..][..dim]);
            gradients.dv.write(j, T::ONE, &dv[j * dim..][..dim]);
        }
    }
}

/// From scores and gradients of the dropped weights to dropped weights and gradients of the scores, in place, before
/// `end`; zeros after.
fn softmax_gradient<T: Float>(
    scores: &mut [T],
    dweights: &mut [T],
    bias: &[T],
    factors: &[T],
    end: usize,
    lse: T,
    delta: T,
) {
    scores[end..].fill(T::ZERO);
    dweights[end..].fill(T::ZERO);
    let (scores, dweights) = (&mut scores[..end], &mut dweights[..end]);
    simd(
        #[inline(always)]
        || {
            for (((score, dweight), bias), factor) in scores.iter_mut().zip(dweights).zip(bias).zip(factors) {
                let weight = (*score + *bias - lse).exp();
                *score = weight * *factor;
                *dweight = weight * (*dweight * *factor - delta);
            }
        },
    );
}
