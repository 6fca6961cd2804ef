//! What the positions of keys and queries add to the scores of a disentangled bias, and its gradients.
//!
//! Products of all keys and of a strip's queries with the rows of the tables that are in use; a score then picks the
//! one of its distance.

use std::ops::Range;

use super::super::head::{BiasGradients, Head, HeadBias, HeadGradients, Rows};
use super::super::lanes::take;
use super::super::{AttentionShape, Bias, STRIP};
use super::{columns, product, rows};
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::gemm::{Dims, serial_scratch_up_to};

/// Rows of products lie this much further apart than they are wide, or the same column of many rows would fall into
/// the same few places of the cache.
const GAP: usize = 16;

pub(super) fn forward_scratch(shape: AttentionShape) -> usize {
    match shape.bias {
        Bias::Disentangled { .. } => (shape.k_len + STRIP) * (shape.span().1 + GAP),
        _ => 0,
    }
}

pub(super) fn backward_scratch(shape: AttentionShape) -> usize {
    match shape.bias {
        Bias::Disentangled { .. } => shape.k_len * (shape.span().1 + GAP),
        _ => 0,
    }
}

pub(super) fn product_scratch(shape: AttentionShape) -> usize {
    let Bias::Disentangled { .. } = shape.bias else { return 0 };
    let (n, k, width) = (shape.k_len.max(STRIP), shape.head_dim, shape.span().1);
    let products = [Dims { m: n, n: width, k }, Dims { m: n, n: k, k: width }, Dims { m: width, n: k, k: n }];
    products.map(serial_scratch_up_to).into_iter().max().unwrap_or(0)
}

pub(super) struct Positions<'a, T> {
    /// The row of each distance.
    rows: *const u32,
    first_row: usize,
    width: usize,
    stride: usize,
    key: Rows<T>,
    query: Rows<T>,
    /// (keys, stride): `scale · k · pos_query`.
    by_key: &'a mut [T],
    /// (STRIP, stride): `scale · q · pos_key`; in the backward pass then its gradient.
    by_query: &'a mut [T],
}

impl<'a, T: Float> Positions<'a, T> {
    /// Takes its space off the front of `scratch` and the products of the keys before `end`.
    ///
    /// # Safety
    /// The views of `head` and the tables of its bias are valid, and `end` is at most `k_len`.
    pub(super) unsafe fn new(head: &Head<T>, end: usize, scratch: &mut &'a mut [T]) -> Option<Self> {
        let HeadBias::Disentangled { rows, first_row, width, key, query } = head.bias else { return None };
        let stride = width + GAP;
        let by_key = take(scratch, head.k_len * stride);
        let by_query = take(scratch, STRIP * stride);
        let dims = Dims { m: end, n: width, k: head.dim };
        // SAFETY: keys before `end` lie in the head and rows `first_row..first_row + width` in the table; `by_key`
        // holds the result.
        unsafe {
            let (k, table) = (head.k.matrix(0, false), query.matrix(first_row, true));
            product(dims, k, table, (by_key.as_mut_ptr(), stride), head.scale, false, scratch);
        }
        Some(Positions { rows, first_row, width, stride, key, query, by_key, by_query })
    }

    /// As much as the gradient of the keys' products takes.
    pub(super) fn by_key_len(&self) -> usize {
        self.by_key.len()
    }

    /// The columns of the products that query `i` takes for its keys, one after the other.
    ///
    /// # Safety
    /// The head has a query `i`, and `end` is at most `k_len`.
    #[inline(always)]
    unsafe fn columns(&self, head: &Head<T>, i: usize, end: usize) -> impl Iterator<Item = usize> + use<'_, 'a, T> {
        // SAFETY: `rows` holds a row for every distance: from query `i`'s first on there are at least `k_len`, and
        // `end` is no more.
        let rows = unsafe { std::slice::from_raw_parts(self.rows.add(head.first_distance(i)), end) };
        rows.iter().map(|&row| row as usize - self.first_row)
    }

