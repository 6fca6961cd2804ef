//! A training step as data: typed graphs of ops, their gradients, and an address for every buffer. No files, no device.
//!
//! ```text
//! types ◄─ kernels ◄─ graph ◄─ ops ◄─ autodiff ◄─ plan
//! ```

pub mod types;

pub mod kernels;

pub mod graph;
pub mod ops;

pub mod autodiff;
pub mod plan;
