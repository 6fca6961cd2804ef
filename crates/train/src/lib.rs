//! Training inside a plan: data for every task, the loop, checkpoints, and what a trained model is used for.
//!
//! ```text
//! error ◄─ tasks ◄─ steps ◄─ checkpoints ◄─ weights ◄─ writing ◄─ arena ◄─ run ◄─ infer ◄─ calibrate
//! ```

mod error;

pub mod tasks;

pub mod steps;

pub mod checkpoints;
pub mod weights;

pub mod writing;

mod arena;
pub mod run;

pub mod infer;

pub mod calibrate;

pub use arena::take_arena;
pub use error::{CheckpointError, RunError};
