//! Planning without a device: the program of a step, the fastest plan that fits, what-if questions, and advice for
//! trainings that stay in PyTorch.
//!
//! ```text
//! cards ◄─ device ◄─ program ◄─ choose ◄─ whatif ◄─ advise
//! ```

pub mod cards;
mod device;

pub mod program;

pub mod choose;

pub mod whatif;

pub mod advise;

pub use choose::PlanFailure;
pub use device::{Beside, Device};
