//! A device to plan for or train on.

use plimsoll_core::graph::Target;
use plimsoll_core::plan::Profile;
use plimsoll_models::recipe::Precision;

/// What a plan has to know about the device it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    pub name: String,
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// Bytes that the runtime takes beside the arena.
    pub reserve_bytes: u64,
    pub profile: Profile,
    /// What plans for it are made for.
    pub target: Target,
    /// What `precision = "auto"` means here. It depends on the device alone, never on the budget.
    pub precision: Precision,
    /// Whether this program can run on it, not only plan for it.
    pub runs: bool,
    /// Which of several, as the driver counts them.
    pub ordinal: usize,
}

impl Device {
    /// A CPU of so many threads with so much memory free, as fast as one that was not measured is taken to be.
    pub fn cpu(threads: usize, free_bytes: u64) -> Device {
        Device {
            name: "cpu".into(),
            total_bytes: free_bytes,
            free_bytes,
            reserve_bytes: 0,
            profile: Profile::cpu(threads),
            target: Target::cpu(threads),
            precision: Precision::F32,
            runs: true,
            ordinal: 0,
        }
    }
}
