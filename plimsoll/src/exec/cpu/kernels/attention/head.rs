//! One (batch, head) pair: its rows, what is visible in it, and the dropout factors of its weights.

use super::super::super::float::Float;
use super::super::super::gemm::Matrix;
use super::super::super::random::{Stream, drop_threshold};
use super::{Gradients, Job, LIMIT, View, ViewMut};

/// The (time, dim) matrix of one head inside a view.
#[derive(Clone, Copy)]
pub(super) struct Rows<T> {
    ptr: *mut T,
    time: usize,
    dim: usize,
    width: usize,
}

impl<T: Float> Rows<T> {
    #[inline(always)]
    unsafe fn of(view: ViewMut<T>, width: usize, batch: usize, head: usize) -> Self {
        let [by_batch, time, by_head, dim] = view.strides;
        Rows { ptr: unsafe { view.ptr.add(batch * by_batch + head * by_head) }, time, dim, width }
    }

    /// Copies row `i` times `factor` into the front of `to` and zeroes the rest.
    #[inline(always)]
    pub unsafe fn read(&self, i: usize, factor: T, to: &mut [T]) {
        let row = unsafe { self.ptr.add(i * self.time) };
        let (head, rest) = to.split_at_mut(self.width);
        if self.dim == 1 {
            let from = unsafe { std::slice::from_raw_parts(row, self.width) };
            head.iter_mut().zip(from).for_each(|(to, from)| *to = *from * factor);
        } else {
            head.iter_mut().enumerate().for_each(|(d, to)| *to = unsafe { *row.add(d * self.dim) } * factor);
        }
        rest.fill(T::ZERO);
    }

    /// Rows from `first` on as the operand of a product; transposed, its columns are the rows.
    pub unsafe fn matrix(&self, first: usize, transposed: bool) -> Matrix<T> {
        let ptr = unsafe { self.ptr.add(first * self.time) };
        match transposed {
            false => Matrix { ptr, row_stride: self.time, col_stride: self.dim },
            true => Matrix { ptr, row_stride: self.dim, col_stride: self.time },
        }
    }

    /// Element `d` of row `i`.
    #[inline(always)]
    pub unsafe fn get(&self, i: usize, d: usize) -> T {
        unsafe { *self.ptr.add(i * self.time + d * self.dim) }
    }

    /// Writes the front of `from` times `factor` into row `i`.
    #[inline(always)]
    pub unsafe fn write(&self, i: usize, factor: T, from: &[T]) {
        let row = unsafe { self.ptr.add(i * self.time) };
        if self.dim == 1 {
            let to = unsafe { std::slice::from_raw_parts_mut(row, self.width) };
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from * factor);
        } else {
            from[..self.width].iter().enumerate().for_each(|(d, x)| unsafe { *row.add(d * self.dim) = *x * factor });
        }
    }

    /// Σ over d of row `i` times row `i` of `other`.
    pub unsafe fn dot_rows(&self, other: &Rows<T>, i: usize) -> T {
        // Not fused: outside a vector region a fused multiply-add is a library call.
        (0..self.width).fold(T::ZERO, |sum, d| unsafe { sum + self.get(i, d) * other.get(i, d) })
    }

    /// Σ over d of row `i` times `other`.
    #[inline(always)]
    pub unsafe fn dot(&self, i: usize, other: &[T]) -> T {
        (0..self.width).fold(T::ZERO, |sum, d| unsafe { self.get(i, d) }.mul_add(other[d], sum))
    }
}

/// One head's part of the operands.
pub(super) struct Head<T> {
    pub q_len: usize,
    pub k_len: usize,
    pub dim: usize,
    pub scale: T,
    pub causal: bool,
    pub key_mask: Option<*const i32>,
    pub drop: Option<Drop<T>>,
    pub q: Rows<T>,
    pub k: Rows<T>,
    pub v: Rows<T>,
    pub out: Rows<T>,
    /// (q_len): log of the sum of exponentials.
    pub lse: *mut T,
}

pub(super) struct HeadGradients<T> {
    pub dout: Rows<T>,
    pub dq: Rows<T>,
    pub dk: Rows<T>,
    pub dv: Rows<T>,
}

