//! The folder of runs. What a client names is looked up here, and nothing outside is reached: links that lead out are
//! no runs.

use super::{Curves, FileId, Lines, Place, RunId, Summary, Thinned, Times, read_some};
use plimsoll_runs::{Timed, holder};
use plimsoll_track::{RunFacts, planned_components};
use serde::Serialize;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use utoipa::ToSchema;

/// The folder of the server's own files, beside the runs; its name is no run's.
pub(crate) const OWN: &str = ".serve";
/// Runs whose curves are kept in memory.
const MOST_CURVES: usize = 16;
/// A plan is a few megabytes; what is larger is none that is read here.
const LARGEST_PLAN: u64 = 64 << 20;
/// Runs that are listed.
const MOST_RUNS: usize = 20_000;

type KeptCurves = (RunId, Arc<Mutex<Read<Curves>>>);

pub(crate) struct Folders {
    root: PathBuf,
    summaries: Mutex<HashMap<RunId, Arc<Mutex<Read<Summary>>>>>,
    curves: Mutex<Vec<KeptCurves>>,
    facts: Mutex<HashMap<RunId, Read<RunFacts>>>,
    plans: Mutex<HashMap<RunId, KeptPlan>>,
}

/// Which file was read, its length and time, and what it says: bytes by component.
type KeptPlan = ((FileId, u64, Option<SystemTime>), Arc<Vec<(String, u64)>>);

/// Something made from events, and how far they were read.
#[derive(Default)]
struct Read<T> {
    place: Place,
    of: T,
}

/// Files of a checkpoint.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Checkpoint {
    pub name: String,
    pub step: u64,
    pub bytes: u64,
    /// Seconds since 1970.
    pub written: u64,
}

impl Folders {
    /// `root` is made where it is missing.
    pub(crate) fn new(root: &Path) -> io::Result<Folders> {
        fs::create_dir_all(root)?;
        Ok(Folders {
            root: root.canonicalize()?,
            summaries: Mutex::default(),
            curves: Mutex::default(),
            facts: Mutex::default(),
            plans: Mutex::default(),
        })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of a run, if there is one.
    pub(crate) fn find(&self, id: &RunId) -> Option<PathBuf> {
        let folder = self.root.join(id.as_str()).canonicalize().ok()?;
        (folder.parent() == Some(&self.root) && is_run(&folder)).then_some(folder)
    }

    /// Every run, in no order.
    pub(crate) fn ids(&self) -> Vec<RunId> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| RunId::parse(entry.file_name().to_str()?));
        ids.filter(|id| self.find(id).is_some()).take(MOST_RUNS).collect()
    }

    /// What a run has told so far; only what is new is read.
    pub(crate) fn summary(&self, id: &RunId, folder: &Path) -> Summary {
        let read = {
            let mut summaries = self.summaries.lock().unwrap_or_else(PoisonError::into_inner);
            if summaries.len() > 2 * MOST_RUNS {
                summaries.clear();
            }
            summaries.entry(id.clone()).or_default().clone()
        };
        let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = catch_up(&mut read, folder, Summary::hear);
        read.of.clone()
    }

    /// What scrapers hear of a run.
    pub(crate) fn facts(&self, id: &RunId, folder: &Path) -> RunFacts {
        let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        if facts.len() > 2 * MOST_RUNS {
            facts.clear();
        }
        let read = facts.entry(id.clone()).or_default();
        let _ = catch_up(read, folder, |facts: &mut RunFacts, line| {
            if let Ok(timed) = serde_json::from_slice::<Timed>(line) {
                facts.add(&timed);
            }
        });
        read.of.clone()
    }

    /// What the plan of a run takes, by component; plans are large, and read once.
    pub(crate) fn planned_components(&self, id: &RunId, folder: &Path) -> Arc<Vec<(String, u64)>> {
        let path = folder.join("plan.json");
        let Ok(there) = fs::metadata(&path) else { return Arc::default() };
        let stamp = (FileId::of(&there), there.len(), there.modified().ok());
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, kept)) = plans.get(id).filter(|(of, _)| *of == stamp) {
            return kept.clone();
        }
        if plans.len() > 2 * MOST_RUNS {
            plans.clear();
        }
        let read = read_some(&path, 0, LARGEST_PLAN).unwrap_or_default();
        let found = Arc::new(planned_components(&read));
        plans.insert(id.clone(), (stamp, found.clone()));
        found
    }

    /// The curves of a run in about so many points.
    pub(crate) fn curves(&self, id: &RunId, folder: &Path, points: usize) -> io::Result<Thinned> {
        let read = self.kept_curves(id);
        let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
        catch_up(&mut read, folder, Curves::hear)?;
        Ok(read.of.thinned(points, read.place))
    }

    /// The most recently asked for stands last.
    fn kept_curves(&self, id: &RunId) -> Arc<Mutex<Read<Curves>>> {
        let mut kept = self.curves.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().position(|(other, _)| other == id);
        let entry = found.map_or_else(|| (id.clone(), Arc::default()), |at| kept.remove(at));
        kept.push(entry.clone());
        if kept.len() > MOST_CURVES {
            kept.remove(0);
        }
        entry.1
    }

    /// When the folder was made and its events last written.
    pub(crate) fn times(&self, folder: &Path) -> Times {
        let seconds = |time: io::Result<SystemTime>| time.ok().map_or(0, unix_seconds);
        let of_folder = fs::metadata(folder);
        let changed = of_folder.as_ref().map_or(0, |there| seconds(there.modified()));
        let recipe = fs::metadata(folder.join("recipe.toml")).map_or(changed, |there| seconds(there.modified()));
        let updated = fs::metadata(folder.join("events.jsonl")).map_or(changed, |there| seconds(there.modified()));
        let created = of_folder.map_or(0, |there| seconds(there.created()));
        Times { created: if created == 0 { recipe } else { created }, updated }
    }

    /// The checkpoints of a run, the last first.
    pub(crate) fn checkpoints(&self, folder: &Path) -> Vec<Checkpoint> {
        let entries = fs::read_dir(folder.join("checkpoints")).into_iter().flatten().flatten();
        let mut found: Vec<Checkpoint> = entries.filter_map(|entry| checkpoint(&entry)).collect();
        found.sort_by_key(|checkpoint| std::cmp::Reverse(checkpoint.step));
        found
    }

    /// The process that trains a run now.
    pub(crate) fn holder(&self, folder: &Path) -> Option<u32> {
        holder(folder)
    }
}

