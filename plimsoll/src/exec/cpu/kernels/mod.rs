//! Kernels: the loops behind the larger ops. They take pointers and shapes, never allocate, and sum in an order that
//! does not depend on the number of threads.

pub mod attention;
pub mod batch_norm;
pub mod column_sums;
pub mod conv1d;
pub mod grouped_linear;
pub mod lstm;
#[cfg(test)]
mod testing;
