//! Who trains in a folder: its lock is held as long as the process lives, however that ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The file that is locked; it holds the process's number, for others to name.
pub const LOCK: &str = "run.lock";

/// Opens the lock of a run's folder, and makes it if that is wanted. Neither a link nor a pipe leads anywhere else.
pub fn open_lock(run: &Path, create: bool) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).write(create).create(create).truncate(false).custom_flags(flags).open(run.join(LOCK))
}

/// The process that trains in a folder now; 0 where it is not known which.
pub fn holder(run: &Path) -> Option<u32> {
    let mut file = open_lock(run, false).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(written_number(&mut file)),
        _ => None,
    }
}

/// The process that a lock names, 0 where it names none.
pub fn written_number(lock: &mut File) -> u32 {
    let mut text = String::new();
    let _ = lock.take(16).read_to_string(&mut text);
    text.trim().parse().unwrap_or(0)
}
