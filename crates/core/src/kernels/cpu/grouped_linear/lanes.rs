//! Groups as narrow as 1, 2, 4, 8 or 16 values, inputs as wide as outputs: the lanes of a vector hold 16 / width whole
//! groups. Each value of a group is spread over the group's lanes, so all groups in a vector are multiplied at once.

use super::GroupedShape;
use crate::kernels::cpu::column_sums::Chunks;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::{SharedMut, parallel};
use plimsoll_base::simd::simd;
use std::slice::{from_raw_parts, from_raw_parts_mut};

const LANES: usize = 16;
/// Rows between two visits of the same weights.
const ROWS: usize = 32;
type Vector<T> = [T; LANES];

/// A shape these loops can do.
pub(super) struct Narrow {
    shape: GroupedShape,
    /// Vectors in a row of x and in one part of a row of y.
    vectors: usize,
}

#[inline(always)]
fn load<T: Float>(from: &[T]) -> Vector<T> {
    let mut lanes = [T::ZERO; LANES];
    lanes.copy_from_slice(&from[..LANES]);
    lanes
}

/// Value `i` of each group, in all lanes of the group.
#[inline(always)]
fn spread<T: Float, const WIDTH: usize>(x: &Vector<T>, i: usize) -> Vector<T> {
    let mut lanes = [T::ZERO; LANES];
    for lane in 0..LANES {
        lanes[lane] = x[lane / WIDTH * WIDTH + i];
    }
    lanes
}

#[inline(always)]
fn multiply_add<T: Float>(a: &Vector<T>, b: &Vector<T>, sum: &mut Vector<T>) {
    for lane in 0..LANES {
        sum[lane] = a[lane].mul_add(b[lane], sum[lane]);
    }
}

/// Calls a method with the group's width as a constant.
macro_rules! by_width {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match $self.shape.inputs {
            1 => $self.$method::<T, 1>($($argument),*),
            2 => $self.$method::<T, 2>($($argument),*),
            4 => $self.$method::<T, 4>($($argument),*),
            8 => $self.$method::<T, 8>($($argument),*),
            _ => $self.$method::<T, 16>($($argument),*),
        }
    };
}

impl Narrow {
    pub(super) fn new(shape: &GroupedShape) -> Option<Self> {
        let whole = (shape.groups * shape.inputs).is_multiple_of(LANES);
        let fits = shape.inputs == shape.outputs && matches!(shape.inputs, 1 | 2 | 4 | 8 | 16) && whole;
        fits.then(|| Narrow { shape: *shape, vectors: shape.groups * shape.inputs / LANES })
    }

    /// The weights and biases, rearranged.
    pub(super) fn scratch(&self) -> usize {
        self.shape.weights() + self.shape.biases()
    }

    /// For each chunk of rows, partial sums for the weights and the biases.
    pub(super) fn weights_scratch(&self) -> usize {
        Chunks::new(self.shape.rows).count() * self.scratch()
    }

    /// Weights of vector `v`, part `p` and step `i` lie here in the rearranged order, as one vector.
    #[inline(always)]
    fn weight_vector(&self, v: usize, p: usize, i: usize) -> usize {
        (v * self.shape.parts + p) * self.shape.inputs + i
    }

    #[inline(always)]
    fn load_weights<T: Float, const WIDTH: usize>(&self, weights: &[T], v: usize, p: usize) -> [Vector<T>; WIDTH] {
        std::array::from_fn(
            #[inline(always)]
            |i| load(&weights[self.weight_vector(v, p, i) * LANES..]),
        )
    }

    /// All vectors of a row of x, with all parts; a vector's parts in order.
    #[inline(always)]
    fn blocks(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let parts = self.shape.parts;
        (0..self.vectors * parts).map(move |block| (block / parts, block % parts))
    }

    /// Where, for each lane of each weight vector, the weight is in w: `place(rearranged, original)`. `step_is_input`
    /// says whether lanes are outputs and steps inputs, or the other way round.
    fn weights(&self, step_is_input: bool, mut place: impl FnMut(usize, usize)) {
        let (s, width) = (&self.shape, self.shape.inputs);
        for (v, p) in self.blocks() {
            for (i, lane) in (0..width).flat_map(|i| (0..LANES).map(move |lane| (i, lane))) {
                let (group, unit) = ((v * LANES + lane) / width, lane % width);
                let (output, input) = if step_is_input { (unit, i) } else { (i, unit) };
                let original = ((group * s.parts + p) * width + output) * width + input;
                place(self.weight_vector(v, p, i) * LANES + lane, original);
            }
        }
    }

