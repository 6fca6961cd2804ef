//! Training inside a plan: data for every task, the loop, checkpoints, and what a trained model is used for.
//!
//! ```text
//! error ◄─ loaded ◄─ scoring ◄─ steps ◄─ checkpoints ◄─ weights ◄─ writing ◄─ tasks ◄─ arena ◄─ run ◄─ infer ◄─ calibrate
//! ```

mod error;

mod loaded;

pub mod scoring;

pub mod steps;

pub mod checkpoints;
pub mod weights;

pub mod writing;

pub mod tasks;

mod arena;
pub mod run;

pub mod infer;

pub mod calibrate;

pub use error::{CheckpointError, RunError};
pub use loaded::{Extras, LoadedData};
