//! The weight gradient: a product over all (sample, output row) pairs, some tiles at a time.

use super::Conv1dShape;
use super::slide::{Tiles, copy_rows};
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::gemm::{Activation, Dims, Epilogue, Matrix, gemm, scratch_len};
use crate::kernels::cpu::parallel::{SharedMut, parallel};
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// Rows summed by one product: deep enough for it to run at speed, while the copies stay in cache.
const DEPTH: usize = 512;

/// How tiles are laid side by side: each takes `outputs` rows of dy (zeros after the tile's own) and `outputs`·stride
/// rows of x, so that one stride fits both, within a tile and from tile to tile.
struct Layout {
    tiles: Tiles,
    outputs: usize,
    group: usize,
}

impl Layout {
    fn new(s: &Conv1dShape) -> Self {
        let tiles = Tiles::new(s.batch, s.time_out());
        let outputs = ((tiles.tile - 1) * s.stride + s.kernel).div_ceil(s.stride);
        Layout { tiles, outputs, group: (DEPTH / outputs).clamp(1, tiles.count.max(1)) }
    }

    fn dims(&self, s: &Conv1dShape, tiles: usize) -> Dims {
        Dims { m: s.channels_out, n: s.kernel * s.channels_in, k: tiles * self.outputs }
    }

    fn dy_tile(&self, s: &Conv1dShape) -> usize {
        self.outputs * s.channels_out
    }

    fn x_tile(&self, s: &Conv1dShape) -> usize {
        self.outputs * s.stride * s.channels_in
    }

    /// The windows of the last tile's zero rows reach this far beyond it.
    fn overhang(s: &Conv1dShape) -> usize {
        s.kernel * s.channels_in
    }
}

/// Elements of scratch that [`backward_weight`] needs.
pub(crate) fn backward_weight_scratch(shape: Conv1dShape, threads: usize) -> usize {
    let layout = Layout::new(&shape);
    let copies = layout.group * (layout.dy_tile(&shape) + layout.x_tile(&shape)) + Layout::overhang(&shape);
    let last = layout.tiles.count - layout.tiles.count.saturating_sub(1) / layout.group * layout.group;
    let product = [layout.group, last].map(|tiles| scratch_len(layout.dims(&shape, tiles), threads));
    shape.weights() + copies + product[0].max(product[1])
}

/// dw (channels_out, channels_in, kernel), the gradient of the weight.
///
/// # Safety
/// x, dy and dw have the sizes of `shape`; dw overlaps nothing.
pub(crate) unsafe fn backward_weight<T: Float>(
    shape: Conv1dShape,
    x: *const T,
    dy: *const T,
    dw: *mut T,
    scratch: &mut [T],
) {
    let layout = Layout::new(&shape);
    let (sums, scratch) = scratch.split_at_mut(shape.weights());
    let (dy_copy, scratch) = scratch.split_at_mut(layout.group * layout.dy_tile(&shape));
    let (x_copy, product) = scratch.split_at_mut(layout.group * layout.x_tile(&shape) + Layout::overhang(&shape));
    sums.fill(T::ZERO);
    let width = shape.kernel * shape.channels_in;
    let (dy_base, x_base) = (SharedMut::new(dy_copy.as_mut_ptr()), SharedMut::new(x_copy.as_mut_ptr()));
    let copy = Copy { shape, layout: &layout, x, dy, x_copy: x_base, dy_copy: dy_base };
    for first in (0..layout.tiles.count).step_by(layout.group) {
        let tiles = layout.group.min(layout.tiles.count - first);
        // SAFETY: slots of the group are disjoint; the product reads what they hold and the overhang.
        unsafe {
            parallel(tiles, |slot| copy.tile(slot, first + slot));
            x_base.slice(tiles * layout.x_tile(&shape), Layout::overhang(&shape)).fill(T::ZERO);
            let a = Matrix { ptr: dy_base.ptr().cast_const(), row_stride: 1, col_stride: shape.channels_out };
            let row_stride = shape.stride * shape.channels_in;
            let b = Matrix { ptr: x_base.ptr().cast_const(), row_stride, col_stride: 1 };
            let epilogue = Epilogue { alpha: T::ONE, bias: None, activation: Activation::None, accumulate: true };
            gemm(layout.dims(&shape, tiles), a, b, sums.as_mut_ptr(), width, epilogue, product);
        }
    }
    // SAFETY: dw has this size.
    to_pytorch(&shape, sums, unsafe { from_raw_parts_mut(dw, shape.weights()) });
}

/// (output, tap, input) → (output, input, tap).
fn to_pytorch<T: Float>(s: &Conv1dShape, sums: &[T], dw: &mut [T]) {
    for (i, to) in dw.iter_mut().enumerate() {
        let (o, c, tap) = (i / (s.channels_in * s.kernel), i / s.kernel % s.channels_in, i % s.kernel);
        *to = sums[(o * s.kernel + tap) * s.channels_in + c];
    }
}

struct Copy<'a, T> {
    shape: Conv1dShape,
    layout: &'a Layout,
    x: *const T,
    dy: *const T,
    x_copy: SharedMut<T>,
    dy_copy: SharedMut<T>,
}

// SAFETY: x and dy are only read; slots are disjoint.
unsafe impl<T: Send> Sync for Copy<'_, T> {}

impl<T: Float> Copy<'_, T> {
    /// # Safety
    /// `index` is a tile, and `slot` belongs to the caller alone.
    unsafe fn tile(&self, slot: usize, index: usize) {
        let (s, layout) = (&self.shape, self.layout);
        let (sample, row, rows) = layout.tiles.get(index);
        let (x_len, dy_len) = (s.time * s.channels_in, s.time_out() * s.channels_out);
        // SAFETY: the tile lies in one sample of `x` and `dy`; a slot has one user.
        unsafe {
            let x = from_raw_parts(self.x.add(sample * x_len), x_len);
            let first = (row * s.stride) as isize - s.padding as isize;
            copy_rows(x, s.channels_in, first, self.x_copy.slice(slot * layout.x_tile(s), layout.x_tile(s)));
            let dy = from_raw_parts(self.dy.add(sample * dy_len + row * s.channels_out), rows * s.channels_out);
            copy_rows(dy, s.channels_out, 0, self.dy_copy.slice(slot * layout.dy_tile(s), layout.dy_tile(s)));
        }
    }
}
