//! Everything that runs on the processor.

pub mod float;
pub mod gemm;
pub mod kernels;
pub mod parallel;
pub mod random;
pub mod simd;
pub mod vecmath;
