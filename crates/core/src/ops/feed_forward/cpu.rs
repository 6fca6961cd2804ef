//! The feed-forward on the CPU: each chunk of the hidden width by the ordinary products.

use super::super::activation::value_and_slope;
use super::super::gated::with_activation;
use super::*;
use crate::kernels::cpu::Element;
use crate::kernels::cpu::column_sums::{column_sums, column_sums_scratch};
use crate::kernels::cpu::elementwise::ranges;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::gemm::{self, Dims, Epilogue, Matrix};
use crate::kernels::cpu::parallel::SharedMut;
use plimsoll_base::simd::simd;
use std::ops::Range;

/// Hidden values that exist at a time: about this many, for all tokens.
const VALUES: usize = 1 << 18;

impl Sizes {
    /// How wide a chunk is. A function of the sizes alone: sums over chunks have an order.
    fn chunk(&self) -> usize {
        (VALUES / self.tokens.max(1)).next_multiple_of(32).clamp(1, self.hidden.max(1))
    }

    fn chunks(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.hidden).step_by(self.chunk()).map(move |first| first..(first + self.chunk()).min(self.hidden))
    }

    /// Elements of hidden values of one chunk.
    fn values(&self) -> usize {
        self.tokens * self.chunk()
    }

    /// The products of a chunk: rows to hidden values, back, and the gradients of weights.
    fn products(&self, chunk: usize) -> [Dims; 4] {
        let &Sizes { tokens, width, .. } = self;
        [[tokens, chunk, width], [tokens, width, chunk], [chunk, width, tokens], [width, chunk, tokens]]
            .map(|[m, n, k]| Dims { m, n, k })
    }

    /// Scratch of the library for any chunk; the last one is narrower.
    fn product_scratch(&self, threads: usize) -> usize {
        let widths = [self.chunk(), self.hidden % self.chunk()];
        let all = widths.into_iter().filter(|&chunk| chunk > 0).flat_map(|chunk| self.products(chunk));
        all.map(|dims| gemm::scratch_len(dims, threads)).max().unwrap_or(0)
    }
}

pub(super) fn forward_scratch(sizes: &Sizes, threads: usize) -> usize {
    sizes.values() + sizes.product_scratch(threads)
}

pub(super) fn backward_scratch(sizes: &Sizes, threads: usize) -> usize {
    let sums = column_sums_scratch(sizes.tokens, sizes.chunk());
    2 * sizes.values() + sums.max(sizes.product_scratch(threads))
}

fn by_rows<T>(ptr: *const T, stride: usize) -> Matrix<T> {
    Matrix { ptr, row_stride: stride, col_stride: 1 }
}

fn turned<T>(matrix: Matrix<T>) -> Matrix<T> {
    Matrix { row_stride: matrix.col_stride, col_stride: matrix.row_stride, ..matrix }
}

/// What both directions read, and where a chunk of it lies.
struct Operands<T> {
    sizes: Sizes,
    x: Matrix<T>,
    up: *const T,
    bias: *const T,
    down: *const T,
}

impl<T: Float + Element> Operands<T> {
    fn new(io: &CpuIo<'_>) -> Operands<T> {
        let sizes = Sizes::new(io.input_type(0), io.input_type(1));
        let [x, up, bias, down] = [0, 1, 2, 3].map(|index| io.input_ptr(index).cast::<T>());
        Operands { sizes, x: by_rows(x, sizes.width), up, bias, down }
    }

    /// (chunk, D)
    ///
    /// # Safety
    /// `first` is a hidden value.
    unsafe fn up(&self, first: usize) -> Matrix<T> {
        // SAFETY: the weight has a row of `width` for each hidden value.
        by_rows(unsafe { self.up.add(first * self.sizes.width) }, self.sizes.width)
    }

    /// (D, chunk)
    ///
    /// # Safety
    /// As `up`.
    unsafe fn down(&self, first: usize) -> Matrix<T> {
        // SAFETY: each row of the weight has an element for each hidden value.
        by_rows(unsafe { self.down.add(first) }, self.sizes.hidden)
    }

