//! What every other crate of plimsoll stands on: sizes and their units, names, random streams, files.

pub mod batching;
pub mod explain;
pub mod files;
pub mod folders;
pub mod heap;
pub mod names;
pub mod random;
pub mod safetensors;
pub mod simd;
pub mod units;
