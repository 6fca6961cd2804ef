//! Matrix products: our own packed driver and micro-kernels, so that a product never allocates and its bits never
//! depend on the number of threads.
//!
//! A product is cut into one rectangle of C per task ([`blocking::Grid`]); each task walks its rectangle with the
//! serial driver and its own slice of the scratch. The sum over k runs in blocks whose size depends on k alone
//! ([`blocking::k_block`]), in ascending order, each block summed by one chain of fused multiply-adds per element:
//! that is why every cut into tasks, panels and tiles gives the same bits.

mod blocking;
mod driver;
mod epilogue;
mod kernel;
mod pack;
#[cfg(test)]
mod tests;

use super::float::Float;
use super::parallel::{SharedMut, parallel, threads};
use blocking::{Grid, Split};
use driver::{Product, Right};
use kernel::Kernel;

pub(crate) use epilogue::QUICK;
pub use epilogue::{Activation, Epilogue};

/// A matrix anywhere in memory; strides are in elements and may be anything (a transpose swaps them).
#[derive(Clone, Copy, Debug)]
pub struct Matrix<T> {
    pub ptr: *const T,
    pub row_stride: usize,
    pub col_stride: usize,
}

// SAFETY: a Matrix only reads, and the caller of a product promises that nothing writes what it reads.
unsafe impl<T: Sync> Send for Matrix<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Sync> Sync for Matrix<T> {}

impl<T: Copy> Matrix<T> {
    /// # Safety
    /// The matrix covers the element, or the operand that starts there has none.
    #[inline(always)]
    unsafe fn offset(self, row: usize, col: usize) -> Self {
        // SAFETY: the element is one of the matrix, as the caller promises.
        unsafe { self.further(row * self.row_stride + col * self.col_stride) }
    }

    /// # Safety
    /// So many elements lie behind `ptr`.
    #[inline(always)]
    unsafe fn further(self, elements: usize) -> Self {
        // SAFETY: so many elements lie behind it, as the caller promises.
        Matrix { ptr: unsafe { self.ptr.add(elements) }, ..self }
    }
}

/// C is m × n, A is m × k, B is k × n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dims {
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

/// Elements of scratch for [`gemm`] on up to `threads` threads: no fewer for a product that is larger in any direction.
pub fn scratch_len(dims: Dims, threads: usize) -> usize {
    blocking::scratch_up_to(dims, threads)
}

/// Elements of scratch that are enough for [`gemm_serial`] of any shape up to `most` in each direction.
pub(crate) fn serial_scratch_up_to(most: Dims) -> usize {
    blocking::serial_scratch_up_to(most)
}

/// `c[i * ldc + j] = act(alpha · (a · b)[i][j] + bias[j] (+ c[i][j]))`, on as many threads as the pool has and
/// `scratch` allows (at least `scratch_len(dims, 1)` elements, which means one thread).
///
/// # Safety
/// `a`, `b`, `bias` and `c` cover the shapes given; `c` overlaps none of them and nothing else touches it meanwhile.
pub unsafe fn gemm<T: Float>(
    dims: Dims,
    a: Matrix<T>,
    b: Matrix<T>,
    c: *mut T,
    ldc: usize,
    epilogue: Epilogue<T>,
    scratch: &mut [T],
) {
    let grid = Grid::fitting(dims, threads(), scratch.len());
    if grid.tasks() == 1 {
        // SAFETY: the same promise.
        return unsafe { gemm_serial(dims, a, b, c, ldc, epilogue, scratch) };
    }
    let kernel = Kernel::<T>::detect();
    let share = grid.task_scratch(dims);
    let (c, pool) = (SharedMut::new(c), SharedMut::new(scratch.as_mut_ptr()));
    parallel(grid.tasks(), |task| {
        let (rows, cols) = grid.rectangle(dims, task);
        if rows.is_empty() || cols.is_empty() {
            return;
        }
        // SAFETY: rectangles of C and shares of the scratch are disjoint; the rest is the caller's promise.
        unsafe {
            let product = Product {
                kernel: &kernel,
                dims: Dims { m: rows.len(), n: cols.len(), k: dims.k },
                a: a.offset(rows.start, 0),
                c: c.ptr().add(rows.start * ldc + cols.start),
                ldc,
                epilogue: epilogue.at_column(cols.start),
            };
            product.run(Right::Plain(b.offset(0, cols.start)), pool.slice(task * share, share));
        }
    });
}

