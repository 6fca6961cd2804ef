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
pub use packing::{Parallel, Room};
pub use plans::{Outlook, Plans};
pub use space::{PrunerSettings, pruner_of, sampler_of, space_of, values_of};

/// Attributes of trials: names of the report first, then our own.
pub mod attributes {
    pub const OOM: &str = "oom";
    pub const OOM_CONFIG: &str = "oom_config";
    pub const PEAK_MEMORY_GB: &str = "peak_memory_gb";
    pub const MEASURED_PEAK_MEMORY_GB: &str = "measured_peak_memory_gb";
    pub const ADAPTED: &str = "adapted";
    pub const SAME_AS: &str = "same_as";
    pub const CONTINUES: &str = "continues";
    pub const TRAINING: &str = "training";
    pub const ENDLESS: &str = "endless_training";
    pub const EPOCHS: &str = "epochs";
    pub const RUN: &str = "run";
    pub const DIVERGED: &str = "diverged";
    pub const FAILURE: &str = "failure";
    pub const REFUSED: &str = "refused";
    pub const PRUNED_BECAUSE: &str = "pruned_because";
    pub const PREDICTED_SECONDS: &str = "predicted_seconds";
    pub const SECONDS: &str = "seconds";
    pub const MICRO_BATCH: &str = "micro_batch";
    pub const RECOMPUTE: &str = "recompute";
    pub const SHARE_BYTES: &str = "share_bytes";
    pub const THREADS: &str = "threads";
}
