//! Groups of any width: one product per group and part.

use super::GroupedShape;
use crate::kernels::cpu::column_sums::{column_sums, column_sums_scratch};
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::gemm::{Activation, Dims, Epilogue, Matrix, gemm, scratch_len};

fn forward_dims(s: &GroupedShape) -> Dims {
    Dims { m: s.rows, n: s.outputs, k: s.inputs }
}

fn input_dims(s: &GroupedShape) -> Dims {
    Dims { m: s.rows, n: s.inputs, k: s.outputs }
}

fn weight_dims(s: &GroupedShape) -> Dims {
    Dims { m: s.outputs, n: s.inputs, k: s.rows }
}

pub(super) fn forward_scratch(s: &GroupedShape, threads: usize) -> usize {
    scratch_len(forward_dims(s), threads)
}

pub(super) fn backward_input_scratch(s: &GroupedShape, threads: usize) -> usize {
    scratch_len(input_dims(s), threads)
}

/// A row of column sums, and what they or the products want.
pub(super) fn backward_weights_scratch(s: &GroupedShape, threads: usize) -> usize {
    s.y_row() + scratch_len(weight_dims(s), threads).max(column_sums_scratch(s.rows, s.y_row()))
}

fn plain<T: Float>(bias: Option<*const T>, accumulate: bool) -> Epilogue<T> {
    Epilogue { alpha: T::ONE, bias, activation: Activation::None, accumulate }
}

/// Where a group and part begin: in a row of x, in a row of y, and among the biases.
fn blocks(s: GroupedShape) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..s.groups).flat_map(move |g| {
        (0..s.parts).map(move |p| (g * s.inputs, (p * s.groups + g) * s.outputs, (g * s.parts + p) * s.outputs))
    })
}

/// # Safety
/// See [`super::forward`].
pub(super) unsafe fn forward<T: Float>(
    s: &GroupedShape,
    x: *const T,
    w: *const T,
    b: *const T,
    y: *mut T,
    scratch: &mut [T],
) {
    for (from, to, unit) in blocks(*s) {
        // SAFETY: blocks have disjoint columns of y.
        unsafe {
            let a = Matrix { ptr: x.add(from), row_stride: s.row_stride, col_stride: 1 };
            let weights = Matrix { ptr: w.add(unit * s.inputs), row_stride: 1, col_stride: s.inputs };
            gemm(forward_dims(s), a, weights, y.add(to), s.y_row(), plain(Some(b.add(unit)), false), scratch);
        }
    }
}

/// # Safety
/// See [`super::backward_input`].
pub(super) unsafe fn backward_input<T: Float>(
    s: &GroupedShape,
    dy: *const T,
    w: *const T,
    dx: *mut T,
    scratch: &mut [T],
) {
    for (from, to, unit) in blocks(*s) {
        // Parts of a group follow each other, from the first on.
        let later_part = to >= s.groups * s.outputs;
        // SAFETY: groups have disjoint columns of dx.
        unsafe {
            let a = Matrix { ptr: dy.add(to), row_stride: s.y_row(), col_stride: 1 };
            let weights = Matrix { ptr: w.add(unit * s.inputs), row_stride: s.inputs, col_stride: 1 };
            gemm(input_dims(s), a, weights, dx.add(from), s.row_stride, plain(None, later_part), scratch);
        }
    }
}

/// # Safety
/// See [`super::backward_weights`].
pub(super) unsafe fn backward_weights<T: Float>(
    s: &GroupedShape,
    x: *const T,
    dy: *const T,
    dw: *mut T,
    db: *mut T,
    scratch: &mut [T],
) {
    let (sums, scratch) = scratch.split_at_mut(s.y_row());
    // SAFETY: blocks have disjoint parts of dw and db.
    unsafe {
        column_sums(s.rows, s.y_row(), dy, sums.as_mut_ptr(), scratch);
        for (from, to, unit) in blocks(*s) {
            let a = Matrix { ptr: dy.add(to), row_stride: 1, col_stride: s.y_row() };
            let inputs = Matrix { ptr: x.add(from), row_stride: s.row_stride, col_stride: 1 };
            gemm(weight_dims(s), a, inputs, dw.add(unit * s.inputs), s.inputs, plain(None, false), scratch);
            std::ptr::copy_nonoverlapping(sums.as_ptr().add(to), db.add(unit), s.outputs);
        }
    }
}