    /// `to` (N, chunk) = act(x · upᵀ + bias)
    ///
    /// # Safety
    /// The operands are as their types say; `to` holds a chunk and nothing else touches it.
    unsafe fn hidden(&self, chunk: &Range<usize>, act: Activation, to: &mut [T], scratch: &mut [T]) {
        let dims = self.sizes.products(chunk.len())[0];
        // SAFETY: the chunk lies in the hidden values; `to` holds it, apart from the operands.
        unsafe {
            let bias = Some(self.bias.add(chunk.start));
            let epilogue = Epilogue { bias, activation: act, ..Epilogue::store() };
            gemm::gemm(dims, self.x, turned(self.up(chunk.start)), to.as_mut_ptr(), dims.n, epilogue, scratch);
        }
    }
}

pub(super) fn forward<T: Float + Element>(act: Activation, io: &CpuIo<'_>) {
    let (of, y) = (Operands::<T>::new(io), io.output::<T>(0));
    let (bias, width) = (io.input::<T>(4), of.sizes.width);
    y.chunks_exact_mut(width.max(1)).for_each(|row| row.copy_from_slice(bias));
    let (hidden, scratch) = io.workspace::<T>().split_at_mut(of.sizes.values());
    for chunk in of.sizes.chunks() {
        let dims = of.sizes.products(chunk.len())[1];
        let add = Epilogue { accumulate: true, ..Epilogue::store() };
        // SAFETY: the types were checked, and the slots are apart.
        unsafe {
            of.hidden(&chunk, act, hidden, scratch);
            let rows = by_rows(hidden.as_ptr(), chunk.len());
            gemm::gemm(dims, rows, turned(of.down(chunk.start)), y.as_mut_ptr(), width, add, scratch);
        }
    }
}

pub(super) fn backward<T: Float + Element>(act: Activation, io: &CpuIo<'_>) {
    let (of, dy) = (Operands::<T>::new(io), by_rows(io.input_ptr(4).cast::<T>(), io.input_type(0).shape[1]));
    let Sizes { tokens, width, hidden } = of.sizes;
    let [dx, dup, dbias, ddown] = [0, 1, 2, 3].map(|index| io.output_ptr(index).cast::<T>());
    io.output::<T>(0).fill(T::ZERO);
    let (values, rest) = io.workspace::<T>().split_at_mut(of.sizes.values());
    let (slopes, scratch) = rest.split_at_mut(of.sizes.values());
    for chunk in of.sizes.chunks() {
        let (first, n) = (chunk.start, chunk.len());
        let [there, back, of_up, of_down] = of.sizes.products(n);
        let store = Epilogue::store();
        // SAFETY: the types were checked, the slots are apart, and the halves of the workspace are.
        unsafe {
            of.hidden(&chunk, Activation::None, values, scratch);
            gemm::gemm(there, dy, of.down(first), slopes.as_mut_ptr(), n, store, scratch);
            activate(act, &mut values[..tokens * n], &mut slopes[..tokens * n]);
            let (h, dh) = (by_rows(values.as_ptr(), n), by_rows(slopes.as_ptr(), n));
            let add = Epilogue { accumulate: true, ..store };
            gemm::gemm(back, dh, of.up(first), dx, width, add, scratch);
            gemm::gemm(of_up, turned(dh), of.x, dup.add(first * width), width, store, scratch);
            gemm::gemm(of_down, turned(dy), h, ddown.add(first), hidden, store, scratch);
            column_sums(tokens, n, slopes.as_ptr(), dbias.add(first), scratch);
        }
    }
}

/// Sums before the function become hidden values; gradients after it become those before it.
fn activate<T: Float>(act: Activation, values: &mut [T], slopes: &mut [T]) {
    let (len, values, slopes) =
        (values.len(), SharedMut::new(values.as_mut_ptr()), SharedMut::new(slopes.as_mut_ptr()));
    with_activation!(act, ACT => ranges(len, |range| {
        // SAFETY: ranges are disjoint.
        let [values, slopes] = [values, slopes].map(|all| unsafe { all.slice(range.start, range.len()) });
        simd(
            #[inline(always)]
            || {
                for (value, slope) in values.iter_mut().zip(slopes) {
                    let (y, dy) = value_and_slope(ACT, *value);
                    (*value, *slope) = (y, dy * *slope);
                }
            },
        );
    }))
}
