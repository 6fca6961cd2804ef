//! Kernels: the loops behind the operations. They take pointers and shapes, never allocate, and sum in an order that
//! does not depend on the number of threads.

pub mod conv1d;
mod gemm_stand_in;

pub mod lstm;
#[cfg(test)]
mod testing;
