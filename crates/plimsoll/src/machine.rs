//! This machine: what it has, what is free, who holds the rest, and what is missing to use it.

use plimsoll_base::explain::Explain;
use plimsoll_cuda::{GpuFacts, gpus, missing_libraries};
use plimsoll_exec::host::CpuFacts;
use serde::Serialize;

/// Every device of this machine, as it is now.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The CPU and its memory.
    pub cpu: CpuFacts,
    /// The cards; none where none can be used.
    pub gpus: Vec<GpuFacts>,
    /// Why there is no card, or what is missing to use those that are here.
    pub missing: Option<String>,
}

impl Machine {
    /// Asks the system.
    pub fn gather() -> Machine {
        let (gpus, missing) = match gpus() {
            Ok(found) => (found, missing_library()),
            Err(error) => (Vec::new(), Some(format!("{error}; {}", error.hints().join("; ")))),
        };
        Machine { cpu: CpuFacts::gather(), gpus, missing }
    }
}

/// The driver is here, and one command provides the rest.
fn missing_library() -> Option<String> {
    let missing = missing_libraries();
    let names: Vec<&str> = missing.iter().map(|library| library.name()).collect();
    missing.first().map(|library| format!("missing: {}; {}", names.join(", "), library.remedy()))
}
