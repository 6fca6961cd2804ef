//! The contract between ops and the device: an op turns its inputs and outputs into kernel launches and products.

use super::Sweep;
use crate::types::{DType, Type};
use plimsoll_base::explain::{DEFECT, Explain, Fault};
use thiserror::Error;

#[derive(Debug, Error, Clone, PartialEq)]
pub enum CudaError {
    #[error("{op} has no CUDA kernel for {dtype}", dtype = dtype.name())]
    NoKernel { op: String, dtype: DType },
    #[error("{op} needs {needs} and was given {given}")]
    Mismatch { op: String, needs: &'static str, given: String },
    #[error("{call}: {cause}")]
    Driver { call: &'static str, cause: String },
    #[error("{cause} ({call}: {code})")]
    Fault { call: &'static str, code: String, cause: &'static str, hint: &'static str },
    #[error("{source_name}.cu does not compile for sm_{arch}:\n{log}")]
    Compile { source_name: &'static str, arch: u32, log: String },
    #[error("{library} is not on this machine")]
    Missing { library: &'static str, remedy: &'static str },
    #[error("{cause}")]
    Unusable { cause: String, hint: String },
    #[error("the device has no {bytes} bytes left in one piece")]
    OutOfMemory { bytes: u64 },
    #[error("{call}: the device has no memory left for it")]
    Full { call: &'static str },
    #[error("the host has no {bytes} bytes that can be pinned")]
    HostMemory { bytes: u64 },
}

impl Explain for CudaError {
    fn lacks_memory(&self) -> bool {
        matches!(self, CudaError::OutOfMemory { .. } | CudaError::Full { .. } | CudaError::HostMemory { .. })
    }

    fn fault(&self) -> Fault {
        match self {
            CudaError::Missing { .. } | CudaError::Unusable { .. } => Fault::BadInput,
            _ => Fault::Failed,
        }
    }

    fn hints(&self) -> Vec<String> {
        let hint = match self {
            CudaError::Missing { remedy, .. } => remedy,
            CudaError::Unusable { hint, .. } => hint.as_str(),
            CudaError::OutOfMemory { .. } | CudaError::Full { .. } => {
                "end what else holds the memory (`plimsoll devices`), or give a smaller --memory"
            }
            CudaError::HostMemory { .. } => {
                "end what else holds memory of this machine, or raise the limit on locked memory (`ulimit -l`)"
            }
            CudaError::Fault { hint, .. } => hint,
            CudaError::NoKernel { .. } => "run it with --device cpu",
            CudaError::Mismatch { .. } => DEFECT,
            CudaError::Compile { .. } => "this is a defect of plimsoll: please report it; --device cpu runs meanwhile",
            CudaError::Driver { .. } => {
                "the device failed; checkpoints written before are whole. `nvidia-smi` shows its state; \
                 go on with --resume, there or, unless the recipe pins a precision that only GPUs have, with \
                 --device cpu"
            }
        };
        vec![hint.into()]
    }
}

/// A value in the device's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceTensor {
    pub address: u64,
    pub ty: Type,
}

/// A file of kernels, compiled together with `kernels/cuda/common.cuh` in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    pub name: &'static str,
    pub text: &'static str,
}

/// One `extern "C"` kernel of a file compiled with these macros: `("T", "bf16")` stands for `#define T bf16`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    pub source: Source,
    pub entry: &'static str,
    pub defines: Vec<(&'static str, String)>,
}

impl Kernel {
    pub fn new(source: Source, entry: &'static str) -> Kernel {
        Kernel { source, entry, defines: Vec::new() }
    }

    pub(crate) fn define(mut self, name: &'static str, value: impl ToString) -> Kernel {
        self.defines.push((name, value.to_string()));
        self
    }

    /// `#define name` as the device's name of this element type: `float`, `bf16`, `half`, `int`, `long long`.
    pub fn dtype(self, name: &'static str, dtype: DType) -> Kernel {
        self.define(name, device_name(dtype))
    }
}

/// What an element type is called in kernels (`bf16` and `half` are typedefs of common.cuh).
pub(crate) fn device_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::F64 => "double",
        DType::Bf16 => "bf16",
        DType::F16 => "half",
        DType::I32 => "int",
        DType::I64 => "long long",
        DType::Bool => "unsigned char",
    }
}

/// Blocks, threads per block, and bytes of dynamic shared memory per block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    pub blocks: [u32; 3],
    pub threads: [u32; 3],
    pub shared_bytes: u32,
}

