//! AVX-512: tiles of up to 14 × 32, that is 28 sums, 2 vectors of B and one broadcast of A in 32 registers.

use super::{Kernel, Lanes, Tile};
use crate::kernels::cpu::gemm::blocking::MAX_ROWS;
use std::arch::x86_64::*;

const WIDTH: usize = 16;

pub(super) const KERNEL: Kernel<f32> = Kernel { max_rows: MAX_ROWS, tile, transpose };

/// # Safety
/// See [`super::Kernel::tile`]; the machine has AVX-512F.
unsafe fn tile(rows: usize, tile: &Tile<f32>) {
    macro_rules! dispatch {
        ($($rows:literal)*) => {
            match (rows, tile.cols > WIDTH) {
                $(($rows, true) => fixed::<$rows, 2>(tile), ($rows, false) => fixed::<$rows, 1>(tile),)*
                _ => unreachable!("a tile has 1 to 14 rows, not {rows}"),
            }
        };
    }
    // SAFETY: the machine has AVX-512F, or this kernel would not have been chosen; the tile is as the caller
    // promises.
    unsafe { dispatch!(1 2 3 4 5 6 7 8 9 10 11 12 13 14) }
}

/// # Safety
/// See [`super::Kernel::tile`]; the machine has AVX-512F. `rows` is ROWS, and VECTORS vectors cover the columns.
#[target_feature(enable = "avx512f")]
unsafe fn fixed<const ROWS: usize, const VECTORS: usize>(tile: &Tile<f32>) {
    // SAFETY: as the caller promises; a tile of more than WIDTH columns has two vectors.
    unsafe {
        if tile.add {
            prefetch_c::<ROWS, VECTORS>(tile);
        }
        // Packed panels have their row stride known: the address arithmetic disappears.
        if tile.a_row == 1 && tile.a_step == ROWS {
            let sums = sum::<ROWS, VECTORS>(tile, 1, ROWS);
            finish(tile, sums);
        } else {
            let sums = sum::<ROWS, VECTORS>(tile, tile.a_row, tile.a_step);
            finish(tile, sums);
        }
    }
}

/// # Safety
/// The machine has AVX-512F. No memory is read.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn prefetch_c<const ROWS: usize, const VECTORS: usize>(tile: &Tile<f32>) {
    for row in 0..ROWS {
        for v in 0..VECTORS {
            // Prefetching past the end of C is harmless.
            _mm_prefetch::<_MM_HINT_T0>(tile.c.wrapping_add(row * tile.ldc + v * WIDTH).cast());
        }
    }
}

/// # Safety
/// See [`super::Kernel::tile`]; the machine has AVX-512F.
#[inline(always)]
unsafe fn sum<const ROWS: usize, const VECTORS: usize>(
    tile: &Tile<f32>,
    a_row: usize,
    a_step: usize,
) -> [[__m512; VECTORS]; ROWS] {
    // SAFETY: rows of B hold NR elements, which are two vectors; rows of A are the tile's. Pointers past the last
    // step are not read.
    unsafe {
        let mut sums = [[_mm512_setzero_ps(); VECTORS]; ROWS];
        let (mut a, mut b) = (tile.a, tile.b);
        for _ in 0..tile.depth {
            let mut right = [_mm512_setzero_ps(); VECTORS];
            for (v, right) in right.iter_mut().enumerate() {
                *right = _mm512_loadu_ps(b.add(v * WIDTH));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let left = _mm512_set1_ps(*a.add(row * a_row));
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm512_fmadd_ps(left, right[v], *sum);
                }
            }
            a = a.wrapping_add(a_step);
            b = b.wrapping_add(tile.b_step);
        }
        sums
    }
}

/// # Safety
/// See [`super::Kernel::tile`]; the machine has AVX-512F.
#[inline(always)]
unsafe fn finish<const ROWS: usize, const VECTORS: usize>(tile: &Tile<f32>, sums: [[__m512; VECTORS]; ROWS]) {
    // SAFETY: lanes beyond the columns of the tile are masked: neither read nor written.
    unsafe {
        let alpha = _mm512_set1_ps(tile.alpha);
        for v in 0..VECTORS {
            let mask = lane_mask(tile.cols - v * WIDTH);
            let bias = match tile.bias {
                Some(bias) => _mm512_maskz_loadu_ps(mask, bias.wrapping_add(v * WIDTH)),
                None => _mm512_setzero_ps(),
            };
            for (row, sums) in sums.iter().enumerate() {
                let c = tile.c.wrapping_add(row * tile.ldc + v * WIDTH);
                let held = if tile.add { _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c), bias) } else { bias };
                _mm512_mask_storeu_ps(c, mask, _mm512_fmadd_ps(sums[v], alpha, held));
            }
        }
    }
}

#[inline(always)]
fn lane_mask(lanes: usize) -> __mmask16 {
    if lanes >= WIDTH { !0 } else { (1 << lanes) - 1 }
}

