//! How far a sink has come, kept in the run's folder: what is behind it is the spool.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cursor {
    /// Bytes of events.jsonl that are delivered.
    pub(crate) offset: u64,
    /// The sink's own.
    #[serde(default)]
    pub(crate) state: Value,
    /// Why the rest is not delivered; empty where all is well.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) trouble: String,
}

/// The folder of cursors in a run's folder.
pub(crate) fn folder(run: &Path) -> PathBuf {
    run.join("track")
}

fn path(run: &Path, sink: &str) -> PathBuf {
    folder(run).join(format!("{sink}.json"))
}

impl Cursor {
    /// A cursor that is damaged or not there is one at the beginning.
    pub(crate) fn load(run: &Path, sink: &str) -> Cursor {
        let text = fs::read(path(run, sink)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// As a draft first: a kill leaves the old one or the new one.
    pub(crate) fn save(&self, run: &Path, sink: &str) -> io::Result<()> {
        let (path, draft) = (path(run, sink), folder(run).join(format!(".{sink}.draft")));
        fs::write(&draft, serde_json::to_vec(self)?)?;
        fs::rename(draft, path)
    }
}

/// Every cursor of a run, by the name of its sink.
pub(crate) fn all(run: &Path) -> Vec<(String, Cursor)> {
    let Ok(entries) = fs::read_dir(folder(run)) else { return Vec::new() };
    let name = |entry: fs::DirEntry| Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_string());
    let mut names: Vec<String> = entries.flatten().filter_map(name).filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names.into_iter().map(|name| (name.clone(), Cursor::load(run, &name))).collect()
}
