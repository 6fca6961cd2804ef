//! What opening a card takes of it. That is the driver's affair: it is measured whenever a process opens one, and remembered
//! for plans.

use super::compile::{cache_folder, store};
use super::gpus::driver_version;
use std::path::{Path, PathBuf};

/// Whoever seems to have taken more while a device was opened was not the driver alone.
const MOST_OPENED_BYTES: u64 = 4 << 30;

/// What opening a card took, where `measured` may hold what somebody else took in the same moment.
pub(super) fn plausible(card: &str, measured: u64) -> u64 {
    likely(measured, remembered(card))
}

/// One driver takes the same for every process: one other that opens the card doubles it, half as much again is between.
fn likely(measured: u64, before: Option<u64>) -> u64 {
    before.filter(|before| measured > before + before / 2).unwrap_or(measured)
}

/// What opening a card took when it was last measured.
pub(super) fn remembered(card: &str) -> Option<u64> {
    file(card).and_then(|file| recall(&file))
}

/// Remembers what opening a card took.
pub(super) fn remember(card: &str, opened_bytes: u64) {
    if let Some(file) = file(card).filter(|file| is_sensible(opened_bytes) && recall(file) != Some(opened_bytes)) {
        store(&file, opened_bytes.to_string().as_bytes());
    }
}

pub(super) fn is_sensible(opened_bytes: u64) -> bool {
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
