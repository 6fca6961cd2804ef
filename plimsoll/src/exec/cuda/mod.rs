//! CUDA: what an op sees when it is put on a stream, and who takes its launches.

mod launch;
mod recorder;

pub use launch::{Arg, CudaError, DeviceTensor, Gemm, Grid, Kernel, Launch, Matrix, Queue, Source};
pub use recorder::{Recorded, Recorder};