/// # Safety
/// See [`super::Kernel::transpose`]; the machine has AVX-512F.
unsafe fn transpose(lanes: &Lanes<f32>, dst: *mut f32) {
    // SAFETY: the machine has AVX-512F, or this kernel would not have been chosen.
    unsafe { transpose_lanes(lanes, dst) }
}

/// # Safety
/// See [`super::Kernel::transpose`].
#[target_feature(enable = "avx512f")]
unsafe fn transpose_lanes(lanes: &Lanes<f32>, dst: *mut f32) {
    if lanes.lane_stride == 1 {
        // SAFETY: as the caller promises; lanes lie side by side.
        return unsafe { copy_lines(lanes, dst) };
    }
    for first in (0..lanes.lanes).step_by(WIDTH) {
        let group = first..(first + WIDTH).min(lanes.lanes);
        if lanes.step_stride != 1 {
            // SAFETY: steps and lanes of the caller's, in pieces.
            unsafe { lanes.copy(0..lanes.steps, group, dst) };
            continue;
        }
        for step in (0..lanes.steps).step_by(WIDTH) {
            // SAFETY: at most WIDTH lanes and steps of the caller's, with steps side by side.
            unsafe { transpose_square(lanes, group.clone(), step, WIDTH.min(lanes.steps - step), dst) };
        }
    }
}

/// Lanes that lie side by side already: a masked copy per step. The steps may be pages apart, where the hardware does
/// not prefetch.
///
/// # Safety
/// See [`super::Kernel::transpose`]; `lane_stride` is 1.
#[inline(always)]
unsafe fn copy_lines(lanes: &Lanes<f32>, dst: *mut f32) {
    const AHEAD: usize = 16;
    for step in 0..lanes.steps {
        for first in (0..lanes.lanes).step_by(WIDTH) {
            // SAFETY: reads are masked to the lanes there are; `dst` has room for whole vectors.
            unsafe {
                let source = lanes.source(first, step);
                _mm_prefetch::<_MM_HINT_T0>(source.wrapping_add(AHEAD * lanes.step_stride).cast());
                let line = _mm512_maskz_loadu_ps(lane_mask(lanes.lanes - first), source);
                _mm512_storeu_ps(dst.add(step * lanes.dst_step + first), line);
            }
        }
    }
}

/// Up to 16 lanes by up to 16 steps. Writes whole vectors: the next step's write repairs what the last one spilled.
///
/// # Safety
/// See [`super::Kernel::transpose`]; `step_stride` is 1, the group and `steps` are at most WIDTH.
#[inline(always)]
unsafe fn transpose_square(
    lanes: &Lanes<f32>,
    group: std::ops::Range<usize>,
    first: usize,
    steps: usize,
    dst: *mut f32,
) {
    // SAFETY: reads are masked to the steps there are; `dst` has room for whole vectors.
    unsafe {
        let mask = lane_mask(steps);
        let mut rows = [_mm512_setzero_ps(); WIDTH];
        for (row, lane) in rows.iter_mut().zip(group.clone()) {
            *row = _mm512_maskz_loadu_ps(mask, lanes.source(lane, first));
        }
        let columns = transposed(rows);
        for (step, column) in columns.iter().enumerate().take(steps) {
            _mm512_storeu_ps(dst.add((first + step) * lanes.dst_step + group.start), *column);
        }
    }
}

/// A 16 × 16 transpose in four rounds: pairs, quads, then 128-bit lanes twice.
///
/// # Safety
/// The machine has AVX-512F.
#[inline(always)]
unsafe fn transposed(r: [__m512; 16]) -> [__m512; 16] {
    // SAFETY: only registers are moved; the machine has AVX-512F.
    unsafe {
        let mut pairs = r;
        for i in 0..8 {
            pairs[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
            pairs[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
        }
        // quads[4 q + j]: in each 128-bit lane L, column 4 L + j of rows 4 q to 4 q + 3.
        let mut quads = r;
        for q in 0..4 {
            for high in 0..2 {
                let low = _mm512_castps_pd(pairs[4 * q + high]);
                let up = _mm512_castps_pd(pairs[4 * q + 2 + high]);
                quads[4 * q + 2 * high] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, up));
                quads[4 * q + 2 * high + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, up));
            }
        }
        let mut columns = r;
        for j in 0..4 {
            let even_low = _mm512_shuffle_f32x4::<0x88>(quads[j], quads[4 + j]);
            let odd_low = _mm512_shuffle_f32x4::<0xdd>(quads[j], quads[4 + j]);
            let even_high = _mm512_shuffle_f32x4::<0x88>(quads[8 + j], quads[12 + j]);
            let odd_high = _mm512_shuffle_f32x4::<0xdd>(quads[8 + j], quads[12 + j]);
            columns[j] = _mm512_shuffle_f32x4::<0x88>(even_low, even_high);
            columns[4 + j] = _mm512_shuffle_f32x4::<0x88>(odd_low, odd_high);
            columns[8 + j] = _mm512_shuffle_f32x4::<0xdd>(even_low, even_high);
            columns[12 + j] = _mm512_shuffle_f32x4::<0xdd>(odd_low, odd_high);
        }
        columns
    }
}
