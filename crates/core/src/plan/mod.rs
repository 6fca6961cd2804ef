//! Planning: pure functions from a program to an address for every buffer. No device is asked.

mod accounts;
mod cost;
mod counterpart;
mod file;
mod landing;
mod layout;
mod lifetimes;
mod links;
mod offload;
mod order;
mod place;
mod program;
mod recompute;
mod sketch;
mod summary;
#[cfg(test)]
mod testing;
mod verify;

pub use cost::{AMOUNTS, Amount, Amounts, Grain, Profile, Speedups, Work, predicted_ms};
pub use file::{PlanFile, PlanFileError};
pub use landing::{LANDING, add_landing, input_bytes, landing_bytes};
pub use layout::live_bytes;
pub use layout::{
    Buffer, Layout, LayoutOptions, Owner, PhaseLayout, Place, Slot, Storage, lay_out, lay_out_in, lay_out_within,
    live_peak,
};
pub use offload::{Offload, offload, offloaded_values};
pub use order::order;
pub use program::{Phase, Program, Resident};
pub use recompute::{Ladder, Part, Recompute, Rung, recompute, recomputed_nodes};
pub use summary::{LiveBuffer, ModuleBytes, Peak, Summary, live_by_tick};
pub use verify::verify;

use crate::graph::{GraphError, OpError};
use plimsoll_base::explain::{DEFECT, Explain, Fault};
use thiserror::Error;

/// Every slot starts at a multiple of this: a cache line, and the width of the widest vector.
pub const ALIGN: usize = 64;

#[derive(Debug, Error)]
pub enum PlanError {
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error("{0}")]
    Broken(String),
    #[error("the plan is too large to address")]
    TooLarge,
}

impl PlanError {
    /// Whether sizes are beyond what can be addressed or counted: then the recipe is to blame.
    pub fn is_too_large(&self) -> bool {
        match self {
            PlanError::TooLarge | PlanError::Graph(GraphError::TooLarge { .. }) => true,
            PlanError::Graph(GraphError::Op { cause, .. }) => matches!(cause, OpError::Beyond(_)),
            PlanError::Graph(_) | PlanError::Broken(_) => false,
        }
    }
}

impl Explain for PlanError {
    fn fault(&self) -> Fault {
        if self.is_too_large() { Fault::BadInput } else { Fault::Failed }
    }

    fn hints(&self) -> Vec<String> {
        match self.is_too_large() {
            true => vec!["make the model, the batch or the length smaller".into()],
            false => vec![DEFECT.into()],
        }
    }
}

/// `bytes` rounded up to the alignment of slots.
pub fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN)
}
