//! Facts about this machine: its CPU, its memory, and who holds it.

mod cgroup;
mod memory;
mod own;
pub mod processes;

pub use memory::{HostMemory, disk_free_bytes};
pub use own::OwnMemory;
pub use processes::Holder;

use serde::Serialize;
use std::path::{Path, PathBuf};

/// How many other processes are named.
const HOLDERS: usize = 5;

/// The CPU and its memory as this process sees them.
#[deny(missing_docs)]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuFacts {
    /// What the system calls it.
    pub name: String,
    /// Threads that can run at once.
    pub threads: usize,
    /// Memory of the machine, or the limit of the container if that is lower.
    pub total_bytes: u64,
    /// What can still be taken without swapping, within that limit.
    pub available_bytes: u64,
    /// The limit of the container, if it is what decides the total.
    pub limit_bytes: Option<u64>,
    /// The other processes that hold most memory, largest first.
    pub holders: Vec<Holder>,
}

impl CpuFacts {
    /// Asks the system. What it does not tell is empty or zero, never an error.
    pub fn gather() -> CpuFacts {
        CpuFacts::read(&System { proc: "/proc".into(), cgroup: "/sys/fs/cgroup".into() })
    }

    fn read(system: &System) -> CpuFacts {
        let meminfo = system.proc_text("meminfo");
        let (machine, free) = (meminfo_bytes(&meminfo, "MemTotal:"), meminfo_bytes(&meminfo, "MemAvailable:"));
        let limit = cgroup::limit(system).filter(|limit| limit.total_bytes < machine);
        CpuFacts {
            name: model_name(&system.proc_text("cpuinfo")),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            total_bytes: limit.map_or(machine, |l| l.total_bytes),
            available_bytes: limit.map_or(free, |l| l.available_bytes.min(free)),
            limit_bytes: limit.map(|l| l.total_bytes),
            holders: processes::holders(&system.proc, HOLDERS),
        }
    }
}

/// Where the system's files are; tests have their own.
struct System {
    proc: PathBuf,
    cgroup: PathBuf,
}

impl System {
    fn proc_text(&self, name: &str) -> String {
        text(&self.proc.join(name))
    }
}

/// A file's text, or nothing: on another system these files do not exist.
fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// `MemTotal:       24682740 kB` → bytes.
fn meminfo_bytes(meminfo: &str, key: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    let kib = line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// x86 calls it `model name`; many ARM kernels give only the architecture.
fn model_name(cpuinfo: &str) -> String {
    let named = |line: &str| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_string());
    cpuinfo.lines().find_map(named).unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A machine of 16 GiB with 8 GiB available, in files.
    fn machine(dir: &Path, cgroup_line: &str) -> System {
        let system = System { proc: dir.join("proc"), cgroup: dir.join("cgroup") };
        fs::create_dir_all(system.proc.join("self")).unwrap();
        fs::write(system.proc.join("meminfo"), "MemTotal:  16777216 kB\nMemAvailable: 8388608 kB\n").unwrap();
        fs::write(system.proc.join("cpuinfo"), "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n").unwrap();
        fs::write(system.proc.join("self/cgroup"), cgroup_line).unwrap();
        system
    }

    fn limit_files(dir: &Path, names: [&str; 2], limit: &str, used: u64, stat: &str) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join(names[0]), limit).unwrap();
        fs::write(dir.join(names[1]), used.to_string()).unwrap();
        fs::write(dir.join("memory.stat"), stat).unwrap();
    }

    const V2: [&str; 2] = ["memory.max", "memory.current"];
    const V1: [&str; 2] = ["memory.limit_in_bytes", "memory.usage_in_bytes"];

    #[test]
    fn without_a_limit_the_machine_decides() {
        let dir = tempfile::tempdir().unwrap();
        let facts = CpuFacts::read(&machine(dir.path(), "0::/\n"));
        assert_eq!((facts.total_bytes, facts.available_bytes), (16 << 30, 8 << 30));
        assert_eq!((facts.name.as_str(), facts.limit_bytes), ("Some CPU @ 3 GHz", None));
    }

    #[test]
    fn the_tightest_limit_up_the_tree_decides() {
        let dir = tempfile::tempdir().unwrap();
        let system = machine(dir.path(), "0::/pod/job\n");
        limit_files(&system.cgroup.join("pod"), V2, "2147483648\n", 1 << 30, "inactive_file 268435456\n");
        limit_files(&system.cgroup.join("pod/job"), V2, "max\n", 1 << 20, "");
        let facts = CpuFacts::read(&system);
        assert_eq!(facts.limit_bytes, Some(2 << 30));
        assert_eq!(facts.total_bytes, 2 << 30);
        // The cache of files that nobody used lately can be dropped: it counts as available.
        assert_eq!(facts.available_bytes, (1 << 30) + (256 << 20));
    }

    #[test]
    fn version_1_limits_are_read_too() {
        let dir = tempfile::tempdir().unwrap();
        let system = machine(dir.path(), "3:cpu:/x\n4:memory,extra:/job\n0::/\n");
        limit_files(&system.cgroup.join("memory/job"), V1, "1073741824", 1 << 29, "total_inactive_file 0\n");
        // No limit, as version 1 writes it.
        limit_files(&system.cgroup.join("memory"), V1, "9223372036854771712", 1 << 33, "");
        let facts = CpuFacts::read(&system);
        assert_eq!((facts.total_bytes, facts.available_bytes), (1 << 30, 1 << 29));
    }

    #[test]
    fn a_system_without_these_files_gives_zeros() {
        let facts = CpuFacts::read(&System { proc: "/nowhere".into(), cgroup: "/nowhere".into() });
        assert_eq!((facts.total_bytes, facts.available_bytes, facts.holders.len()), (0, 0, 0));
        assert!(facts.threads >= 1);
    }

    #[test]
    fn this_machine_answers() {
        let facts = CpuFacts::gather();
        assert!(facts.total_bytes > 0 && facts.available_bytes <= facts.total_bytes, "{facts:?}");
        assert!(facts.holders.iter().all(|h| h.pid != std::process::id()));
        assert!(facts.holders.windows(2).all(|w| w[0].bytes >= w[1].bytes) && facts.holders.len() <= HOLDERS);
    }
}
