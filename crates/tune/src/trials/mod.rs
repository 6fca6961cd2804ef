//! Trials as trainings: every suggestion is planned before it is a trial, every trial is a `plimsoll train` of its own
//! in an ordinary run's folder, and as many run side by side as memory and predicted seconds allow.

mod basis;
mod child;
mod coordinator;
mod dry_plan;
mod folder;
mod forecast;
mod pace;
mod packing;
mod plans;
mod space;
mod trainings;

pub use coordinator::{Coordinator, Options, RunningTrial, Status, Summary, Watcher};
pub use dry_plan::{DryRun, ModelRow, dry_plan};
pub use folder::StudyFolder;
pub use packing::Parallel;
pub use plans::Plans;
