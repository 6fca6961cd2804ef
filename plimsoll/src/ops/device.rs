//! What the heavy CUDA kernels share on the host: how a workspace is cut, and products of matrices inside tensors.

use super::Op;
use crate::exec::cuda::{Arg, CudaError, Gemm, Launch, Matrix};
use crate::graph::{DType, Type};

/// Scratch that a product of the library may use where it sums over many rows.
pub(super) const GEMM_BYTES: usize = 4 << 20;

/// Cuts a workspace: the same cuts give its size in a plan and its addresses on the device.
pub(super) struct Regions {
    next: u64,
}

impl Regions {
    pub fn new(start: u64) -> Regions {
        Regions { next: start }
    }

    /// The start of the next region of this many bytes.
    pub fn take(&mut self, bytes: usize) -> u64 {
        let start = self.next;
        self.next += (bytes as u64).next_multiple_of(256);
        start
    }

    /// One past the last region.
    pub fn end(&self) -> u64 {
        self.next
    }
}

/// Kernels compute in f32 on f32, bf16 and f16.
pub(super) fn refuse_f64(op: &dyn Op, ty: &Type) -> Result<(), CudaError> {
    match ty.dtype {
        DType::F64 => Err(CudaError::NoKernel { op: format!("{op:?}"), dtype: DType::F64 }),
        _ => Ok(()),
    }
}

pub(super) fn int(n: usize) -> Arg {
    Arg::I32(n as i32)
}

/// A matrix whose rows are contiguous and `stride` elements apart.
pub(super) fn by_rows(address: u64, dtype: DType, stride: usize) -> Matrix {
    Matrix { address, dtype, row_stride: stride, column_stride: 1, batch_stride: 0 }
}

/// The transpose of such a matrix.
pub(super) fn by_columns(address: u64, dtype: DType, stride: usize) -> Matrix {
    Matrix { row_stride: 1, column_stride: stride, ..by_rows(address, dtype, stride) }
}

/// The first of several matrices, `stride` elements apart.
pub(super) fn every(stride: usize, matrix: Matrix) -> Matrix {
    Matrix { batch_stride: stride, ..matrix }
}

/// `c = a · b` for one product of (m, n, k); change what is different.
pub(super) fn product([m, n, k]: [usize; 3], a: Matrix, b: Matrix, c: Matrix) -> Gemm {
    let (alpha, beta, bias, tf32) = (1.0, 0.0, None, false);
    Gemm { m, n, k, batch: 1, a, b, c, alpha, beta, bias, tf32, workspace: 0, workspace_bytes: 0 }
}

/// Puts a product on the queue, with tf32 where the launch allows it.
pub(super) fn multiply(launch: &mut Launch<'_>, gemm: Gemm) -> Result<(), CudaError> {
    let gemm = Gemm { tf32: launch.tf32, ..gemm };
    launch.queue.gemm(&gemm)
}
