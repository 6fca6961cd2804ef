//! Trials as trainings: every suggestion is planned before it is a trial, every trial is a `plimsoll train` of its own
//! in an ordinary run's folder, and as many run side by side as memory and predicted seconds allow.

mod child;
mod coordinator;
mod dry_plan;
mod folder;
mod forecast;
mod packing;
mod plans;
mod space;
mod trainings;

pub use coordinator::{Coordinator, Options, RunningTrial, Status, Summary, Watcher};
pub use dry_plan::{DryRun, ModelRow, dry_plan};
pub use folder::StudyFolder;
pub use packing::Parallel;
pub use plans::Plans;

/// Attributes of trials: names of the report first, then our own.
pub(crate) mod attributes {
    pub(crate) const OOM: &str = "oom";
    pub(crate) const OOM_CONFIG: &str = "oom_config";
    pub(crate) const PEAK_MEMORY_GB: &str = "peak_memory_gb";
    pub(crate) const MEASURED_PEAK_MEMORY_GB: &str = "measured_peak_memory_gb";
    pub(crate) const ADAPTED: &str = "adapted";
    pub(crate) const SAME_AS: &str = "same_as";
    pub(crate) const CONTINUES: &str = "continues";
    pub(crate) const TRAINING: &str = "training";
    pub(crate) const ENDLESS: &str = "endless_training";
    pub(crate) const EPOCHS: &str = "epochs";
    pub(crate) const RUN: &str = "run";
    pub(crate) const DIVERGED: &str = "diverged";
    pub(crate) const FAILURE: &str = "failure";
    pub(crate) const REFUSED: &str = "refused";
    pub(crate) const PRUNED_BECAUSE: &str = "pruned_because";
    pub(crate) const PREDICTED_SECONDS: &str = "predicted_seconds";
    pub(crate) const SECONDS: &str = "seconds";
    pub(crate) const MICRO_BATCH: &str = "micro_batch";
    pub(crate) const RECOMPUTE: &str = "recompute";
    pub(crate) const SHARE_BYTES: &str = "share_bytes";
}
