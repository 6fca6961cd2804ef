//! Compute kernels: pure functions over memory the caller owns, free of heap allocation, with results that do not
//! depend on the number of threads.

pub mod attention;
