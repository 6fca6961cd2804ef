//! Register tiles: a few rows times `WIDTH` columns of C = start + A·B, summed in order over the depth.

use super::super::super::float::Float;

/// Columns of a tile: two AVX-512 vectors of f32.
pub(super) const WIDTH: usize = 32;
const ROWS: usize = 4;

/// A matrix whose element (r, c) lies at `r · row + c · column`.
#[derive(Clone, Copy)]
pub(super) struct Strided<T> {
    pub ptr: *const T,
    pub row: usize,
    pub column: usize,
}

/// A matrix whose rows are contiguous; a `row` of 0 repeats one row.
#[derive(Clone, Copy)]
pub(super) struct Matrix<T> {
    pub ptr: *mut T,
    pub row: usize,
}

impl<T> Matrix<T> {
    #[inline(always)]
    pub unsafe fn at(self, row: usize, column: usize) -> Self {
        Matrix { ptr: unsafe { self.ptr.add(row * self.row + column) }, row: self.row }
    }
    /// The same elements as the left side of a product.
    #[inline(always)]
    pub fn left(self) -> Strided<T> {
        Strided { ptr: self.ptr, row: self.row, column: 1 }
    }
    /// Its transpose as the left side of a product.
    #[inline(always)]
    pub fn transposed(self) -> Strided<T> {
        Strided { ptr: self.ptr, row: 1, column: self.row }
    }
}

/// C (rows × WIDTH) = start + A (rows × depth) · B (depth × WIDTH). `c` may be `start`.
#[inline(always)]
pub(super) unsafe fn product<T: Float>(
    rows: usize,
    depth: usize,
    a: Strided<T>,
    b: Matrix<T>,
    start: Matrix<T>,
    c: Matrix<T>,
) {
    let mut row = 0;
    while row < rows {
        let a = Strided { ptr: unsafe { a.ptr.add(row * a.row) }, ..a };
        let (start, c) = unsafe { (start.at(row, 0), c.at(row, 0)) };
        if rows - row >= ROWS {
            unsafe { tile::<T, ROWS>(depth, a, b, start, c) };
            row += ROWS;
        } else {
            unsafe { tile::<T, 1>(depth, a, b, start, c) };
            row += 1;
        }
    }
}

#[inline(always)]
unsafe fn tile<T: Float, const R: usize>(depth: usize, a: Strided<T>, b: Matrix<T>, start: Matrix<T>, c: Matrix<T>) {
    let lanes = |m: Matrix<T>, row: usize| unsafe { m.at(row, 0).ptr.cast::<[T; WIDTH]>() };
    let mut sums = [[T::ZERO; WIDTH]; R];
    for r in 0..R {
        sums[r] = unsafe { *lanes(start, r) };
    }
    for p in 0..depth {
        let right = unsafe { &*lanes(b, p) };
        for r in 0..R {
            let left = unsafe { *a.ptr.add(r * a.row + p * a.column) };
            for l in 0..WIDTH {
                sums[r][l] = left.mul_add(right[l], sums[r][l]);
            }
        }
    }
    for r in 0..R {
        unsafe { *lanes(c, r) = sums[r] };
    }
}
