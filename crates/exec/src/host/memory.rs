//! The machine's memory at one moment: cheap enough to be asked in the middle of a run.

use super::{System, cgroup, meminfo_bytes};
use crate::cpu::page_bytes;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What is held of the machine's memory, or of the container's limit. What the system does not tell is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostMemory {
    pub total_bytes: Option<u64>,
    pub used_bytes: Option<u64>,
    /// By this process.
    pub process_bytes: Option<u64>,
}

impl HostMemory {
    pub fn gather() -> HostMemory {
        HostMemory::read(&System { proc: "/proc".into(), cgroup: "/sys/fs/cgroup".into() })
    }

    fn read(system: &System) -> HostMemory {
        let meminfo = system.proc_text("meminfo");
        let (machine, free) = (meminfo_bytes(&meminfo, "MemTotal:"), meminfo_bytes(&meminfo, "MemAvailable:"));
        let limit = cgroup::limit(system).filter(|limit| limit.total_bytes < machine);
        let total = limit.map_or(machine, |l| l.total_bytes);
        let available = limit.map_or(free, |l| l.available_bytes.min(free));
        let is_known = machine > 0;
        HostMemory {
            total_bytes: is_known.then_some(total),
            used_bytes: is_known.then_some(total.saturating_sub(available)),
            process_bytes: process_bytes(&system.proc_text("self/statm")),
        }
    }
}

fn process_bytes(statm: &str) -> Option<u64> {
    let pages = statm.split_whitespace().nth(1)?.parse::<u64>().ok()?;
    Some(pages.saturating_mul(page_bytes() as u64))
}

/// What an ordinary user can still write to the disk of a folder.
pub fn disk_free_bytes(folder: &Path) -> Option<u64> {
    let path = CString::new(folder.as_os_str().as_bytes()).ok()?;
    // SAFETY: a struct of plain numbers, for which zero bytes are a value.
    let mut facts: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a string that ends in NUL, and a place for the answer; both outlive the call.
    let failed = unsafe { libc::statvfs(path.as_ptr(), &mut facts) } != 0;
    (!failed).then(|| facts.f_bavail.saturating_mul(facts.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_does_not_tell_is_absent_and_not_zero() {
        let nowhere = System { proc: "/nowhere".into(), cgroup: "/nowhere".into() };
        assert_eq!(HostMemory::read(&nowhere), HostMemory::default());
        assert_eq!(disk_free_bytes(Path::new("/nowhere/at/all")), None);
    }

    #[test]
    fn this_process_holds_a_part_of_what_is_used() {
        let memory = HostMemory::gather();
        let (total, process) = (memory.total_bytes.unwrap(), memory.process_bytes.unwrap());
        assert!(process > 0 && process < total && memory.used_bytes.unwrap() <= total, "{memory:?}");
        assert!(disk_free_bytes(Path::new("/")).is_some());
    }
}