/// A run's folder has a recipe, or is locked by a run that is about to write one.
fn is_run(folder: &Path) -> bool {
    ["recipe.toml", "events.jsonl", "run.lock"].iter().any(|name| folder.join(name).is_file())
}

fn catch_up<T: Default>(read: &mut Read<T>, folder: &Path, hear: impl Fn(&mut T, &[u8])) -> io::Result<()> {
    let path = folder.join("events.jsonl");
    loop {
        let lines = Lines::read(&path, read.place)?;
        if lines.replaced {
            *read = Read::default();
            continue;
        }
        lines.each().for_each(|(line, _)| hear(&mut read.of, line));
        read.place = lines.place();
        if !lines.more {
            return Ok(());
        }
    }
}

fn checkpoint(entry: &fs::DirEntry) -> Option<Checkpoint> {
    let name = entry.file_name().into_string().ok()?;
    let step = name.strip_prefix("step-")?.parse().ok()?;
    let files: Vec<fs::Metadata> =
        fs::read_dir(entry.path()).ok()?.flatten().filter_map(|file| file.metadata().ok()).collect();
    let written = files.iter().filter_map(|file| file.modified().ok()).map(unix_seconds).max().unwrap_or(0);
    Some(Checkpoint { name, step, bytes: files.iter().map(fs::Metadata::len).sum(), written })
}

pub(crate) fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders() -> (tempfile::TempDir, Folders) {
        let dir = tempfile::tempdir().unwrap();
        let folders = Folders::new(&dir.path().join("runs")).unwrap();
        (dir, folders)
    }

    #[test]
    fn links_that_lead_out_are_no_runs() {
        let (dir, folders) = folders();
        let outside = dir.path().join("outside");
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("recipe.toml"), "").unwrap();
        std::os::unix::fs::symlink(&outside, folders.root().join("link")).unwrap();
        fs::create_dir(folders.root().join("real")).unwrap();
        fs::write(folders.root().join("real/recipe.toml"), "").unwrap();
        fs::create_dir(folders.root().join("empty")).unwrap();
        assert_eq!(folders.ids(), [RunId::parse("real").unwrap()]);
        assert!(folders.find(&RunId::parse("link").unwrap()).is_none());
    }

    #[test]
    fn summaries_and_curves_follow_what_is_appended_and_start_over_with_a_new_file() {
        let (_dir, folders) = folders();
        let (id, folder) = (RunId::parse("a").unwrap(), folders.root().join("a"));
        fs::create_dir(&folder).unwrap();
        let line = |step: usize, loss: f64| {
            format!(
                "{{\"event\":\"step\",\"step\":{step},\"epoch\":0,\"loss\":{loss},\"norm\":1,\"lr\":1,\"ms\":1,\
                 \"samples_per_s\":1,\"stall_ms\":0,\"remaining_s\":1,\"planned_peak_bytes\":1,\"measured_peak_bytes\":1}}\n"
            )
        };
        let path = folder.join("events.jsonl");
        fs::write(&path, line(1, 4.0) + &line(2, 3.0)).unwrap();
        assert_eq!(folders.summary(&id, &folder).loss, Some(3.0));
        assert_eq!(folders.curves(&id, &folder, 100).unwrap().steps.step, [1, 2]);
        fs::write(&path, line(1, 4.0) + &line(2, 3.0) + &line(3, 2.0) + "{\"event\":\"st").unwrap();
        assert_eq!(folders.summary(&id, &folder).step, 3);
        assert_eq!(folders.curves(&id, &folder, 100).unwrap().steps.step, [1, 2, 3]);
        fs::write(&path, line(1, 9.0)).unwrap();
        assert_eq!(folders.summary(&id, &folder).loss, Some(9.0));
        assert_eq!(folders.curves(&id, &folder, 100).unwrap().steps.step, [1]);
        // A run of the same name, further than the one before it was.
        fs::remove_dir_all(&folder).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::create_dir(&folder).unwrap();
        fs::write(&path, line(5, 0.5) + &line(6, 0.25)).unwrap();
        assert_eq!(folders.summary(&id, &folder).smoothed_loss.map(|loss| loss < 0.5), Some(true));
        assert_eq!(folders.curves(&id, &folder, 100).unwrap().steps.step, [5, 6]);
        assert_eq!(folders.facts(&id, &folder).step.map(|step| step.step), Some(6));
    }
}
