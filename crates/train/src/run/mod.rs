//! A run: its folder, its plan, the loop of steps.

mod copy_model;
mod open;
mod pulse;
mod run_folder;
mod trainer;

pub use open::{Run, RunOptions, StoredPlan};
pub(crate) use open::{TRIES, count_loading, decoding_bytes, first_plan, what_is_there};
pub(crate) use open::{shares_memory, with_what_is_ours, within_host};
pub use run_folder::RunFolder;
pub use trainer::remarks;
