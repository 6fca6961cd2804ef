//! What trials are told beside their values: names of the first users' reports, then our own.

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
