//! The executor for NVIDIA cards: kernels compiled by NVRTC, products by cuBLASLt, phases captured as graphs.
//!
//! ```text
//! faults, launches, libraries ◄─ compile, join, places ◄─ driver, together
//!   ◄─ blas, gpus, landing, lanes, modules, readback, staging ◄─ opened, record ◄─ commands, gpu ◄─ reserve
//!   ◄─ executor
//! ```

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
mod launches;
mod libraries;
mod modules;
mod opened;
mod places;
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
pub(crate) use gpus::{gpu_free_bytes, own_gpu_bytes};
pub use launches::Shares;
pub use libraries::Library;
pub use places::Bases;
pub use record::{record_node, record_phase};
pub use reserve::estimated_reserve_bytes;
pub use staging::staging_half_bytes;
