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

    fn of(status: &str) -> OwnMemory {
        let bytes = |key: &str| super::meminfo_bytes(status, key);
        let resident_bytes = bytes("VmRSS:");
        OwnMemory { resident_bytes, heap_bytes: bytes("RssAnon:"), peak_bytes: bytes("VmHWM:").max(resident_bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
