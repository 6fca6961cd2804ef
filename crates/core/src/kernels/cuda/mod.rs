//! What an op sees when it is put on a CUDA stream: launches, products, and a recorder that only looks at them. Nothing
//! here needs a driver.

mod launch;
mod recorder;
mod sweep;

pub use launch::{Arg, CudaError, DeviceTensor, Gemm, Grid, Kernel, Launch, Matrix, Queue, Source};
pub use recorder::{Recorded, Recorder};
pub use sweep::{Set, Sweep};

/// Stands in front of every file of kernels: element types, loads and stores, random numbers.
pub const COMMON: &str = include_str!("common.cuh");