    /// Biases in the order of a row of y: `place(in y, original)`.
    fn biases(&self, mut place: impl FnMut(usize, usize)) {
        let s = &self.shape;
        for (p, g) in (0..s.parts).flat_map(|p| (0..s.groups).map(move |g| (p, g))) {
            for o in 0..s.outputs {
                place((p * s.groups + g) * s.outputs + o, (g * s.parts + p) * s.outputs + o);
            }
        }
    }

    /// # Safety
    /// See [`super::forward`].
    pub(super) unsafe fn forward<T: Float>(&self, x: *const T, w: *const T, b: *const T, y: *mut T, scratch: &mut [T]) {
        let (weights, biases) = scratch[..self.scratch()].split_at_mut(self.shape.weights());
        // SAFETY: sizes as the caller promises; chunks of rows are disjoint.
        unsafe {
            self.weights(true, |to, from| weights[to] = *w.add(from));
            self.biases(|to, from| biases[to] = *b.add(from));
            let rows = RowPointers { from: x, to: y };
            let (weights, biases) = (&*weights, &*biases);
            self.chunks(|first, count| {
                let (from, to) = rows.at(first * self.shape.row_stride, first * self.shape.y_row());
                simd(
                    #[inline(always)]
                    || by_width!(self.forward_rows(count, from, weights, biases, to)),
                );
            });
        }
    }

    /// # Safety
    /// `x` and `y` have `rows` rows of the shape's strides, and nobody else touches those of `y`.
    #[inline(always)]
    unsafe fn forward_rows<T: Float, const WIDTH: usize>(
        &self,
        rows: usize,
        x: *const T,
        weights: &[T],
        biases: &[T],
        y: *mut T,
    ) {
        for (v, p) in self.blocks() {
            let column = (p * self.vectors + v) * LANES;
            let (weights, bias) = (self.load_weights::<T, WIDTH>(weights, v, p), load(&biases[column..]));
            for row in 0..rows {
                // SAFETY: a vector of this row of x, and one of this row of y.
                let (x, y) = unsafe {
                    let x = from_raw_parts(x.add(row * self.shape.row_stride + v * LANES), LANES);
                    (load(x), from_raw_parts_mut(y.add(row * self.shape.y_row() + column), LANES))
                };
                let mut sum = bias;
                for (i, weights) in weights.iter().enumerate() {
                    multiply_add(&spread::<T, WIDTH>(&x, i), weights, &mut sum);
                }
                y.copy_from_slice(&sum);
            }
        }
    }

    /// # Safety
    /// See [`super::backward_input`].
    pub(super) unsafe fn backward_input<T: Float>(&self, dy: *const T, w: *const T, dx: *mut T, scratch: &mut [T]) {
        let weights = &mut scratch[..self.shape.weights()];
        // SAFETY: sizes as the caller promises; chunks of rows are disjoint.
        unsafe {
            self.weights(false, |to, from| weights[to] = *w.add(from));
            let (rows, weights) = (RowPointers { from: dy, to: dx }, &*weights);
            self.chunks(|first, count| {
                let (from, to) = rows.at(first * self.shape.y_row(), first * self.shape.row_stride);
                simd(
                    #[inline(always)]
                    || by_width!(self.input_rows(count, from, weights, to)),
                );
            });
        }
    }

    /// # Safety
    /// `dy` and `dx` have `rows` rows of the shape's strides, and nobody else touches those of `dx`.
    #[inline(always)]
    unsafe fn input_rows<T: Float, const WIDTH: usize>(&self, rows: usize, dy: *const T, weights: &[T], dx: *mut T) {
        for (v, p) in self.blocks() {
            let weights = self.load_weights::<T, WIDTH>(weights, v, p);
            let column = (p * self.vectors + v) * LANES;
            for row in 0..rows {
                // SAFETY: a vector of this row of dy, and one of this row of dx.
                let (dy, dx) = unsafe {
                    let dy = from_raw_parts(dy.add(row * self.shape.y_row() + column), LANES);
                    (load(dy), from_raw_parts_mut(dx.add(row * self.shape.row_stride + v * LANES), LANES))
                };
                // The first part finds nothing there yet.
                let mut sum = if p == 0 { [T::ZERO; LANES] } else { load(dx) };
                for (i, weights) in weights.iter().enumerate() {
                    multiply_add(&spread::<T, WIDTH>(&dy, i), weights, &mut sum);
                }
                dx.copy_from_slice(&sum);
            }
        }
    }

