//! Which other processes hold memory.

#![deny(missing_docs)]

use super::text;
use crate::cpu::page_bytes;
use serde::Serialize;
use std::path::Path;

/// A process and the physical memory it holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// The command.
    pub name: String,
    /// What it holds.
    pub bytes: u64,
}

/// The `count` largest processes besides our own.
pub(super) fn holders(proc: &Path, count: usize) -> Vec<Holder> {
    let Ok(entries) = std::fs::read_dir(proc) else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let others = pids.filter(|&pid| pid != std::process::id());
    let mut holders: Vec<Holder> = others.filter_map(|pid| holder(&proc.join(pid.to_string()), pid)).collect();
    holders.sort_by_key(|h| (std::cmp::Reverse(h.bytes), h.pid));
    holders.truncate(count);
    holders
}

/// What a process is called; empty if it ended meanwhile or is not ours to see.
pub fn name(pid: u32) -> String {
    text(&Path::new("/proc").join(pid.to_string()).join("comm")).trim().to_string()
}

/// `None` for kernel threads, which hold nothing, and for processes that ended meanwhile.
fn holder(dir: &Path, pid: u32) -> Option<Holder> {
    let pages = text(&dir.join("statm")).split_whitespace().nth(1)?.parse::<u64>().ok()?;
    let name = text(&dir.join("comm")).trim().to_string();
    (pages > 0).then_some(Holder { pid, name, bytes: pages.saturating_mul(page_bytes() as u64) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_come_first_and_kernel_threads_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        for (pid, name, pages) in [(7, "small", 1), (8, "large one", 500), (9, "kthread", 0), (10, "medium", 20)] {
            let dir = dir.path().join(pid.to_string());
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("statm"), format!("900 {pages} 0 0 0 0 0\n")).unwrap();
            std::fs::write(dir.join("comm"), format!("{name}\n")).unwrap();
        }
        std::fs::create_dir(dir.path().join("sys")).unwrap();
        let found = holders(dir.path(), 2);
        let names: Vec<&str> = found.iter().map(|h| h.name.as_str()).collect();
        assert_eq!(names, ["large one", "medium"]);
        assert_eq!(found[0].bytes, 500 * page_bytes() as u64);
    }
}
