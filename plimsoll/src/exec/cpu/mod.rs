//! Everything that runs on the processor.

mod arena;
pub mod elementwise;
mod executor;
pub mod float;
pub mod gemm;
mod io;
pub mod kernels;
pub mod parallel;
pub mod random;
pub mod rows;
pub mod simd;
pub mod strided;
pub mod vecmath;

pub use arena::{Arena, page_bytes};
pub use executor::CpuExecutor;
pub use io::{CpuIo, Element, Tensor};
