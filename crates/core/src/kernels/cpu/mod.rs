//! Loops on the CPU: the toolbox of all ops, and the kernels behind the larger ones. Kernels take pointers and shapes,
//! never allocate, and sum in an order that does not depend on the number of threads.

pub mod elementwise;
pub mod float;
pub mod gemm;
mod io;
pub mod parallel;
pub mod rows;
pub mod strided;
pub mod subnormals;
pub mod vecmath;

pub mod attention;
pub mod batch_norm;
pub mod column_sums;
pub mod conv1d;
pub mod grouped_linear;
pub mod lstm;
#[cfg(test)]
mod testing;

pub(crate) use io::with_float;
pub use io::{CpuIo, Element, Tensor};