    /// Adds to the scores of a strip on the keys before `end`.
    ///
    /// # Safety
    /// The strip lies in the head and is no longer than STRIP; `end` is at most `k_len`.
    pub(super) unsafe fn add(
        &mut self,
        head: &Head<T>,
        strip: Range<usize>,
        end: usize,
        scores: &mut [T],
        scratch: &mut [T],
    ) {
        let dims = Dims { m: strip.len(), n: self.width, k: head.dim };
        // SAFETY: the strip lies in the head and the rows in use in the table; `by_query` holds STRIP rows.
        unsafe {
            let (q, table) = (head.q.matrix(strip.start, false), self.key.matrix(self.first_row, true));
            product(dims, q, table, (self.by_query.as_mut_ptr(), self.stride), head.scale, false, scratch);
        }
        for (r, i) in strip.enumerate() {
            let own = &self.by_query[r * self.stride..][..self.stride];
            let row = &mut scores[r * head.k_len..][..end];
            // SAFETY: the query lies in the head, and `end` is at most `k_len`.
            let columns = unsafe { self.columns(head, i, end) };
            for ((score, column), theirs) in row.iter_mut().zip(columns).zip(self.by_key.chunks_exact(self.stride)) {
                *score += own[column] + theirs[column];
            }
        }
    }

    /// From the gradients of a strip's scores: adds to the gradients of its queries and of `pos_key`, and to
    /// `dby_key`.
    ///
    /// # Safety
    /// As `add`; `dq` has a row for each query of the strip, and nobody else touches it or the gradients of this
    /// head.
    #[allow(clippy::too_many_arguments)] // the operands of the operation
    pub(super) unsafe fn backward(
        &mut self,
        head: &Head<T>,
        gradients: &HeadGradients<T>,
        strip: Range<usize>,
        end: usize,
        dscores: &[T],
        dq: (*mut T, usize),
        dby_key: &mut [T],
        scratch: &mut [T],
    ) {
        let BiasGradients::Disentangled { key: dkey, row_stride, .. } = gradients.bias else { return };
        self.by_query.fill(T::ZERO);
        for (r, i) in strip.clone().enumerate() {
            let mut own = std::mem::take(&mut self.by_query);
            let line = &mut own[r * self.stride..][..self.stride];
            // SAFETY: the query lies in the head, and `end` is at most `k_len`.
            let columns = unsafe { self.columns(head, i, end) };
            let row = &dscores[r * head.k_len..][..end];
            for ((dscore, column), theirs) in row.iter().zip(columns).zip(dby_key.chunks_exact_mut(self.stride)) {
                line[column] += *dscore;
                theirs[column] += *dscore;
            }
            self.by_query = std::mem::take(&mut own);
        }
        let dims = Dims { m: strip.len(), n: head.dim, k: self.width };
        // SAFETY: `dq` and `dkey` are this head's own, the latter from its first row in use on, `row_stride` apart.
        unsafe {
            let (d, table) = (rows(self.by_query, self.stride), self.key.matrix(self.first_row, false));
            product(dims, d, table, dq, head.scale, true, scratch);
            let dims = Dims { m: self.width, n: head.dim, k: strip.len() };
            let (d, q) = (columns(self.by_query, self.stride), head.q.matrix(strip.start, false));
            product(dims, d, q, (dkey, row_stride), head.scale, true, scratch);
        }
    }

    /// When all strips are through: adds to the gradients of the keys before `end` and of `pos_query`.
    ///
    /// # Safety
    /// As `backward`; `dk` has a row for each key before `end`.
    pub(super) unsafe fn finish(
        &self,
        head: &Head<T>,
        gradients: &HeadGradients<T>,
        end: usize,
        dk: (*mut T, usize),
        dby_key: &[T],
        scratch: &mut [T],
    ) {
        let BiasGradients::Disentangled { query: dquery, row_stride, .. } = gradients.bias else { return };
        // SAFETY: `dk` and `dquery` are this head's own, the latter from its first row in use on, `row_stride` apart.
        unsafe {
            let dims = Dims { m: end, n: head.dim, k: self.width };
            let (d, table) = (rows(dby_key, self.stride), self.query.matrix(self.first_row, false));
            product(dims, d, table, dk, head.scale, true, scratch);
            let dims = Dims { m: self.width, n: head.dim, k: end };
            let (d, k) = (columns(dby_key, self.stride), head.k.matrix(0, false));
            product(dims, d, k, (dquery, row_stride), head.scale, true, scratch);
        }
    }
}
