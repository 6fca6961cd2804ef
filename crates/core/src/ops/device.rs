//! What the heavy CUDA kernels share on the host: how a workspace is cut, and products of matrices inside tensors.

use crate::graph::Op;
use crate::kernels::cuda::{Arg, CudaError, Gemm, Grid, Kernel, Launch, Matrix, Source};
use crate::types::{DType, Type};

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

const SUMS: Source = Source { name: "device", text: include_str!("device.cu") };

/// `to` (count) = the sum of `many` parts (count) in f32, the first one first.
pub(super) fn add_up(
    launch: &mut Launch<'_>,
    dtype: DType,
    parts: u64,
    to: u64,
    count: usize,
    many: usize,
) -> Result<(), CudaError> {
    let args = [Arg::Address(parts), Arg::Address(to), count.into(), many.into()];
    run_over(launch, &Kernel::new(SUMS, "add_up").dtype("T", dtype), count, &args)
}

/// f32 values in the type that is stored.
pub(super) fn round_to(
    launch: &mut Launch<'_>,
    dtype: DType,
    from: u64,
    to: u64,
    count: usize,
) -> Result<(), CudaError> {
    let args = [Arg::Address(from), Arg::Address(to), count.into()];
    run_over(launch, &Kernel::new(SUMS, "round_to").dtype("T", dtype), count, &args)
}

/// A kernel of one thread per element, unless there are none.
pub(super) fn run_over(
    launch: &mut Launch<'_>,
    kernel: &Kernel,
    elements: usize,
    args: &[Arg],
) -> Result<(), CudaError> {
    if elements == 0 { Ok(()) } else { launch.kernel(kernel, Grid::over(elements, 1), args) }
}

/// Stretches of rows whose sums are parts of one: how long each is, and how many there are. A function of the number of
/// rows alone, so the order of a sum is too.
pub(super) fn stretches(rows: usize) -> (usize, usize) {
    let length = rows.div_ceil(256).max(64);
    (length, rows.div_ceil(length))
}
