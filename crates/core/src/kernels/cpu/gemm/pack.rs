//! Packing: operands copied into the order in which the kernel reads them.

use super::Matrix;
use super::blocking::NR;
use super::kernel::{Kernel, Lanes};
use crate::kernels::cpu::float::Float;

/// Packs a `depth` × `cols` block of B into panels of NR columns, each `depth` rows of NR; missing columns are zero.
///
/// # Safety
/// `b` covers the block.
pub unsafe fn block_b<T: Float>(kernel: &Kernel<T>, depth: usize, cols: usize, b: Matrix<T>, dst: &mut [T]) {
    for column in (0..cols).step_by(NR) {
        let panel = &mut dst[column * depth..][..depth * NR];
        let width = NR.min(cols - column);
        unsafe { panel_b(kernel, depth, width, b.offset(0, column), panel) };
    }
}

unsafe fn panel_b<T: Float>(kernel: &Kernel<T>, depth: usize, width: usize, b: Matrix<T>, panel: &mut [T]) {
    if width < NR {
        panel.fill(T::ZERO);
    }
    let lanes = Lanes {
        src: b.ptr,
        lane_stride: b.col_stride,
        step_stride: b.row_stride,
        lanes: width,
        steps: depth,
        dst_step: NR,
    };
    unsafe { kernel.transpose(&lanes, panel) };
}

/// Packs a panel of A, `rows` × `depth`, as `depth` runs of `rows` elements. May write scratch up to a vector past it.
///
/// # Safety
/// `a` covers the panel.
pub unsafe fn panel_a<T: Float>(kernel: &Kernel<T>, rows: usize, depth: usize, a: Matrix<T>, dst: &mut [T]) {
    let lanes = Lanes {
        src: a.ptr,
        lane_stride: a.row_stride,
        step_stride: a.col_stride,
        lanes: rows,
        steps: depth,
        dst_step: rows,
    };
    unsafe { kernel.transpose(&lanes, dst) };
}