impl<T: Float> Head<T> {
    #[inline(always)]
    pub unsafe fn new(job: &Job<T>, pair: usize) -> Self {
        let (shape, options) = (job.shape, job.options);
        let (batch, head) = (pair / shape.heads, pair % shape.heads);
        let rows = |view| unsafe { Rows::of(view, shape.head_dim, batch, head) };
        Head {
            q_len: shape.q_len,
            k_len: shape.k_len,
            dim: shape.head_dim,
            scale: options.scale,
            causal: options.causal,
            key_mask: options.key_mask.map(|mask| unsafe { mask.add(batch * shape.k_len) }),
            drop: options.dropout.map(|dropout| {
                debug_assert!(shape.q_len <= LIMIT && shape.heads <= LIMIT);
                Drop {
                    stream: dropout.stream,
                    sample: dropout.first_sample.wrapping_add(batch as u32),
                    first_row: (head as u32) << 16,
                    threshold: drop_threshold(dropout.p),
                    keep: T::of(1.0 / (1.0 - dropout.p as f64)),
                }
            }),
            q: rows(read_only(job.q)),
            k: rows(read_only(job.k)),
            v: rows(read_only(job.v)),
            out: rows(job.out),
            lse: unsafe { job.lse.add(pair * shape.q_len) },
        }
    }

    #[inline(always)]
    pub unsafe fn gradients(&self, all: &Gradients<T>, pair: usize, heads: usize) -> HeadGradients<T> {
        let rows = |view| unsafe { Rows::of(view, self.dim, pair / heads, pair % heads) };
        HeadGradients { dout: rows(read_only(all.dout)), dq: rows(all.dq), dk: rows(all.dk), dv: rows(all.dv) }
    }

    /// Query `i` sees the keys before this one (unless the key mask hides them).
    #[inline(always)]
    pub fn visible_end(&self, i: usize) -> usize {
        if self.causal { (i + 1 + self.k_len).saturating_sub(self.q_len).min(self.k_len) } else { self.k_len }
    }

    /// The first query that sees key `j`.
    #[inline(always)]
    pub fn first_query(&self, j: usize) -> usize {
        if self.causal { (j + self.q_len).saturating_sub(self.k_len).min(self.q_len) } else { 0 }
    }

    /// What is added to the scores of each key: 0, or −∞ where the key mask hides it or past the last key.
    #[inline(always)]
    pub unsafe fn write_bias(&self, bias: &mut [T]) {
        let (keys, rest) = bias.split_at_mut(self.k_len);
        keys.fill(T::ZERO);
        if let Some(mask) = self.key_mask {
            for (j, bias) in keys.iter_mut().enumerate() {
                *bias = if unsafe { *mask.add(j) } == 0 { T::NEG_INFINITY } else { T::ZERO };
            }
        }
        rest.fill(T::NEG_INFINITY);
    }

    /// The log-sum-exp to subtract in the backward pass. A row that saw nothing gets +∞, so its weights become 0.
    #[inline(always)]
    pub unsafe fn saved_lse(&self, i: usize) -> T {
        let lse = unsafe { *self.lse.add(i) };
        if lse == T::NEG_INFINITY { -T::NEG_INFINITY } else { lse }
    }
}

#[inline(always)]
fn read_only<T>(view: View<T>) -> ViewMut<T> {
    ViewMut { ptr: view.ptr.cast_mut(), strides: view.strides }
}

/// Dropout inside one head.
#[derive(Clone, Copy)]
pub(super) struct Drop<T> {
    stream: Stream,
    sample: u32,
    first_row: u32,
    threshold: u32,
    keep: T,
}

impl<T: Float> Drop<T> {
    /// What the weights of query `i` on keys `4 · quad .. 4 · quad + 4` are multiplied by: 0 or 1 / (1 − p).
    #[inline(always)]
    pub fn factors(&self, i: usize, quad: usize) -> [T; 4] {
        let words = self.stream.quad(self.sample, self.first_row + i as u32, quad as u32);
        words.map(|word| if word < self.threshold { T::ZERO } else { self.keep })
    }
}
