//! CUDA: what an op sees when it is put on a stream, and who takes its launches.

mod compile;
mod launch;
mod libraries;
mod record;
mod recorder;

pub use compile::{Compiler, OLDEST_ARCH, cache_folder};
pub use launch::{Arg, CudaError, DeviceTensor, Gemm, Grid, Kernel, Launch, Matrix, Queue, Source, device_name};
pub use libraries::Library;
pub use record::{record_node, record_phase};
pub use recorder::{Recorded, Recorder};
