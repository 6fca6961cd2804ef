//! Memory limits of the control groups this process is in, in both versions of the interface.

use super::{System, text};
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limit {
    pub total_bytes: u64,
    pub available_bytes: u64,
}

/// Names of the files that hold the limit, the use, and the key of droppable file cache in `memory.stat`.
struct Names {
    limit: &'static str,
    used: &'static str,
    cache: &'static str,
}

const V2: Names = Names { limit: "memory.max", used: "memory.current", cache: "inactive_file" };
const V1: Names = Names { limit: "memory.limit_in_bytes", used: "memory.usage_in_bytes", cache: "total_inactive_file" };

/// The tightest limits over our groups and all groups above them.
pub(super) fn limit(system: &System) -> Option<Limit> {
    let groups = system.proc_text("self/cgroup");
    let limits = groups.lines().filter_map(|line| group(system, line)).flat_map(|(mount, path, names)| {
        ancestors(&mount, &path).into_iter().filter_map(move |dir| read(&dir, names)).collect::<Vec<_>>()
    });
    limits.reduce(|a, b| Limit {
        total_bytes: a.total_bytes.min(b.total_bytes),
        available_bytes: a.available_bytes.min(b.available_bytes),
    })
}

/// `4:memory:/job` → where that group's tree is mounted, the path in it, and its file names.
fn group(system: &System, line: &str) -> Option<(PathBuf, String, &'static Names)> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    match controllers.split(',').any(|c| c == "memory") {
        true => Some((system.cgroup.join("memory"), path.into(), &V1)),
        false if number == "0" => Some((system.cgroup.clone(), path.into(), &V2)),
        false => None,
    }
}

/// The group's folder and those above it up to the mount. In a container the path may name folders that only the host
/// has; the mount itself is then the container's group.
fn ancestors(mount: &Path, path: &str) -> Vec<PathBuf> {
    let below = Path::new(path.trim_start_matches('/'));
    below.ancestors().map(|p| mount.join(p)).collect()
}

fn read(dir: &Path, names: &Names) -> Option<Limit> {
    let number = |name: &str| text(&dir.join(name)).trim().parse::<u64>().ok();
    let total_bytes = number(names.limit)?;
    let cache = text(&dir.join("memory.stat")).lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        if key == names.cache { value.trim().parse::<u64>().ok() } else { None }
    });
    let held = number(names.used).unwrap_or(0).saturating_sub(cache.unwrap_or(0));
    Some(Limit { total_bytes, available_bytes: total_bytes.saturating_sub(held) })
}
