//! Planning without a device: the program of a step, the fastest plan that fits, what-if questions, and advice for
//! trainings that stay in PyTorch.
//!
//! ```text
//! cards ◄─ device ◄─ program ◄─ choose ◄─ whatif ◄─ advise
//! ```

pub mod cards;
mod device;
mod failure;

pub mod program;

pub mod choose;

pub mod whatif;

pub mod advise;

pub use device::Device;
pub use failure::PlanFailure;
