//! Training inside a plan: data for every task, the loop, checkpoints, and what a trained model is used for.
//!
//! ```text
//! tasks ◄─ weights ◄─ infer ◄─ run ◄─ calibrate
//! ```

mod error;

pub mod tasks;

pub mod weights;

pub mod infer;
pub mod run;

pub mod calibrate;

pub use error::RunError;
