//! A study's folder: the journal, a run's folder for each trial, what they said, and who coordinates.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::rng::mixed;
use crate::storage::absolute;
use crate::study::Study;

/// `studies/NAME/`.
#[derive(Clone, Debug, PartialEq)]
pub struct StudyFolder {
    path: PathBuf,
}

/// Held by the one process that runs a study; it goes with the process, however that ends.
#[derive(Debug)]
pub(crate) struct Held {
    lock: File,
    /// As what the process before this one ran its trials.
    before: Option<String>,
}

impl Held {
    /// Writes down as what this process runs its trials; returns what the one before it wrote.
    pub(super) fn sign(&mut self, worker: &str) -> std::io::Result<Option<String>> {
        write!(self.lock, " {worker}")?;
        Ok(self.before.take())
    }
}

const LOCK: &str = "coordinator.lock";
const STORAGE: &str = "storage";
const IDENTITY: &str = "study.id";
/// Bytes of a study's name that its folder has, at most.
const MOST_BYTES: usize = 150;

/// What file names cannot hold is replaced, so that any study has a folder of its own name or nearly so; where it is not
/// quite the name, a few digits keep it from being another's.
fn as_file_name(name: &str) -> String {
    let clean: String = name.chars().map(|c| if c == '/' || c.is_control() { '-' } else { c }).collect();
    let clean = if clean.starts_with('.') { format!("-{clean}") } else { clean };
    let short = &clean[..clean.floor_char_boundary(MOST_BYTES)];
    if short == name {
        return short.into();
    }
    let digits = mixed(0xcbf2_9ce4_8422_2325, name);
    format!("{short}-{digits:016x}")
}

impl StudyFolder {
    /// The folder of a study inside `studies`.
    pub fn of(studies: &Path, name: &str) -> StudyFolder {
        StudyFolder { path: studies.join(as_file_name(name)) }
    }

