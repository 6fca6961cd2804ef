//! CUDA: what an op sees when it is put on a stream, and who takes its launches.

mod blas;
mod commands;
mod compile;
mod driver;
mod executor;
mod faults;
mod gpu;
mod join;
mod landing;
mod launch;
mod libraries;
mod modules;
mod readback;
mod record;
mod recorder;
mod reserve;
mod staging;
mod sweep;

pub use blas::Products;
pub use compile::{Compiler, OLDEST_ARCH, cache_folder};
pub use driver::{DriverFacts, device_count};
pub use executor::{CudaExecutor, CudaOptions};
pub use gpu::{Gpu, opened_bytes};
pub use join::Shares;
pub use launch::{Arg, CudaError, DeviceTensor, Gemm, Grid, Kernel, Launch, Matrix, Queue, Source, device_name};
pub use libraries::Library;
pub use record::{Bases, record_node, record_phase};
pub use recorder::{Recorded, Recorder};
pub use reserve::estimated_reserve_bytes;
pub use staging::half_bytes as staging_half_bytes;
pub use sweep::{Set, Sweep};
