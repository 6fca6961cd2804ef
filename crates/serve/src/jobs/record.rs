//! A job on disk: all that a server has to know to take it up again.

use super::Process;
use crate::folders::RunId;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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
    #[serde(default)]
    pub process: Option<Process>,
    #[serde(default)]
    pub began: Option<u64>,
    /// A stop was asked for.
    #[serde(default)]
    pub stopping: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum JobState {
    Queued,
    Started,
    /// With the exit code, where this server was there to hear it.
    Ended {
        code: Option<i32>,
    },
}

/// The folder of the server's own files, beside the runs; its name is no run's.
pub(crate) const OWN: &str = ".serve";

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

    /// Every job that was stored; what cannot be read is passed over.
    pub(crate) fn load_all(root: &Path) -> Vec<Job> {
        let folders = fs::read_dir(root.join(OWN)).into_iter().flatten().flatten();
        let read = |entry: fs::DirEntry| -> Option<Job> {
            let job: Job = serde_json::from_slice(&fs::read(entry.path().join("job.json")).ok()?).ok()?;
            (job.id.as_str() == entry.file_name().to_str()?).then_some(job)
        };
        let mut jobs: Vec<Job> = folders.filter_map(read).collect();
        jobs.sort_by_key(|job| job.asked);
        jobs
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
