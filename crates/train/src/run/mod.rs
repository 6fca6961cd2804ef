//! A run: its folder, its arena, the loop of steps, checkpoints.

pub mod checkpoint;
mod fingerprint;
mod open;
mod run_folder;
mod schedule;
mod shapes;
mod stepper;
mod trainer;

pub use open::{Run, RunOptions, StoredPlan, take_arena, take_arena_beside_others};
pub use run_folder::RunFolder;
pub use schedule::learning_rate;
pub use shapes::{Pass, Shapes, shapes};
pub use stepper::{Stepped, Stepper, Underway, clear_metrics, phase};
