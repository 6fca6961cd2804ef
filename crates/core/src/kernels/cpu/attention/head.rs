//! One (batch, head) pair: its rows, what is visible in it, its bias, and the dropout factors of its weights.

use super::{Bias, Gradients, Job, LIMIT, View, ViewMut};
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::gemm::Matrix;
use crate::kernels::cpu::rows::sum2;
use plimsoll_base::random::{Dropping, Stream};

/// The (time, dim) matrix of one head inside a view.
#[derive(Clone, Copy)]
pub(super) struct Rows<T> {
    ptr: *mut T,
    time: usize,
    dim: usize,
    width: usize,
}

impl<T: Float> Rows<T> {
    /// # Safety
    /// The view covers sample `batch` and head `head` at this width.
    #[inline(always)]
    unsafe fn of(view: ViewMut<T>, width: usize, batch: usize, head: usize) -> Self {
        let [by_batch, time, by_head, dim] = view.strides;
        // SAFETY: the pair lies inside the view, as the caller promises.
        Rows { ptr: unsafe { view.ptr.add(batch * by_batch + head * by_head) }, time, dim, width }
    }

    /// Copies row `i` times `factor` into the front of `to` and zeroes the rest.
    ///
    /// # Safety
    /// The head has a row `i`; `to` holds at least its width.
    #[inline(always)]
    pub(super) unsafe fn read(&self, i: usize, factor: T, to: &mut [T]) {
        // SAFETY: row `i` lies inside the view, as the caller promises.
        let row = unsafe { self.ptr.add(i * self.time) };
        let (head, rest) = to.split_at_mut(self.width);
        if self.dim == 1 {
            // SAFETY: a row's elements are neighbours, `width` of them.
            let from = unsafe { std::slice::from_raw_parts(row, self.width) };
            head.iter_mut().enumerate().for_each(|(d, to)| *to = from[d] * factor);
        } else {
            // SAFETY: element `d` of the row, for `d` below its width.
            head.iter_mut().enumerate().for_each(|(d, to)| *to = unsafe { *row.add(d * self.dim) } * factor);
        }
        rest.fill(T::ZERO);
    }

    /// Rows from `first` on as the operand of a product; transposed, its columns are the rows.
    ///
    /// # Safety
    /// The head has `first` rows or more, and the product reads no rows but its own.
    pub(super) unsafe fn matrix(&self, first: usize, transposed: bool) -> Matrix<T> {
        // SAFETY: row `first` lies inside the view, or one past it where the operand has no rows.
        let ptr = unsafe { self.ptr.add(first * self.time) };
        match transposed {
            false => Matrix { ptr, row_stride: self.time, col_stride: self.dim },
            true => Matrix { ptr, row_stride: self.dim, col_stride: self.time },
        }
    }

    /// Where row `i` starts, and how far apart rows are, if a product can write there.
    ///
    /// # Safety
    /// The head has a row `i`.
    pub(super) unsafe fn target(&self, i: usize) -> Option<(*mut T, usize)> {
        // SAFETY: row `i` lies inside the view, as the caller promises.
        (self.dim == 1).then(|| (unsafe { self.ptr.add(i * self.time) }, self.time))
    }

    /// Element `d` of row `i`.
    ///
    /// # Safety
    /// The head has a row `i`, of more than `d` elements.
    #[inline(always)]
    unsafe fn get(&self, i: usize, d: usize) -> T {
        // SAFETY: the element lies inside the view, as the caller promises.
        unsafe { *self.ptr.add(i * self.time + d * self.dim) }
    }

    /// Writes the front of `from` times `factor` into row `i`.
    ///
    /// # Safety
    /// The head has a row `i`, which nobody else reads or writes meanwhile.
    #[inline(always)]
    pub(super) unsafe fn write(&self, i: usize, factor: T, from: &[T]) {
        // SAFETY: row `i` lies inside the view, as the caller promises.
        let row = unsafe { self.ptr.add(i * self.time) };
        if self.dim == 1 {
            // SAFETY: a row's elements are neighbours, and this task alone writes them.
            let to = unsafe { std::slice::from_raw_parts_mut(row, self.width) };
            let from = &from[..self.width];
            to.iter_mut().enumerate().for_each(|(d, to)| *to = from[d] * factor);
        } else {
            // SAFETY: element `d` of the row, for `d` below its width; this task alone writes it.
            from[..self.width].iter().enumerate().for_each(|(d, x)| unsafe { *row.add(d * self.dim) = *x * factor });
        }
    }

