//! What a run takes of a device besides its arena. Most of it goes to the driver when the device is opened, and how much
//! that is, is the driver's affair: it is measured whenever a process opens one, and remembered for plans.

use super::compile::store;
use super::{DriverFacts, Gpu, cache_folder};
use crate::driver_version;
use plimsoll_core::kernels::cuda::CudaError;
use std::path::{Path, PathBuf};

/// Kernels, what they spill, and the graphs of a plan: at most 29 MiB on an H200, 22 of them for what the kernels of wide
/// feed-forwards spill.
const LOADED_BYTES: u64 = 40 << 20;
/// Graphs of batches that are shorter than the longest, as far as they go: a hundred of a small encoder's, five of
/// flan-t5-xl's. What comes later is launched one by one, which takes no memory.
pub(super) const LENGTHS_BYTES: u64 = 56 << 20;
/// Whoever seems to have taken more while a device was opened was not the driver alone.
const MOST_OPENED_BYTES: u64 = 4 << 30;

/// What plans for a device that is here count with. A device that was never opened is opened for it; `None` if it takes
/// no sensible amount.
pub fn estimated_reserve_bytes(ordinal: usize) -> Result<Option<u64>, CudaError> {
    let known = file(&DriverFacts::gather(ordinal)?.name).and_then(|file| recall(&file));
    let opened = match known {
        Some(bytes) => bytes,
        None => Gpu::open(ordinal)?.opened_bytes(),
    };
    Ok(is_sensible(opened).then_some(opened + LOADED_BYTES + LENGTHS_BYTES))
}

/// What opening a card took, where `measured` may hold what somebody else took in the same moment.
pub(super) fn plausible(card: &str, measured: u64) -> u64 {
    likely(measured, file(card).and_then(|file| recall(&file)))
}

/// One driver takes the same for every process: one other that opens the card doubles it, half as much again is between.
fn likely(measured: u64, before: Option<u64>) -> u64 {
    before.filter(|before| measured > before + before / 2).unwrap_or(measured)
}

/// Remembers what opening a card took.
pub(super) fn remember(card: &str, opened_bytes: u64) {
    if let Some(file) = file(card).filter(|file| is_sensible(opened_bytes) && recall(file) != Some(opened_bytes)) {
        store(&file, opened_bytes.to_string().as_bytes());
    }
}

fn is_sensible(opened_bytes: u64) -> bool {
    (1..MOST_OPENED_BYTES).contains(&opened_bytes)
}

/// Another driver takes another amount.
fn file(card: &str) -> Option<PathBuf> {
    let name = format!("opened {card} {}", driver_version()?);
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    Some(cache_folder()?.join(name))
}

fn recall(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.parse().ok().filter(|&bytes| is_sensible(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_took_in_the_same_moment_is_left_out() {
        assert_eq!(likely(1120 << 20, Some(560 << 20)), 560 << 20);
        assert_eq!(likely(570 << 20, Some(560 << 20)), 570 << 20);
        assert_eq!(likely(1120 << 20, None), 1120 << 20);
    }

    #[test]
    fn only_sensible_amounts_are_recalled() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cuda/opened");
        assert_eq!(recall(&file), None);
        for (content, expected) in [("551092224", Some(551_092_224)), ("0", None), ("5500000000", None), ("x", None)] {
            store(&file, content.as_bytes());
            assert_eq!(recall(&file), expected, "{content}");
        }
    }
}