/// The same product, with the same bits, on the calling thread only: for callers already inside a parallel task.
/// Needs `scratch_len(dims, 1)` elements.
///
/// # Safety
/// As [`gemm`].
pub unsafe fn gemm_serial<T: Float>(
    dims: Dims,
    a: Matrix<T>,
    b: Matrix<T>,
    c: *mut T,
    ldc: usize,
    epilogue: Epilogue<T>,
    scratch: &mut [T],
) {
    let product = Product { kernel: &Kernel::detect(), dims, a, c, ldc, epilogue };
    // SAFETY: the same promise; the scratch's length is checked.
    unsafe { product.run(Right::Plain(b), scratch) };
}

/// Elements that [`pack_b`] writes for a k × n matrix.
pub fn packed_b_len(n: usize, k: usize) -> usize {
    n.next_multiple_of(blocking::NR) * k
}

/// Packs B once, to be used by many [`gemm_packed_b`].
///
/// # Safety
/// `b` covers k × n.
pub unsafe fn pack_b<T: Float>(n: usize, k: usize, b: Matrix<T>, dst: &mut [T]) {
    assert!(dst.len() >= packed_b_len(n, k), "packed B needs {} elements", packed_b_len(n, k));
    let (kernel, width) = (Kernel::<T>::detect(), n.next_multiple_of(blocking::NR));
    for depth in Split::k_blocks(k) {
        let block = &mut dst[depth.start * width..depth.end * width];
        // SAFETY: the rows lie in B, and the block holds them packed.
        unsafe { pack::block_b(&kernel, depth.len(), n, b.offset(depth.start, 0), block) };
    }
}

/// [`gemm_serial`] with a B packed by [`pack_b`]: the same bits, the same scratch.
///
/// # Safety
/// As [`gemm`]; `packed` was written by `pack_b(dims.n, dims.k, …)`.
pub unsafe fn gemm_packed_b<T: Float>(
    dims: Dims,
    a: Matrix<T>,
    packed: &[T],
    c: *mut T,
    ldc: usize,
    epilogue: Epilogue<T>,
    scratch: &mut [T],
) {
    assert!(packed.len() >= packed_b_len(dims.n, dims.k), "packed B is too short for {dims:?}");
    let product = Product { kernel: &Kernel::detect(), dims, a, c, ldc, epilogue };
    // SAFETY: the same promise; `packed` is as long as it must be.
    unsafe { product.run(Right::Packed(packed.as_ptr()), scratch) };
}

/// Elements of scratch for [`gemm_batch`] on up to `threads` threads: no fewer for as many products that are larger.
pub(crate) fn batch_scratch_len(count: usize, dims: Dims, threads: usize) -> usize {
    let tasks = blocking::batch_tasks(count, dims, threads);
    if tasks == 1 { scratch_len(dims, threads) } else { tasks * serial_scratch_up_to(dims) }
}

/// `count` products, the i-th at `i` times the batch strides: parallel over the batch when that fills the threads,
/// else inside each product. A batch stride of 0 shares an operand.
///
/// # Safety
/// As [`gemm`] for each product; the products' parts of `c` are disjoint.
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn gemm_batch<T: Float>(
    count: usize,
    dims: Dims,
    a: Matrix<T>,
    a_batch_stride: usize,
    b: Matrix<T>,
    b_batch_stride: usize,
    c: *mut T,
    ldc: usize,
    c_batch_stride: usize,
    epilogue: Epilogue<T>,
    scratch: &mut [T],
) {
    let share = blocking::serial_scratch(dims);
    let tasks = blocking::batch_tasks(count, dims, threads()).min(scratch.len() / share.max(1)).max(1);
    let c = SharedMut::new(c);
    // SAFETY: there are `count` products, and `i` is one of them.
    let item = |i: usize| unsafe {
        (a.further(i * a_batch_stride), b.further(i * b_batch_stride), c.ptr().add(i * c_batch_stride))
    };
    if tasks == 1 {
        for (a, b, c) in (0..count).map(item) {
            // SAFETY: each product keeps the promise of `gemm`.
            unsafe { gemm(dims, a, b, c, ldc, epilogue, scratch) };
        }
        return;
    }
    let pool = SharedMut::new(scratch.as_mut_ptr());
    parallel(tasks, |task| {
        // SAFETY: shares of the scratch are disjoint; the caller promises that the products are.
        let scratch = unsafe { pool.slice(task * share, share) };
        for (a, b, c) in (task * count / tasks..(task + 1) * count / tasks).map(item) {
            // SAFETY: each product keeps the promise of `gemm`; a task has products and scratch of its own.
            unsafe { gemm_serial(dims, a, b, c, ldc, epilogue, scratch) };
        }
    });
}