    /// Σ over d of row `i` times row `i` of `other`.
    ///
    /// # Safety
    /// Both heads have a row `i`, of the same width.
    #[inline(always)]
    pub(super) unsafe fn dot_rows(&self, other: &Rows<T>, i: usize) -> T {
        if self.dim != 1 || other.dim != 1 {
            // SAFETY: `d` is below the width of both, and row `i` is in both.
            return (0..self.width).fold(T::ZERO, |sum, d| unsafe { self.get(i, d).mul_add(other.get(i, d), sum) });
        }
        // SAFETY: row `i` lies inside, and its elements are neighbours: both `dim` are 1.
        let row = |rows: &Rows<T>| unsafe { std::slice::from_raw_parts(rows.ptr.add(i * rows.time), rows.width) };
        sum2(
            row(self),
            row(other),
            #[inline(always)]
            |a, b| a * b,
        )
    }

    /// Σ over d of row `i` times `other`.
    ///
    /// # Safety
    /// The head has a row `i`.
    #[inline(always)]
    pub(super) unsafe fn dot(&self, i: usize, other: &[T]) -> T {
        // SAFETY: `d` is below the width.
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
    /// # Safety
    /// The operands of `job` are as `attention::forward` demands, and `pair` is below batch × heads.
    #[inline(always)]
    pub(super) unsafe fn new(job: &Job<T>, pair: usize) -> Self {
        let (shape, options) = (job.shape, job.options);
        let (batch, head) = (pair / shape.heads, pair % shape.heads);
        // SAFETY: the pair lies inside `shape`, which every view covers.
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
            // SAFETY: as the operands of `job` promise; `head` is one of its heads.
            bias: unsafe { HeadBias::new(job, head) },
            // SAFETY: the mask holds `k_len` values for each of the batch.
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
            // SAFETY: `lse` holds `q_len` values for each pair.
            lse: unsafe { job.lse.add(pair * shape.q_len) },
        }
    }

    /// # Safety
    /// The gradients are as `attention::backward` demands; `pair` is the one that this head was made for.
    #[inline(always)]
    pub(super) unsafe fn gradients(&self, all: &Gradients<T>, job: &Job<T>, pair: usize) -> HeadGradients<T> {
        let (batch, head) = (pair / job.shape.heads, pair % job.shape.heads);
        // SAFETY: the pair lies inside `shape`, which the views of gradients cover too.
        let rows = |view| unsafe { Rows::of(view, self.dim, batch, head) };
        // SAFETY: the same pair of the same job.
        let (dout, bias) = (rows(read_only(all.dout)), unsafe { BiasGradients::new(all, job, pair) });
        HeadGradients { dout, dq: rows(all.to.q), dk: rows(all.to.k), dv: rows(all.to.v), bias }
    }

    /// Query `i` sees the keys before this one (unless the key mask hides them).
    #[inline(always)]
    pub(super) fn visible_end(&self, i: usize) -> usize {
        match self.last_seen {
            Some(first) => (first.saturating_add(i as i64 + 1)).clamp(0, self.k_len as i64) as usize,
            None => self.k_len,
        }
    }

    /// The first query that sees key `j`.
    #[inline(always)]
    pub(super) fn first_query(&self, j: usize) -> usize {
        match self.last_seen {
            Some(first) => (j as i64).saturating_sub(first).clamp(0, self.q_len as i64) as usize,
            None => 0,
        }
    }

    /// The distances from query `i` to the keys start here, in what is kept by distance.
    #[inline(always)]
    pub(super) fn first_distance(&self, i: usize) -> usize {
        self.q_len - 1 - i
    }

    /// One past the last key that the mask shows.
    ///
    /// # Safety
    /// The mask, if there is one, holds `k_len` values.
    pub(super) unsafe fn seen_keys(&self) -> usize {
        let Some(mask) = self.key_mask else { return self.k_len };
        // SAFETY: the mask holds `k_len` values from this sample's first on.
        let mask = unsafe { std::slice::from_raw_parts(mask, self.k_len) };
        mask.iter().rposition(|&seen| seen != 0).map_or(0, |last| last + 1)
    }

    /// What the mask adds to the scores of each key: 0, or −∞ where the key is hidden or past the last one.
    ///
    /// # Safety
    /// The mask, if there is one, holds `k_len` values.
    #[inline(always)]
    pub(super) unsafe fn write_mask(&self, bias: &mut [T]) {
        let (keys, rest) = bias.split_at_mut(self.k_len);
        keys.fill(T::ZERO);
        if let Some(mask) = self.key_mask {
            for (j, bias) in keys.iter_mut().enumerate() {
                // SAFETY: `keys` has `k_len` elements, and so has the mask.
                *bias = if unsafe { *mask.add(j) } == 0 { T::NEG_INFINITY } else { T::ZERO };
            }
        }
        rest.fill(T::NEG_INFINITY);
    }