    /// A folder that is there, whatever study it is of.
    pub fn at(path: PathBuf) -> StudyFolder {
        StudyFolder { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the study is kept unless a storage is named.
    pub fn journal(&self) -> PathBuf {
        self.path.join("journal.log")
    }

    /// Writes down which storage the study is kept in, where that is a file elsewhere: who looks through the folders of
    /// studies finds it by this.
    pub(super) fn remember(&self, storage: &str) -> Result<()> {
        let file = self.path.join(STORAGE);
        match absolute(storage).filter(|address| Some(address) != absolute(&self.own_address()).as_ref()) {
            Some(address) => fs::write(&file, address).map_err(Error::file(&file)),
            None => Ok(()),
        }
    }

    fn own_address(&self) -> String {
        format!("journal:{}", self.journal().display())
    }

    /// The address that was written down last.
    pub fn remembered(&self) -> Option<String> {
        // Who looks through folders of others waits for no pipe.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(self.path.join(STORAGE)).ok()?;
        let is_file = file.metadata().is_ok_and(|there| there.is_file());
        let mut text = String::new();
        file.take(4096).read_to_string(&mut text).ok().filter(|_| is_file)?;
        Some(text)
    }

    pub fn trial(&self, number: u64) -> PathBuf {
        self.path.join(format!("trial-{number}"))
    }

    pub(super) fn log(&self, number: u64) -> PathBuf {
        self.path.join("logs").join(format!("trial-{number}.log"))
    }

    pub fn create(&self) -> Result<()> {
        fs::create_dir_all(&self.path).map_err(Error::file(&self.path))
    }

    /// Refuses a study whose folder holds the runs of another one: they would be taken for its own.
    pub(super) fn belongs_to(&self, study: &Study) -> Result<()> {
        let Some(identity) = study.identity() else { return Ok(()) };
        let file = self.path.join(IDENTITY);
        let there = fs::read_to_string(&file).ok();
        if there.as_deref() == Some(identity) {
            return Ok(());
        }
        self.belongs_to_nobody()?;
        fs::write(&file, identity).map_err(Error::file(&file))
    }

    /// Refuses what only a study may go on in that is there already: it is known before a new one is made.
    pub(super) fn belongs_to_nobody(&self) -> Result<()> {
        if !self.path.join(IDENTITY).exists() && !self.has_trials() {
            return Ok(());
        }
        let cause = format!("{} holds trials of another study", self.path.display());
        let hint = "name another study, choose another folder with --studies, or remove that one";
        Err(Error::Input(format!("{cause}\nhint: {hint}")))
    }

    fn has_trials(&self) -> bool {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).any(|name| name.starts_with("trial-"))
    }

    /// Removes a folder that holds nothing but the lock of a start that failed.
    pub(super) fn remove_unused(&self) {
        let mut entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        if entries.all(|entry| entry.file_name() == LOCK) {
            let _ = fs::remove_file(self.path.join(LOCK)).and_then(|()| fs::remove_dir(&self.path));
        }
    }

    /// Takes the study for this process.
    pub(crate) fn hold(&self, study: &str) -> Result<Held> {
        self.create()?;
        let path = self.path.join(LOCK);
        let open = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let mut lock = open.map_err(Error::file(&path))?;
        match lock.try_lock() {
            // Whoever made it found nothing to do and removed it again.
            Ok(()) if lock.metadata().is_ok_and(|there| there.nlink() == 0) => self.hold(study),
            Ok(()) => {
                let before = said_in(&mut lock).split_whitespace().nth(1).map(String::from);
                let fresh = lock.set_len(0).and_then(|()| lock.rewind());
                fresh.and_then(|()| write!(lock, "{}", std::process::id())).map_err(Error::file(&path))?;
                Ok(Held { lock, before })
            }
            Err(TryLockError::WouldBlock) => {
                let holder = said_in(&mut lock).split_whitespace().next().unwrap_or("unknown").into();
                Err(Error::Busy { study: study.into(), holder })
            }
            Err(TryLockError::Error(cause)) => Err(Error::File { path, cause }),
        }
    }
}

/// What cannot be read says nothing.
fn said_in(lock: &mut File) -> String {
    let mut bytes = Vec::new();
    let _ = lock.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_study_is_held_by_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let folder = StudyFolder::of(dir.path(), "a/b");
        let names = ["a/b", "a-b", ".a", &"я".repeat(150), &"x".repeat(300), &"x".repeat(299)];
        let folders: std::collections::BTreeSet<PathBuf> =
            names.iter().map(|name| StudyFolder::of(dir.path(), name).path).collect();
        assert!(folders.len() == 6 && folders.contains(&dir.path().join("a-b")), "{folders:?}");
        assert!(folders.iter().all(|path| path.file_name().is_some_and(|name| name.len() < 180)));
        let held = folder.hold("a/b").unwrap();
        let refused = folder.hold("a/b").unwrap_err().to_string();
        assert!(refused.contains(&std::process::id().to_string()), "{refused}");
        drop(held);
        let mut next = folder.hold("a/b").unwrap();
        assert_eq!(next.sign("worker-2").unwrap(), None);
        drop(next);
        assert_eq!(folder.hold("a/b").unwrap().sign("worker-3").unwrap().as_deref(), Some("worker-2"));
    }

    #[test]
    fn a_folder_remembers_a_storage_elsewhere_and_no_secret() {
        let dir = tempfile::tempdir().unwrap();
        let folder = StudyFolder::of(dir.path(), "a");
        folder.create().unwrap();
        for own in [folder.own_address(), "postgresql://ann:hush@host/db".into()] {
            folder.remember(&own).unwrap();
            assert_eq!(folder.remembered(), None);
        }
        let file = dir.path().join("study.db");
        fs::write(&file, "").unwrap();
        let pipe = folder.path.join(STORAGE);
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(folder.remembered(), None, "a pipe is no file, and nobody writes into it");
        fs::remove_file(pipe).unwrap();
        folder.remember(&format!("sqlite:///{}", file.display())).unwrap();
        assert_eq!(folder.remembered(), Some(format!("sqlite:{}", file.canonicalize().unwrap().display())));
    }
}
