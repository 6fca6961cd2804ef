//! The executor of the CPU: one arena, taken before the first step.

mod arena;
mod executor;

pub use arena::{Arena, page_bytes};
pub use executor::CpuExecutor;
