//! One (batch, head) pair: its rows, what is visible in it, its bias, and the dropout factors of its weights.

use super::{Bias, Gradients, Job, LIMIT, View, ViewMut};
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::gemm::Matrix;
use crate::kernels::cpu::rows::sum2;
use plimsoll_base::random::{Stream, drop_threshold};

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

    /// Where row `i` starts, and how far apart rows are, if a product can write there.
    pub unsafe fn target(&self, i: usize) -> Option<(*mut T, usize)> {
        (self.dim == 1).then(|| (unsafe { self.ptr.add(i * self.time) }, self.time))
    }

    /// Element `d` of row `i`.
    #[inline(always)]
    unsafe fn get(&self, i: usize, d: usize) -> T {
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
    #[inline(always)]
    pub unsafe fn dot_rows(&self, other: &Rows<T>, i: usize) -> T {
        if self.dim != 1 || other.dim != 1 {
            return (0..self.width).fold(T::ZERO, |sum, d| unsafe { self.get(i, d).mul_add(other.get(i, d), sum) });
        }
        let row = |rows: &Rows<T>| unsafe { std::slice::from_raw_parts(rows.ptr.add(i * rows.time), rows.width) };
        sum2(
            row(self),
            row(other),
            #[inline(always)]
            |a, b| a * b,
        )
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
    /// The position of query 0 among the keys, if queries see only up to their own.
    last_seen: Option<i64>,
    pub bias: HeadBias<T>,
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
    pub bias: BiasGradients<T>,
}

/// A head's part of the bias; `rows` gives the row of its tables for each distance.
#[derive(Clone, Copy)]
pub(super) enum HeadBias<T> {
    None,
    Relative { values: *const T },
    Disentangled { rows: *const u32, first_row: usize, width: usize, key: Rows<T>, query: Rows<T> },
}

/// Where a head's gradients of the bias's tables go.
#[derive(Clone, Copy)]
pub(super) enum BiasGradients<T> {
    None,
    /// The sums over this pair, one for each row.
    Relative {
        rows: *const u32,
        sums: *mut T,
        count: usize,
    },
    /// Tables that the head's pairs add to, from the first row in use on.
    Disentangled {
        key: *mut T,
        query: *mut T,
        row_stride: usize,
    },
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
            last_seen: match options.position {
                Some(position) => Some(position),
                None => shape.causal.then_some(shape.first_position()),
            },
            bias: unsafe { HeadBias::new(job, head) },
            key_mask: options.key_mask.map(|mask| unsafe { mask.add(batch * shape.k_len) }),
            drop: options.dropout.map(|dropout| {
                debug_assert!(shape.q_len <= LIMIT && shape.heads <= LIMIT);
                let sample = dropout.first_sample.wrapping_add(batch as u32);
                Drop::new(dropout.stream, dropout.p, sample, head)
            }),
            q: rows(read_only(job.q)),
            k: rows(read_only(job.k)),
            v: rows(read_only(job.v)),
            out: rows(job.out),
            lse: unsafe { job.lse.add(pair * shape.q_len) },
        }
    }

    #[inline(always)]
    pub unsafe fn gradients(&self, all: &Gradients<T>, job: &Job<T>, pair: usize) -> HeadGradients<T> {
        let (batch, head) = (pair / job.shape.heads, pair % job.shape.heads);
        let rows = |view| unsafe { Rows::of(view, self.dim, batch, head) };
        let (dout, bias) = (rows(read_only(all.dout)), unsafe { BiasGradients::new(all, job, pair) });
        HeadGradients { dout, dq: rows(all.to.q), dk: rows(all.to.k), dv: rows(all.to.v), bias }
    }

    /// Query `i` sees the keys before this one (unless the key mask hides them).
    #[inline(always)]
    pub fn visible_end(&self, i: usize) -> usize {
        match self.last_seen {
            Some(first) => (first.saturating_add(i as i64 + 1)).clamp(0, self.k_len as i64) as usize,
            None => self.k_len,
        }
    }

    /// The first query that sees key `j`.
    #[inline(always)]
    pub fn first_query(&self, j: usize) -> usize {
        match self.last_seen {
            Some(first) => (j as i64).saturating_sub(first).clamp(0, self.q_len as i64) as usize,
            None => 0,
        }
    }

    /// The distances from query `i` to the keys start here, in what is kept by distance.
    #[inline(always)]
    pub fn first_distance(&self, i: usize) -> usize {
        self.q_len - 1 - i
    }

    /// One past the last key that the mask shows.
    pub unsafe fn seen_keys(&self) -> usize {
        let Some(mask) = self.key_mask else { return self.k_len };
        let mask = unsafe { std::slice::from_raw_parts(mask, self.k_len) };
        mask.iter().rposition(|&seen| seen != 0).map_or(0, |last| last + 1)
    }

    /// What the mask adds to the scores of each key: 0, or −∞ where the key is hidden or past the last one.
    #[inline(always)]
    pub unsafe fn write_mask(&self, bias: &mut [T]) {
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

impl<T: Float> HeadBias<T> {
    #[inline(always)]
    unsafe fn new(job: &Job<T>, head: usize) -> Self {
        let shape = job.shape;
        match shape.bias {
            Bias::None => HeadBias::None,
            Bias::Relative { .. } => {
                HeadBias::Relative { values: unsafe { job.by_distance.add(head * shape.distances()) } }
            }
            Bias::Disentangled { .. } => {
                let [key, query] = job.options.tables.map(|table| Rows {
                    ptr: table.cast_mut().wrapping_add(head * shape.head_dim),
                    time: shape.heads * shape.head_dim,
                    dim: 1,
                    width: shape.head_dim,
                });
                let (first_row, width) = shape.span();
                HeadBias::Disentangled { rows: job.rows, first_row, width, key, query }
            }
        }
    }
}

impl<T: Float> BiasGradients<T> {
    #[inline(always)]
    unsafe fn new(all: &Gradients<T>, job: &Job<T>, pair: usize) -> Self {
        let (shape, count) = (job.shape, job.shape.bias_rows);
        match shape.bias {
            Bias::None => BiasGradients::None,
            Bias::Relative { .. } => {
                BiasGradients::Relative { rows: job.rows, sums: unsafe { all.partials.add(pair * count) }, count }
            }
            Bias::Disentangled { .. } => {
                let row_stride = shape.heads * shape.head_dim;
                let tables = all.to.tables.map(|table| table.wrapping_add(pair % shape.heads * shape.head_dim));
                if pair < shape.heads {
                    // The first sample: nothing has been added yet.
                    for n in 0..2 * count {
                        let row = tables[n / count].wrapping_add(n % count * row_stride);
                        unsafe { std::slice::from_raw_parts_mut(row, shape.head_dim) }.fill(T::ZERO);
                    }
                }
                let [key, query] = tables.map(|table| table.wrapping_add(shape.span().0 * row_stride));
                BiasGradients::Disentangled { key, query, row_stride }
            }
        }
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
    #[inline(always)]
    pub fn new(stream: Stream, p: f32, sample: u32, head: usize) -> Self {
        let keep = T::of(1.0 / (1.0 - p as f64));
        Drop { stream, sample, first_row: (head as u32) << 16, threshold: drop_threshold(p), keep }
    }

    /// What the weights of query `i` on keys `4 · quad .. 4 · quad + 4` are multiplied by: 0 or 1 / (1 − p).
    #[inline(always)]
    pub fn factors(&self, i: usize, quad: usize) -> [T; 4] {
        let words = self.stream.quad(self.sample, self.first_row + i as u32, quad as u32);
        words.map(|word| if word < self.threshold { T::ZERO } else { self.keep })
    }

    /// The factors of query `i` on the keys of one block. Sixteen quads are made lane by lane.
    #[inline(always)]
    pub fn write_factors(&self, i: usize, block: usize, factors: &mut [T; FACTOR_BLOCK]) {
        const QUADS: usize = FACTOR_BLOCK / 4;
        let mut words = [[0u32; QUADS]; 4];
        for lane in 0..QUADS {
            let quad = (block * QUADS + lane) as u32;
            let made = self.stream.quad(self.sample, self.first_row + i as u32, quad);
            for part in 0..4 {
                words[part][lane] = made[part];
            }
        }
        for lane in 0..QUADS {
            for part in 0..4 {
                factors[4 * lane + part] = if words[part][lane] < self.threshold { T::ZERO } else { self.keep };
            }
        }
    }
}

/// Keys whose dropout factors are made at a time.
pub(super) const FACTOR_BLOCK: usize = 64;