    /// The log-sum-exp to subtract in the backward pass. A row that saw nothing gets +∞, so its weights become 0.
    ///
    /// # Safety
    /// `i` is below `q_len`, and the forward pass has written `lse`.
    #[inline(always)]
    pub(super) unsafe fn saved_lse(&self, i: usize) -> T {
        // SAFETY: `lse` holds `q_len` values, and `i` is below.
        let lse = unsafe { *self.lse.add(i) };
        if lse == T::NEG_INFINITY { -T::NEG_INFINITY } else { lse }
    }
}

impl<T: Float> HeadBias<T> {
    /// # Safety
    /// As [`Head::new`]; `head` is below the number of heads.
    #[inline(always)]
    unsafe fn new(job: &Job<T>, head: usize) -> Self {
        let shape = job.shape;
        match shape.bias {
            Bias::None => HeadBias::None,
            Bias::Relative { .. } => {
                // SAFETY: `by_distance` holds a value per distance for each head.
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
    /// # Safety
    /// As [`Head::gradients`]. Pairs of one head come one after the other where a bias is disentangled: the first
    /// clears what the others add to.
    #[inline(always)]
    unsafe fn new(all: &Gradients<T>, job: &Job<T>, pair: usize) -> Self {
        let (shape, count) = (job.shape, job.shape.bias_rows);
        match shape.bias {
            Bias::None => BiasGradients::None,
            Bias::Relative { .. } => {
                // SAFETY: `partials` holds `count` sums for each pair.
                BiasGradients::Relative { rows: job.rows, sums: unsafe { all.partials.add(pair * count) }, count }
            }
            Bias::Disentangled { .. } => {
                let row_stride = shape.heads * shape.head_dim;
                let tables = all.to.tables.map(|table| table.wrapping_add(pair % shape.heads * shape.head_dim));
                if pair < shape.heads {
                    // The first sample: nothing has been added yet.
                    for n in 0..2 * count {
                        let row = tables[n / count].wrapping_add(n % count * row_stride);
                        // SAFETY: the head's part of a row of the table, which the head's task alone writes.
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
    dropping: Dropping,
    keep: T,
}

impl<T: Float> Drop<T> {
    #[inline(always)]
    pub(super) fn new(stream: Stream, p: f32, sample: u32, head: usize) -> Self {
        let dropping = Dropping::new(p.into());
        Drop { stream, sample, first_row: (head as u32) << 16, dropping, keep: T::of(dropping.keep) }
    }

    /// The bits of query `i` on keys `4 · quad .. 4 · quad + 4`, as upper halves of words.
    #[inline(always)]
    fn words(&self, i: usize, quad: u32) -> [u32; 4] {
        let lower = if (i / 8).is_multiple_of(2) { 16 } else { 0 };
        let pair = (i / 16 * 8 + i % 8) as u32;
        self.stream.eight(self.sample, self.first_row + pair, quad).map(|word| word << lower)
    }

    /// What the weights of query `i` on keys `4 · quad .. 4 · quad + 4` are multiplied by: 0 or 1 / (1 − p).
    #[inline(always)]
    pub(super) fn factors(&self, i: usize, quad: usize) -> [T; 4] {
        self.words(i, quad as u32).map(|word| if self.dropping.drops_upper(word) { T::ZERO } else { self.keep })
    }

    /// The factors of query `i` on the keys of one block. Sixteen quads are made lane by lane.
    #[inline(always)]
    pub(super) fn write_factors(&self, i: usize, block: usize, factors: &mut [T; FACTOR_BLOCK]) {
        const QUADS: usize = FACTOR_BLOCK / 4;
        let mut words = [[0u32; QUADS]; 4];
        for lane in 0..QUADS {
            let quad = (block * QUADS + lane) as u32;
            let made = self.words(i, quad);
            for part in 0..4 {
                words[part][lane] = made[part];
            }
        }
        for lane in 0..QUADS {
            for part in 0..4 {
                let drops = self.dropping.drops_upper(words[part][lane]);
                factors[4 * lane + part] = if drops { T::ZERO } else { self.keep };
            }
        }
    }
}

/// Keys whose dropout factors are made at a time.
pub(super) const FACTOR_BLOCK: usize = 64;
