//! The kernel for any element type and machine; loops over fixed-size arrays, which the compiler vectorizes.

use super::{Lanes, Tile};
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::gemm::blocking::NR;
use plimsoll_base::simd::simd;

pub(super) const MAX_ROWS: usize = 4;

/// # Safety
/// See [`super::Kernel::tile`].
pub(super) unsafe fn tile<T: Float>(rows: usize, tile: &Tile<T>) {
    simd(
        #[inline(always)]
        // SAFETY: the caller's promise; `rows` is at most MAX_ROWS.
        || unsafe {
            match rows {
                1 => fixed::<T, 1>(tile),
                2 => fixed::<T, 2>(tile),
                3 => fixed::<T, 3>(tile),
                _ => fixed::<T, 4>(tile),
            }
        },
    )
}

/// # Safety
/// See [`tile`]; the tile has ROWS rows.
#[inline(always)]
unsafe fn fixed<T: Float, const ROWS: usize>(tile: &Tile<T>) {
    let mut sums = [[T::ZERO; NR]; ROWS];
    for p in 0..tile.depth {
        // SAFETY: each of `depth` rows of B holds NR elements.
        let b = unsafe { &*tile.b.add(p * tile.b_step).cast::<[T; NR]>() };
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: element (row, p) of the tile's rows of A.
            let a = unsafe { *tile.a.add(row * tile.a_row + p * tile.a_step) };
            for (col, sum) in sums.iter_mut().enumerate() {
                *sum = a.mul_add(b[col], *sum);
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        for (col, sum) in sums.iter().enumerate().take(tile.cols) {
            // SAFETY: the column exists in C, and a bias has a value for it.
            unsafe {
                let c = tile.c.add(row * tile.ldc + col);
                let held = if tile.add { *c } else { T::ZERO };
                let bias = tile.bias.map_or(T::ZERO, |bias| *bias.add(col));
                *c = sum.mul_add(tile.alpha, held + bias);
            }
        }
    }
}

/// # Safety
/// See [`super::Kernel::transpose`].
pub(super) unsafe fn transpose<T: Float>(lanes: &Lanes<T>, dst: *mut T) {
    simd(
        #[inline(always)]
        // SAFETY: the caller's promise.
        || unsafe { lanes.copy(0..lanes.steps, 0..lanes.lanes, dst) },
    )
}
