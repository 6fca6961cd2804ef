//! The CUDA runtime.

pub mod device;
pub mod graphs;
pub mod kernels;
pub mod memory;
pub mod streams;
