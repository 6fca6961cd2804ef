//! AVX2 with FMA: tiles of up to 6 × 16 (12 sums, 2 vectors of B, one broadcast), twice for a panel of 32 columns.

use super::{Kernel, Lanes, Tile};
use std::arch::x86_64::*;

const WIDTH: usize = 8;
const TILE: usize = 2 * WIDTH;

pub(super) const KERNEL: Kernel<f32> = Kernel { max_rows: 6, tile, transpose };

/// # Safety
/// See [`super::Kernel::tile`]; the machine has AVX2 and FMA, as `Kernel::detect` has seen.
unsafe fn tile(rows: usize, tile: &Tile<f32>) {
    for first in (0..tile.cols).step_by(TILE) {
        // SAFETY: the machine has AVX2 and FMA, or this kernel would not have been chosen; the tile is as the caller
        // promises.
        unsafe {
            match rows {
                1 => fixed::<1>(tile, first),
                2 => fixed::<2>(tile, first),
                3 => fixed::<3>(tile, first),
                4 => fixed::<4>(tile, first),
                5 => fixed::<5>(tile, first),
                6 => fixed::<6>(tile, first),
                _ => unreachable!("a tile has 1 to 6 rows, not {rows}"),
            }
        }
    }
}

/// # Safety
/// See [`super::Kernel::tile`]; the machine has AVX2 and FMA, as `Kernel::detect` has seen. `first` is a multiple of
/// TILE below NR.
#[target_feature(enable = "avx2,fma")]
unsafe fn fixed<const ROWS: usize>(tile: &Tile<f32>, first: usize) {
    // SAFETY: rows of B hold NR elements, so two vectors from `first` on are there; rows of A are the tile's.
    unsafe {
        let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
        let (mut a, mut b) = (tile.a, tile.b.add(first));
        for _ in 0..tile.depth {
            let right = [_mm256_loadu_ps(b), _mm256_loadu_ps(b.add(WIDTH))];
            for (row, sums) in sums.iter_mut().enumerate() {
                let left = _mm256_set1_ps(*a.add(row * tile.a_row));
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm256_fmadd_ps(left, right[v], *sum);
                }
            }
            a = a.wrapping_add(tile.a_step);
            b = b.wrapping_add(tile.b_step);
        }
        for v in 0..2 {
            let column = first + v * WIDTH;
            if column < tile.cols {
                finish(tile, column, sums.map(|sums| sums[v]));
            }
        }
    }
}

/// Writes one vector of columns of the tile.
///
/// # Safety
/// See [`super::Kernel::tile`]; the machine has AVX2 and FMA, as `Kernel::detect` has seen. `column` is one of the
/// tile's.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn finish<const ROWS: usize>(tile: &Tile<f32>, column: usize, sums: [__m256; ROWS]) {
    // SAFETY: lanes beyond the columns of the tile are masked: neither read nor written.
    unsafe {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let mask = _mm256_cmpgt_epi32(_mm256_set1_epi32((tile.cols - column).min(WIDTH) as i32), lanes);
        let alpha = _mm256_set1_ps(tile.alpha);
        let bias = match tile.bias {
            Some(bias) => _mm256_maskload_ps(bias.add(column), mask),
            None => _mm256_setzero_ps(),
        };
        for (row, &sum) in sums.iter().enumerate() {
            let c = tile.c.add(row * tile.ldc + column);
            let held = if tile.add { _mm256_add_ps(_mm256_maskload_ps(c, mask), bias) } else { bias };
            _mm256_maskstore_ps(c, mask, _mm256_fmadd_ps(sum, alpha, held));
        }
    }
}

/// # Safety
/// See [`super::Kernel::transpose`]; the machine has AVX2.
unsafe fn transpose(lanes: &Lanes<f32>, dst: *mut f32) {
    // SAFETY: the machine has AVX2, or this kernel would not have been chosen.
    unsafe { transpose_lanes(lanes, dst) }
}

/// # Safety
/// See [`super::Kernel::transpose`].
#[target_feature(enable = "avx2")]
unsafe fn transpose_lanes(lanes: &Lanes<f32>, dst: *mut f32) {
    // Short runs of steps keep the lines being written in the first-level cache.
    for first in (0..lanes.steps).step_by(WIDTH) {
        // SAFETY: steps and lanes of the caller's, in pieces.
        unsafe { lanes.copy(first..(first + WIDTH).min(lanes.steps), 0..lanes.lanes, dst) };
    }
}
