//! What ops are made of: loops on the CPU, and launches on a CUDA card.

pub mod cpu;
pub mod cuda;
