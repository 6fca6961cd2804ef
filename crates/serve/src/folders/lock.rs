//! Who trains in a folder: its lock is held as long as the process lives, however that ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The process that trains in a folder now; 0 where it is not known which.
pub(crate) fn holder(folder: &Path) -> Option<u32> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(folder.join("run.lock")).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(number(&mut file)),
        _ => None,
    }
}

fn number(file: &mut File) -> u32 {
    let mut text = String::new();
    let _ = file.take(16).read_to_string(&mut text);
    text.trim().parse().unwrap_or(0)
}
