//! The backward pass of wide heads.

use std::ops::Range;

use super::super::super::super::float::Float;
use super::super::STRIP;
use super::super::head::{Head, HeadGradients};
use super::super::lanes::take;
use super::super::tile::{Matrix, WIDTH, product};
use super::{GROUP, against_keys, matrix, over_keys, pack_panels, pack_rows, round_up, row_of, write_factors};

/// Per strip of queries: recomputes the weights, forms the gradients of the scores, writes the gradients of the
/// queries and adds to those of keys and values, strip after strip.
#[inline(always)]
pub(in super::super) unsafe fn backward<T: Float>(head: &Head<T>, gradients: &HeadGradients<T>, mut scratch: &mut [T]) {
    let (keys, dim) = (round_up(head.k_len), round_up(head.dim));
    let key_panels = matrix(&mut scratch, keys / WIDTH * head.dim, WIDTH);
    let value_panels = matrix(&mut scratch, keys / WIDTH * head.dim, WIDTH);
    let key_rows = matrix(&mut scratch, head.k_len, dim);
    let dk = matrix(&mut scratch, head.k_len, dim);
    let dv = matrix(&mut scratch, head.k_len, dim);
    let bias = take(&mut scratch, keys);
    let factors = take(&mut scratch, keys);
    let q = matrix(&mut scratch, STRIP, dim);
    let dout = matrix(&mut scratch, STRIP, dim);
    let dq = matrix(&mut scratch, STRIP, dim);
    let weights = matrix(&mut scratch, STRIP, keys);
    let dscores = matrix(&mut scratch, STRIP, keys);
    let zeros = take(&mut scratch, keys.max(WIDTH));
    zeros.fill(T::ZERO);
    unsafe {
        pack_panels(&head.k, head.k_len, head.dim, key_panels);
        pack_panels(&head.v, head.k_len, head.dim, value_panels);
        pack_rows(&head.k, 0..head.k_len, T::ONE, key_rows);
        head.write_bias(bias);
        std::slice::from_raw_parts_mut(dk.ptr, head.k_len * dim).fill(T::ZERO);
        std::slice::from_raw_parts_mut(dv.ptr, head.k_len * dim).fill(T::ZERO);
    }
    let bias = Matrix { ptr: bias.as_mut_ptr(), row: 0 };
    let zeros = Matrix { ptr: zeros.as_mut_ptr(), row: 0 };
    for first in (0..head.q_len).step_by(STRIP) {
        let strip = first..(first + STRIP).min(head.q_len);
        let width = round_up(head.visible_end(strip.end - 1));
        unsafe {
            pack_rows(&head.q, strip.clone(), head.scale, q);
            pack_rows(&gradients.dout, strip.clone(), T::ONE, dout);
            against_keys(head, &strip, q, key_panels, bias, weights);
            against_keys(head, &strip, dout, value_panels, zeros, dscores);
            for (r, i) in strip.clone().enumerate() {
                let (lse, delta) = (head.saved_lse(i), head.out.dot(i, row_of(dout, r, dim)));
                if let Some(drop) = head.drop {
                    write_factors(drop, i, &mut factors[..width]);
                } else {
                    factors[..width].fill(T::ONE);
                }
                let (weights, dscores) = (row_of(weights, r, width), row_of(dscores, r, width));
                softmax_gradient(weights, dscores, factors, head.visible_end(i), lse, delta);
            }
            over_keys(head, &strip, dscores, key_rows, zeros, dq);
            for (r, i) in strip.clone().enumerate() {
                gradients.dq.write(i, head.scale, row_of(dq, r, dim));
            }
            add_to_keys(head, &strip, dscores, q, dk);
            add_to_keys(head, &strip, weights, dout, dv);
        }
    }
    for j in 0..head.k_len {
        unsafe {
            gradients.dk.write(j, T::ONE, row_of(dk, j, dim));
            gradients.dv.write(j, T::ONE, row_of(dv, j, dim));
        }
    }
}

/// From scores and gradients of the dropped weights to dropped weights and gradients of the scores, in place, before
/// `end`; zeros after.
#[inline(always)]
fn softmax_gradient<T: Float>(scores: &mut [T], dweights: &mut [T], factors: &[T], end: usize, lse: T, delta: T) {
    let reached = end.next_multiple_of(WIDTH);
    let chunks = scores[..reached].as_chunks_mut::<WIDTH>().0.iter_mut();
    let others = dweights[..reached].as_chunks_mut::<WIDTH>().0.iter_mut().zip(factors.as_chunks::<WIDTH>().0);
    for (chunk, (dchunk, factor)) in chunks.zip(others) {
        for l in 0..WIDTH {
            let weight = (chunk[l] - lse).exp();
            chunk[l] = weight * factor[l];
            dchunk[l] = weight * (dchunk[l] * factor[l] - delta);
        }
    }
    scores[end..].fill(T::ZERO);
    dweights[end..].fill(T::ZERO);
}

/// C (keys × dim) += Aᵀ · rows, where A's rows are the strip's queries and its columns keys; a group of keys starts at
/// the first query that sees it.
#[inline(always)]
unsafe fn add_to_keys<T: Float>(head: &Head<T>, strip: &Range<usize>, a: Matrix<T>, rows: Matrix<T>, c: Matrix<T>) {
    let end = head.visible_end(strip.end - 1);
    for column in (0..head.dim).step_by(WIDTH) {
        for key in (0..end).step_by(GROUP) {
            let count = GROUP.min(end - key);
            let skip = head.first_query(key).saturating_sub(strip.start);
            unsafe {
                let c = c.at(key, column);
                product(count, strip.len() - skip, a.at(skip, key).transposed(), rows.at(skip, column), c, c);
            }
        }
    }
}
