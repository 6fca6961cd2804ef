//! Micro-kernels: one tile of C, summed in registers over one block of k.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use crate::kernels::cpu::float::Float;
use std::any::TypeId;

/// A tile's operands. Every kernel computes `alpha · Σ a·b + (c + bias)` by the same chain of fused multiply-adds,
/// so that the bits do not depend on the kernel.
pub struct Tile<T> {
    pub depth: usize,
    /// Element (i, p) of the tile's rows of A is at `i * a_row + p * a_step`.
    pub a: *const T,
    pub a_row: usize,
    pub a_step: usize,
    /// Row p of the panel of B starts at `p * b_step` and holds NR elements.
    pub b: *const T,
    pub b_step: usize,
    pub c: *mut T,
    pub ldc: usize,
    /// Columns of the tile that exist in C, 1 to NR.
    pub cols: usize,
    pub alpha: T,
    pub bias: Option<*const T>,
    /// Add to C; otherwise C is not read.
    pub add: bool,
}

/// `dst[s * dst_step + l] = src[l * lane_stride + s * step_stride]` for every lane and step.
pub struct Lanes<T> {
    pub src: *const T,
    pub lane_stride: usize,
    pub step_stride: usize,
    pub lanes: usize,
    pub steps: usize,
    pub dst_step: usize,
}

impl<T: Float> Lanes<T> {
    /// # Safety
    /// The source covers the lanes and steps asked for, and `dst` covers the result.
    #[inline(always)]
    unsafe fn copy(&self, steps: std::ops::Range<usize>, lanes: std::ops::Range<usize>, dst: *mut T) {
        for step in steps {
            for lane in lanes.clone() {
                unsafe { *dst.add(step * self.dst_step + lane) = *self.source(lane, step) };
            }
        }
    }

    #[inline(always)]
    unsafe fn source(&self, lane: usize, step: usize) -> *const T {
        unsafe { self.src.add(lane * self.lane_stride + step * self.step_stride) }
    }
}

/// The functions for the machine at hand and an element type.
pub struct Kernel<T> {
    /// The tallest tile.
    pub max_rows: usize,
    tile: unsafe fn(usize, &Tile<T>),
    transpose: unsafe fn(&Lanes<T>, *mut T),
}

impl<T: Float> Kernel<T> {
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if TypeId::of::<T>() == TypeId::of::<f32>() {
            if is_x86_feature_detected!("avx512f") {
                return Self::from_f32(avx512::KERNEL);
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Self::from_f32(avx2::KERNEL);
            }
        }
        Self::portable()
    }

    pub fn portable() -> Self {
        Kernel { max_rows: portable::MAX_ROWS, tile: portable::tile::<T>, transpose: portable::transpose::<T> }
    }

    #[cfg(target_arch = "x86_64")]
    fn from_f32(kernel: Kernel<f32>) -> Self {
        assert!(TypeId::of::<T>() == TypeId::of::<f32>());
        // SAFETY: T is f32, so both are the same type.
        unsafe { std::mem::transmute_copy(&kernel) }
    }

    /// # Safety
    /// The pointers of `tile` cover `rows` rows, 1 to `max_rows`, and what [`Tile`] says.
    #[inline(always)]
    pub unsafe fn tile(&self, rows: usize, tile: &Tile<T>) {
        unsafe { (self.tile)(rows, tile) };
    }

    /// Lays lanes side by side (see [`Lanes`]). Lanes are written 16 at a time: missing ones come out as anything
    /// unless a later step owns their place, and `dst` must have room for them after the last step.
    ///
    /// # Safety
    /// The source covers the lanes and steps.
    #[inline(always)]
    pub unsafe fn transpose(&self, lanes: &Lanes<T>, dst: &mut [T]) {
        assert!(lanes.steps == 0 || dst.len() >= (lanes.steps - 1) * lanes.dst_step + lanes.lanes.next_multiple_of(16));
        unsafe { (self.transpose)(lanes, dst.as_mut_ptr()) };
    }
}

/// Every kernel that this machine can run, for tests.
#[cfg(test)]
pub fn all_f32() -> Vec<Kernel<f32>> {
    let mut kernels = vec![Kernel::portable()];
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            kernels.push(avx2::KERNEL);
        }
        if is_x86_feature_detected!("avx512f") {
            kernels.push(avx512::KERNEL);
        }
    }
    kernels
}
