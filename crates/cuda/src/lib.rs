//! The executor for NVIDIA cards: kernels compiled by NVRTC, products by cuBLASLt, phases captured as graphs.

mod blas;
mod commands;
mod compile;
mod driver;
mod executor;
mod faults;
mod gpu;
mod gpus;
mod join;
mod landing;
mod lanes;
mod libraries;
mod modules;
mod readback;
mod record;
mod reserve;
mod staging;
mod together;

pub use compile::{Compiler, cache_folder};
pub use driver::DriverFacts;
pub(crate) use driver::device_count;
pub use executor::{CudaExecutor, CudaOptions};
pub use gpu::{Gpu, opened_bytes};
pub use gpus::{GpuFacts, GpuPulse, gpus, missing_libraries};
pub(crate) use gpus::{driver_version, gpu_free_bytes, own_gpu_bytes};
pub use join::Shares;
pub use libraries::Library;
pub use record::{Bases, record_node, record_phase};
pub use reserve::estimated_reserve_bytes;
pub use staging::staging_half_bytes;
