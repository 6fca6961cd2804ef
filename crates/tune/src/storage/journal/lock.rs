//! One writer at a time, agreed upon with Optuna: whoever creates `JOURNAL.lock` may write, and deletes it afterwards.
//! A lock that nothing happened under for half a minute was left behind by a process that died, and is broken.
//!
//! Among our own processes that takes no waiting. They hold an ordinary file lock on the journal as well, which the
//! system releases with the process: who gets it and still finds one of our lock files knows that its owner is dead.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::unique_name;
use crate::error::{Error, Result};

/// As long as Optuna waits.
const GRACE: Duration = Duration::from_secs(30);

/// The right to write to a journal, until it is dropped.
pub(super) struct Lock {
    file: PathBuf,
    /// Released by closing it, after the lock file is gone.
    _held: File,
}

impl Lock {
    pub(super) fn acquire(journal: &Path) -> Result<Self> {
        let held = File::open(journal).map_err(Error::file(journal))?;
        // File systems without such locks exist: there, only the waiting is left.
        let is_only_one = lock_within_grace(&held);
        let file = lock_file(journal);
        let mut patience = Patience::new();
        while let Err(cause) = std::os::unix::fs::symlink(our_target(journal), &file) {
            if cause.kind() != ErrorKind::AlreadyExists {
                return Err(Error::File { path: file, cause });
            }
            let left_by_us = is_only_one && fs::read_link(&file).is_ok_and(|target| target == our_target(journal));
            if left_by_us || patience.is_over(&file) {
                remove(&file);
                patience = Patience::new();
            }
        }
        Ok(Self { file, _held: held })
    }
}

#[cfg(test)]
impl Lock {
    /// What a kill leaves behind: the lock file stays, the system's lock goes. Returns the file.
    pub(super) fn die(self) -> PathBuf {
        let mut lock = std::mem::ManuallyDrop::new(self);
        lock._held.unlock().unwrap();
        std::mem::take(&mut lock.file)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        remove(&self.file);
    }
}

/// Whether the system's lock was got; a process that is stopped may hold it for ever.
fn lock_within_grace(file: &File) -> bool {
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if began.elapsed() < GRACE => std::thread::sleep(Duration::from_millis(1)),
            result => return result.is_ok(),
        }
    }
}

fn lock_file(journal: &Path) -> PathBuf {
    let mut name = journal.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// The journal, spelled in a way that only we do: `/folder/./journal`. Optuna looks at the journal's age through it.
fn our_target(journal: &Path) -> PathBuf {
    let folder = journal.parent().unwrap_or(Path::new("/"));
    folder.join(".").join(journal.file_name().unwrap_or_default())
}

/// Under another name first, so that of two who remove it at once only one does, and no new lock is hit.
fn remove(file: &Path) {
    let mut aside = file.as_os_str().to_owned();
    aside.push(unique_name());
    aside.push(".rename");
    if fs::rename(file, &aside).is_ok() {
        let _ = fs::remove_file(&aside);
    }
}

/// Waits longer and longer, and sees when nothing has happened for too long.
struct Patience {
    pause: Duration,
    changed: Option<SystemTime>,
    since: Instant,
}

impl Patience {
    fn new() -> Self {
        Self { pause: Duration::from_millis(1), changed: None, since: Instant::now() }
    }

    fn is_over(&mut self, file: &Path) -> bool {
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(Duration::from_secs(1));
        // Through the link, as Optuna does: a journal that grows is a lock in use. A dangling link has its own age.
        let metadata = fs::metadata(file).or_else(|_| fs::symlink_metadata(file));
        let changed = metadata.and_then(|metadata| metadata.modified()).ok();
        if changed != self.changed {
            self.changed = changed;
            self.since = Instant::now();
        }
        self.since.elapsed() > GRACE
    }
}