    /// # Safety
    /// See [`super::backward_weights`].
    pub(super) unsafe fn backward_weights<T: Float>(
        &self,
        x: *const T,
        dy: *const T,
        dw: *mut T,
        db: *mut T,
        scratch: &mut [T],
    ) {
        let (chunks, len) = (Chunks::new(self.shape.rows), self.scratch());
        let partial = &mut scratch[..chunks.count() * len];
        let shared = SharedMut::new(partial.as_mut_ptr());
        // Only read: the pair is a pair of inputs here.
        let rows = RowPointers { from: x, to: dy.cast_mut() };
        parallel(chunks.count(), |chunk| {
            let range = chunks.range(chunk);
            // SAFETY: each chunk has its own partial sums; its rows exist.
            unsafe {
                let sums = shared.slice(chunk * len, len);
                let (x, dy) = rows.at(range.start * self.shape.row_stride, range.start * self.shape.y_row());
                simd(
                    #[inline(always)]
                    || by_width!(self.weight_sums(range.len(), x, dy.cast_const(), sums)),
                );
            }
        });
        let total = |at: usize| partial.chunks_exact(len).map(|sums| sums[at]).fold(T::ZERO, |sum, term| sum + term);
        // SAFETY: dw and db have these sizes.
        unsafe {
            self.weights(true, |from, to| *dw.add(to) = total(from));
            self.biases(|from, to| *db.add(to) = total(self.shape.weights() + from));
        }
    }

    /// One vector and part at a time over all rows of a chunk, the sums in registers.
    ///
    /// # Safety
    /// `x` and `dy` have `rows` rows of the shape's strides.
    #[inline(always)]
    unsafe fn weight_sums<T: Float, const WIDTH: usize>(&self, rows: usize, x: *const T, dy: *const T, sums: &mut [T]) {
        let (weights, biases) = sums.split_at_mut(self.shape.weights());
        for (v, p) in self.blocks() {
            let column = (p * self.vectors + v) * LANES;
            let (mut weight, mut bias) = ([[T::ZERO; LANES]; WIDTH], [T::ZERO; LANES]);
            for row in 0..rows {
                // SAFETY: rows of the chunk.
                let (x, dy) = unsafe {
                    let x = from_raw_parts(x.add(row * self.shape.row_stride + v * LANES), LANES);
                    (load(x), load(from_raw_parts(dy.add(row * self.shape.y_row() + column), LANES)))
                };
                for (i, sum) in weight.iter_mut().enumerate() {
                    multiply_add(&spread::<T, WIDTH>(&x, i), &dy, sum);
                }
                for lane in 0..LANES {
                    bias[lane] += dy[lane];
                }
            }
            let first = self.weight_vector(v, p, 0) * LANES;
            weights[first..first + WIDTH * LANES].copy_from_slice(weight.as_flattened());
            biases[column..column + LANES].copy_from_slice(&bias);
        }
    }

    /// Runs `rows(first, count)` over blocks of rows.
    fn chunks(&self, rows: impl Fn(usize, usize) + Sync) {
        let chunks = Chunks::new(self.shape.rows);
        parallel(chunks.count(), |chunk| {
            let range = chunks.range(chunk);
            for first in range.clone().step_by(ROWS) {
                rows(first, ROWS.min(range.end - first));
            }
        });
    }
}

/// A pair of operands that tasks offset into.
struct RowPointers<T> {
    from: *const T,
    to: *mut T,
}

// SAFETY: tasks work on disjoint rows.
unsafe impl<T: Send> Sync for RowPointers<T> {}

impl<T> RowPointers<T> {
    /// # Safety
    /// So many elements lie behind both pointers.
    unsafe fn at(&self, from: usize, to: usize) -> (*const T, *mut T) {
        // SAFETY: the caller promises the rows.
        unsafe { (self.from.add(from), self.to.add(to)) }
    }
}
