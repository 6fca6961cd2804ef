//! What a run takes of a device besides its arena. Most of it goes to the driver when the device is opened.

use super::opened::{is_sensible, remembered};
use super::{DriverFacts, Gpu};
use plimsoll_core::kernels::cuda::CudaError;

/// Kernels, what they spill, and the graphs of a plan: at most 29 MiB on an H200, 22 of them for what the kernels of wide
/// feed-forwards spill.
const LOADED_BYTES: u64 = 40 << 20;
/// Graphs of batches that are shorter than the longest, as far as they go: a hundred of a small encoder's, five of
/// flan-t5-xl's. What comes later is launched one by one, which takes no memory.
pub(super) const LENGTHS_BYTES: u64 = 56 << 20;

/// What plans for a device that is here count with. A device that was never opened is opened for it; `None` if it takes
/// no sensible amount.
pub fn estimated_reserve_bytes(ordinal: usize) -> Result<Option<u64>, CudaError> {
    let known = remembered(&DriverFacts::gather(ordinal)?.name);
    let opened = match known {
        Some(bytes) => bytes,
        None => Gpu::open(ordinal)?.opened_bytes(),
    };
    Ok(is_sensible(opened).then_some(opened + LOADED_BYTES + LENGTHS_BYTES))
}
