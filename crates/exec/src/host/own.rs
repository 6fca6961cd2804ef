//! What this process itself takes.

use super::text;
use std::path::Path;

/// Physical memory of this process now, and the most it ever was; zeros where the system does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnMemory {
    pub resident_bytes: u64,
    /// Of that, what no file stands behind.
    pub heap_bytes: u64,
    pub peak_bytes: u64,
}

impl OwnMemory {
    pub fn now() -> OwnMemory {
        OwnMemory::of(&text(Path::new("/proc/self/status")))
    }

    /// The same once the system has back what was freed: allocators keep it, and it counts as long as they do. What searched
    /// a plan or read a file is gone by then, and a training comes on top of whatever stays.
    pub fn trimmed() -> OwnMemory {
        give_back();
        OwnMemory::now()
    }

    fn of(status: &str) -> OwnMemory {
        let bytes = |key: &str| super::meminfo_bytes(status, key);
        let resident_bytes = bytes("VmRSS:");
        OwnMemory { resident_bytes, heap_bytes: bytes("RssAnon:"), peak_bytes: bytes("VmHWM:").max(resident_bytes) }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn give_back() {
    // SAFETY: it takes a number, and nothing that is in use moves.
    unsafe { libc::malloc_trim(0) };
}

/// Other allocators do it by themselves, or cannot be asked.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn give_back() {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Many small pieces, freed with one kept behind them: without being asked, no allocator gives these back.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn what_was_freed_goes_back_to_the_system() {
        let mut pieces: Vec<Box<[u8; 2048]>> = (0..32_768).map(|_| Box::new([1; 2048])).collect();
        let last = pieces.pop();
        let held = OwnMemory::now().heap_bytes;
        drop(pieces);
        let left = OwnMemory::trimmed().heap_bytes;
        assert!(left + (48 << 20) < held, "{held} {left}");
        drop(last);
    }

    #[test]
    fn it_is_read_from_the_systems_own_account() {
        let status = "Name:\tplimsoll\nVmHWM:\t   2048 kB\nVmRSS:\t   1024 kB\nRssAnon:\t     512 kB\n";
        let expected = OwnMemory { resident_bytes: 1 << 20, heap_bytes: 1 << 19, peak_bytes: 2 << 20 };
        assert_eq!(OwnMemory::of(status), expected);
        assert_eq!(OwnMemory::of(""), OwnMemory::default());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_taken_shows() {
        let before = OwnMemory::now();
        let taken = vec![1u8; 64 << 20];
        let after = OwnMemory::now();
        assert!(
            after.peak_bytes >= before.resident_bytes && after.resident_bytes > 32 << 20,
            "{taken:?}",
            taken = taken.len()
        );
    }
}
