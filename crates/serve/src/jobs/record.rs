//! A job on disk: all that a server has to know to take it up again.

use super::Process;
use crate::folders::{OWN, RunId, unix_seconds};
use plimsoll_runs::open_inside;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub id: RunId,
    pub state: JobState,
    /// What the child is called with.
    pub arguments: Vec<String>,
    /// cpu or cuda:N.
    pub device: String,
    /// What its plan takes there.
    pub bytes: u64,
    /// How long its plan expects it to take.
    pub seconds: Option<f64>,
    /// Seconds since 1970.
    pub asked: u64,
    /// Whose turn it is: more than any job had that was asked for before it; 0 in what older servers wrote. A clock would
    /// not do: it is set back, and many ask in one second.
    #[serde(default)]
    pub turn: u64,
    #[serde(default)]
    pub process: Option<Process>,
    #[serde(default)]
    pub began: Option<u64>,
    /// When its end was heard of.
    #[serde(default)]
    pub ended: Option<u64>,
    /// A stop was asked for.
    #[serde(default)]
    pub stopping: bool,
    /// Where its words begin in the log: before them are those of the same run before it was taken up again.
    #[serde(default)]
    pub log_from: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum JobState {
    Queued,
    Started,
    /// With the exit code or the signal, where a server was there to hear of it.
    Ended {
        code: Option<i32>,
        #[serde(default)]
        signal: Option<i32>,
    },
}

pub(crate) fn folder(root: &Path, id: &RunId) -> PathBuf {
    root.join(OWN).join(id.as_str())
}

impl Job {
    /// Written whole or not at all.
    pub(crate) fn store(&self, root: &Path) -> io::Result<()> {
        let folder = folder(root, &self.id);
        let draft = folder.join("job.json.tmp");
        let mut file = fs::File::create(&draft)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        fs::rename(draft, folder.join("job.json"))
    }

    pub(crate) fn end(&mut self, code: Option<i32>, signal: Option<i32>) {
        self.state = JobState::Ended { code, signal };
        self.ended = Some(unix_seconds(SystemTime::now()));
    }

    fn load(root: &Path, id: &RunId) -> Option<Job> {
        let mut text = Vec::new();
        open_inside(&folder(root, id).join("job.json")).ok()?.read_to_end(&mut text).ok()?;
        let job: Job = serde_json::from_slice(&text).ok()?;
        (job.id == *id).then_some(job)
    }

    pub(crate) fn state_name(&self) -> &'static str {
        match self.state {
            JobState::Queued => "queued",
            JobState::Started => "started",
            JobState::Ended { .. } => "ended",
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.state == JobState::Started && self.process.is_some_and(|process| process.is_alive())
    }
}

/// Jobs as they stand on disk, read again where they were written since.
#[derive(Default)]
pub(super) struct Records(HashMap<RunId, (SystemTime, Job)>);

/// A file that was written this recently may be written once more at what its clock takes for the same time.
const UNSETTLED: Duration = Duration::from_secs(2);

impl Records {
    /// Every job in the order of asking; what cannot be read is passed over.
    pub(super) fn look(&mut self, root: &Path) -> Vec<Job> {
        let entries = fs::read_dir(root.join(OWN)).into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| RunId::parse(entry.file_name().to_str()?));
        let before = std::mem::take(&mut self.0);
        let known = ids.filter_map(|id| Some((id.clone(), written(root, &id)?)));
        self.0 = known
            .filter_map(|(id, at)| {
                let is_settled = at.elapsed().is_ok_and(|age| age > UNSETTLED);
                let kept = before.get(&id).filter(|(then, _)| is_settled && *then == at);
                let job = kept.map(|(_, job)| job.clone()).or_else(|| Job::load(root, &id))?;
                Some((id, (at, job)))
            })
            .collect();
        let mut jobs: Vec<Job> = self.0.values().map(|(_, job)| job.clone()).collect();
        jobs.sort_by(|a, b| (a.turn, a.asked, a.id.numbered()).cmp(&(b.turn, b.asked, b.id.numbered())));
        jobs
    }
}

fn written(root: &Path, id: &RunId) -> Option<SystemTime> {
    fs::metadata(folder(root, id).join("job.json")).ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the first servers wrote it.
    fn job(id: &str, asked: u64) -> Job {
        let text = serde_json::json!({"id": id, "state": "queued", "arguments": [], "device": "cpu", "bytes": 1,
            "seconds": null, "asked": asked});
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn jobs_come_in_the_order_of_asking_whatever_the_clock_said() {
        let root = tempfile::tempdir().unwrap();
        let old = (1..=12).rev().map(|number| job(&format!("run-{number}"), 5));
        let new = [("b-1", 7, 13), ("a-1", 7, 14), ("c-1", 3, 15)];
        let new = new.map(|(id, asked, turn)| Job { turn, ..job(id, asked) });
        for job in old.chain(new) {
            fs::create_dir_all(folder(root.path(), &job.id)).unwrap();
            job.store(root.path()).unwrap();
        }
        let found: Vec<String> = Records::default().look(root.path()).iter().map(|job| job.id.to_string()).collect();
        let wanted = (1..=12).map(|number| format!("run-{number}")).chain(["b-1", "a-1", "c-1"].map(String::from));
        assert_eq!(found, wanted.collect::<Vec<_>>());
    }
}
