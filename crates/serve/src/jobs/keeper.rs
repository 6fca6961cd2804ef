//! Which server keeps the queue of a folder of runs. There is one: two would start the same trainings, and each would
//! write over what the other knows.

use crate::folders::OWN;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

const LOCK: &str = "server.lock";
/// Who only looks holds the lock for a moment; who keeps the queue does so for longer than all of these.
const TRIES: usize = 10;
const BETWEEN: Duration = Duration::from_millis(20);

/// The right to keep a queue. It goes with the process, however that ends.
#[derive(Debug)]
pub(crate) struct Keeper(File);

/// The server that keeps a queue already, in its own words: `process 4711 at http://127.0.0.1:8642`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other(String);

impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "a process that has not said its number" } else { &self.0 })
    }
}

impl Keeper {
    /// Takes the queue of this folder, or says who has it.
    pub(crate) fn take(runs: &Path) -> io::Result<Result<Keeper, Other>> {
        fs::create_dir_all(runs.join(OWN))?;
        let mut lock = open(runs, true)?;
        for _ in 0..TRIES {
            match lock.try_lock() {
                Err(TryLockError::WouldBlock) => sleep(BETWEEN),
                // Where the file system has no locks, a server is better than none.
                Ok(()) | Err(TryLockError::Error(_)) => return Ok(Ok(Keeper(lock))),
            }
        }
        Ok(Err(written(&mut lock)))
    }

    /// Leaves word of who and where this is.
    pub(crate) fn sign(&mut self, address: SocketAddr) -> io::Result<()> {
        self.0.set_len(0)?;
        self.0.rewind()?;
        write!(self.0, "process {} at http://{address}", std::process::id())
    }
}

/// Who keeps the queue of this folder now.
pub(crate) fn keeper(runs: &Path) -> Option<Other> {
    let mut lock = open(runs, false).ok()?;
    match lock.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(written(&mut lock)),
        _ => None,
    }
}

fn open(runs: &Path, write: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(write).create(write).truncate(false).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options.open(runs.join(OWN).join(LOCK))
}

/// What stands in a lock is shown, so it is short and plain.
fn written(lock: &mut File) -> Other {
    let mut text = String::new();
    let _ = lock.take(120).read_to_string(&mut text);
    Other(text.chars().filter(|c| !c.is_control()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_one_keeper_and_the_next_one_hears_who_it_is() {
        let runs = tempfile::tempdir().unwrap();
        assert_eq!(keeper(runs.path()), None);
        let mut first = Keeper::take(runs.path()).unwrap().unwrap();
        let other = Keeper::take(runs.path()).unwrap().unwrap_err();
        assert!(other.to_string().contains("not said"), "{other}");
        first.sign("127.0.0.1:8642".parse().unwrap()).unwrap();
        let other = Keeper::take(runs.path()).unwrap().unwrap_err();
        assert_eq!(other.to_string(), format!("process {} at http://127.0.0.1:8642", std::process::id()));
        assert_eq!(keeper(runs.path()), Some(other));
        drop(first);
        assert!(keeper(runs.path()).is_none() && Keeper::take(runs.path()).unwrap().is_ok());
    }
}