impl Grid {
    pub fn new(blocks: usize, threads: usize) -> Grid {
        Grid { blocks: [blocks.max(1) as u32, 1, 1], threads: [threads as u32, 1, 1], shared_bytes: 0 }
    }

    /// One thread per `per_thread` elements, in blocks of 256.
    pub(crate) fn over(elements: usize, per_thread: usize) -> Grid {
        Grid::new(elements.div_ceil(256 * per_thread), 256)
    }

    pub fn shared(self, bytes: usize) -> Grid {
        Grid { shared_bytes: bytes as u32, ..self }
    }
}

/// A kernel's argument, by value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    Address(u64),
    U32(u32),
    U64(u64),
    I32(i32),
    I64(i64),
    F32(f32),
}

impl From<&DeviceTensor> for Arg {
    fn from(tensor: &DeviceTensor) -> Arg {
        Arg::Address(tensor.address)
    }
}
impl From<usize> for Arg {
    fn from(n: usize) -> Arg {
        Arg::I64(n as i64)
    }
}
impl From<u32> for Arg {
    fn from(n: u32) -> Arg {
        Arg::U32(n)
    }
}
impl From<i32> for Arg {
    fn from(n: i32) -> Arg {
        Arg::I32(n)
    }
}
impl From<u64> for Arg {
    fn from(n: u64) -> Arg {
        Arg::U64(n)
    }
}
impl From<f32> for Arg {
    fn from(x: f32) -> Arg {
        Arg::F32(x)
    }
}

/// An operand of a product: element (r, c) of product b lies at `address + (b·batch_stride + r·row_stride +
/// c·column_stride)` elements. One of row and column stride is 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Matrix {
    pub address: u64,
    pub dtype: DType,
    pub row_stride: usize,
    pub column_stride: usize,
    pub batch_stride: usize,
}

/// `c (m×n) = alpha · a (m×k) · b (k×n) + beta · c [+ bias over columns]`, `batch` times; c is row-major. Sums are f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemm {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub batch: usize,
    pub a: Matrix,
    pub b: Matrix,
    pub c: Matrix,
    pub alpha: f32,
    pub beta: f32,
    /// n elements of c's type.
    pub bias: Option<u64>,
    /// Whether f32 operands may be rounded to tf32.
    pub tf32: bool,
    /// Scratch of the library, inside the node's workspace.
    pub workspace: u64,
    pub workspace_bytes: usize,
}

/// Who takes launches: a stream that runs them, or a recorder that only looks at them.
pub trait Queue {
    fn kernel(&mut self, kernel: &Kernel, grid: Grid, args: &[Arg]) -> Result<(), CudaError>;
    /// A launch that may become one with others like it.
    fn sweep(&mut self, sweep: Sweep) -> Result<(), CudaError>;
    fn gemm(&mut self, gemm: &Gemm) -> Result<(), CudaError>;
    /// Fills with a byte, in stream order.
    fn fill(&mut self, address: u64, byte: u8, bytes: usize) -> Result<(), CudaError>;
    fn copy(&mut self, to: u64, from: u64, bytes: usize) -> Result<(), CudaError>;
    /// The compute capability that the launches are for: 90 is 9.0. 0 stands for any.
    fn arch(&self) -> u32;
}

/// What one node sees while it is put on a queue.
pub struct Launch<'a> {
    pub inputs: &'a [DeviceTensor],
    pub outputs: &'a [DeviceTensor],
    pub workspace: u64,
    pub workspace_bytes: usize,
    /// Whether f32 products may be computed in tf32 (precision = "tf32").
    pub tf32: bool,
    pub queue: &'a mut dyn Queue,
}

impl Launch<'_> {
    /// Whether the plan put this output where this input is.
    pub(crate) fn is_in_place(&self, output: usize, input: usize) -> bool {
        self.outputs[output].address == self.inputs[input].address
    }

    pub fn kernel(&mut self, kernel: &Kernel, grid: Grid, args: &[Arg]) -> Result<(), CudaError> {
        self.queue.kernel(kernel, grid, args)
    }
}
