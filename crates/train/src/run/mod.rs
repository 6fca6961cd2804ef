//! A run: its folder, its plan, the loop of steps.

mod copy_model;
mod open;
mod pulse;
mod run_folder;
mod trainer;

pub(crate) use open::STARTING_BYTES;
pub use open::{Run, RunOptions, StoredPlan};
pub use run_folder::RunFolder;
pub use trainer::remarks;
