//! Studies of the search, as `plimsoll tune` keeps them: a folder each, with a journal in it. One that has not changed is
//! not read again.

use super::RunId;
use plimsoll_tune::report::{self, StudyReport};
use plimsoll_tune::trials::StudyFolder;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// Studies that are listed and remembered.
const MOST_STUDIES: usize = 500;
/// A journal beyond this is not for a page.
const LARGEST: u64 = 256 << 20;

pub(crate) struct Studies {
    root: PathBuf,
    read: Mutex<HashMap<RunId, Kept>>,
}

/// A report and the journal it was made from.
#[derive(Clone)]
struct Kept {
    length: u64,
    changed: SystemTime,
    report: Arc<StudyReport>,
}

impl Studies {
    /// The folder need not be there yet.
    pub(crate) fn new(root: &Path) -> Studies {
        Studies { root: root.into(), read: Mutex::default() }
    }

    /// Every study by its folder's name.
    pub(crate) fn all(&self) -> Vec<(RunId, Arc<StudyReport>)> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let mut names: Vec<RunId> = entries.filter_map(|entry| RunId::parse(entry.file_name().to_str()?)).collect();
        names.sort();
        let found = names.into_iter().filter_map(|name| self.find(&name).map(|report| (name, report)));
        found.take(MOST_STUDIES).collect()
    }

    /// What a study has found so far.
    pub(crate) fn find(&self, name: &RunId) -> Option<Arc<StudyReport>> {
        let journal = self.journal(name)?;
        let there = fs::metadata(&journal).ok().filter(|there| there.is_file() && there.len() <= LARGEST)?;
        let (length, changed) = (there.len(), there.modified().ok()?);
        let known = self.lock().get(name).filter(|kept| (kept.length, kept.changed) == (length, changed)).cloned();
        if let Some(kept) = known {
            return Some(kept.report);
        }
        let report = Arc::new(read(&journal)?);
        let mut kept = self.lock();
        if kept.len() >= 2 * MOST_STUDIES {
            kept.clear();
        }
        kept.insert(name.clone(), Kept { length, changed, report: report.clone() });
        Some(report)
    }

    /// Links that lead out of the folder are no studies.
    fn journal(&self, name: &RunId) -> Option<PathBuf> {
        let root = self.root.canonicalize().ok()?;
        let path = StudyFolder::of(&root, name.as_str()).journal().canonicalize().ok()?;
        path.starts_with(&root).then_some(path)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<RunId, Kept>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A folder's journal holds the study that the folder is called after, whatever its name became as a file's.
fn read(journal: &Path) -> Option<StudyReport> {
    let address = format!("journal:{}", journal.display());
    let [only] = &report::studies(&address).ok()?[..] else { return None };
    let mut report = report::study(&address, &only.study).ok()?;
    // Where the server keeps its files is nobody's business.
    report.storage = "journal".into();
    Some(report)
}
