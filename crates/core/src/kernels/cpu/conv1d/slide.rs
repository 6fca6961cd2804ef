//! A product whose left rows are windows sliding over a sequence: the core of the convolution and of its input
//! gradient.

use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::gemm::{Activation, Dims, Epilogue, Matrix, gemm_packed_b, pack_b, packed_b_len, scratch_len};
use crate::kernels::cpu::parallel::{SharedMut, parallel, threads};
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// Output rows per tile: enough for the product to run at speed, few enough for the tile's windows to stay in cache.
const TILE: usize = 96;

/// target[sample][t] = source[sample][first + t·step ..][.. taps] · weights + bias, rows outside the source being zero.
#[derive(Clone, Copy)]
pub struct Slide<T> {
    pub samples: usize,
    /// (samples, source_rows, source_width) contiguous.
    pub source: *const T,
    pub source_rows: usize,
    pub source_width: usize,
    /// Source row under the first tap of output row 0.
    pub first: isize,
    pub step: usize,
    pub taps: usize,
    pub bias: Option<*const T>,
    pub target: *mut T,
    pub target_sample: usize,
    pub target_row: usize,
    pub target_rows: usize,
    pub target_width: usize,
}

/// A cut of `samples` sequences of `rows` output rows into tiles of nearly equal size.
#[derive(Clone, Copy)]
pub struct Tiles {
    rows: usize,
    /// Rows of a tile; the last of a sample may have fewer.
    pub tile: usize,
    per_sample: usize,
    pub count: usize,
}

impl Tiles {
    pub fn new(samples: usize, rows: usize) -> Self {
        let tile = rows.div_ceil(rows.div_ceil(TILE).max(1)).max(1);
        let per_sample = rows.div_ceil(tile);
        Tiles { rows, tile, per_sample, count: samples * per_sample }
    }

    /// Rows of a sample's last tile.
    fn last(&self) -> usize {
        self.rows - self.per_sample.saturating_sub(1) * self.tile
    }

    /// Sample, first row and number of rows of tile `index`.
    pub fn get(&self, index: usize) -> (usize, usize, usize) {
        let first = index % self.per_sample * self.tile;
        (index / self.per_sample, first, self.tile.min(self.rows - first))
    }
}

impl<T> Slide<T> {
    fn tiles(&self) -> Tiles {
        Tiles::new(self.samples, self.target_rows)
    }

    fn window(&self) -> usize {
        self.taps * self.source_width
    }

    /// Source rows that `rows` output rows look at.
    fn span(&self, rows: usize) -> usize {
        (rows - 1) * self.step + self.taps
    }

    fn dims(&self, rows: usize) -> Dims {
        Dims { m: rows, n: self.target_width, k: self.window() }
    }

    fn packed_len(&self) -> usize {
        packed_b_len(self.target_width, self.window())
    }

    /// Per worker: the padded rows of a tile, and what the product wants for a full tile or a sample's last one.
    fn worker_len(&self) -> usize {
        let tiles = self.tiles();
        let product = [tiles.tile, tiles.last()].map(|rows| scratch_len(self.dims(rows), 1));
        self.span(tiles.tile) * self.source_width + product[0].max(product[1])
    }
}

/// Elements of scratch that [`slide`] needs.
pub fn slide_scratch<T>(slide: &Slide<T>, threads: usize) -> usize {
    slide.packed_len() + threads.min(slide.tiles().count) * slide.worker_len()
}

/// Copies rows `first .. first + target.len() / width` of a sequence, zeros where it has none.
pub fn copy_rows<T: Float>(sequence: &[T], width: usize, first: isize, target: &mut [T]) {
    let rows = target.len() / width.max(1);
    let before = first.min(0).unsigned_abs().min(rows);
    let source = &sequence[(first.max(0) as usize * width).min(sequence.len())..];
    let (zeros, rest) = target.split_at_mut(before * width);
    let (copied, after) = rest.split_at_mut(rest.len().min(source.len()));
    zeros.fill(T::ZERO);
    copied.copy_from_slice(&source[..copied.len()]);
    after.fill(T::ZERO);
}

/// Runs the product with `weights` (taps·source_width, target_width). Tiles are computed alone, each by one worker, so
/// the bits do not depend on how they are shared out.
///
/// # Safety
/// Source, bias and target are valid for the sizes stated; the target's rows overlap nothing.
pub unsafe fn slide<T: Float>(slide: &Slide<T>, weights: &[T], scratch: &mut [T]) {
    let count = slide.tiles().count;
    if count == 0 || slide.target_width == 0 {
        return;
    }
    let (packed, rest) = scratch.split_at_mut(slide.packed_len());
    let b = Matrix { ptr: weights.as_ptr(), row_stride: slide.target_width, col_stride: 1 };
    // SAFETY: `weights` holds window × target_width values.
    unsafe { pack_b(slide.target_width, slide.window(), b, packed) };
    let workers = threads().min(count);
    let run = Run { slide, packed, workers: SharedMut::new(rest.as_mut_ptr()) };
    assert!(rest.len() >= workers * slide.worker_len(), "scratch is smaller than slide_scratch says");
    parallel(workers, |worker| {
        for index in worker * count / workers..(worker + 1) * count / workers {
            // SAFETY: tiles have disjoint targets, workers disjoint scratch.
            unsafe { run.tile(worker, index) }
        }
    });
}

struct Run<'a, T> {
    slide: &'a Slide<T>,
    packed: &'a [T],
    workers: SharedMut<T>,
}

// SAFETY: workers write disjoint parts of the target and of the scratch.
unsafe impl<T: Send> Sync for Run<'_, T> {}

impl<T: Float> Run<'_, T> {
    unsafe fn tile(&self, worker: usize, index: usize) {
        let (s, len) = (self.slide, self.slide.worker_len());
        let (sample, row, rows) = s.tiles().get(index);
        let (width, first) = (s.source_width, s.first + (row * s.step) as isize);
        unsafe {
            let sequence = from_raw_parts(s.source.add(sample * s.source_rows * width), s.source_rows * width);
            let own = from_raw_parts_mut(self.workers.ptr().add(worker * len), len);
            let (padded, product) = own.split_at_mut(s.span(s.tiles().tile) * width);
            let inside = first >= 0 && first as usize + s.span(rows) <= s.source_rows;
            let windows = if inside {
                sequence[first as usize * width..].as_ptr()
            } else {
                copy_rows(sequence, width, first, &mut padded[..s.span(rows) * width]);
                padded.as_ptr()
            };
            let a = Matrix { ptr: windows, row_stride: s.step * width, col_stride: 1 };
            let target = s.target.add(sample * s.target_sample + row * s.target_row);
            let epilogue = Epilogue { alpha: T::ONE, bias: s.bias, activation: Activation::None, accumulate: false };
            gemm_packed_b(s.dims(rows), a, self.packed, target, s.target_row, epilogue, product);
        }
    }
}
