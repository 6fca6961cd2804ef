//! A process that outlives the server: known by its number and the moment it began, so that a number given to somebody
//! else is not mistaken for it.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub pid: u32,
    /// Clock ticks since the machine started.
    began: u64,
}

/// What to tell a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Save and leave; a second time: leave at once.
    Interrupt,
    Kill,
}

impl Process {
    /// The process of a number, if it lives.
    pub(crate) fn find(pid: u32) -> Option<Process> {
        Some(Process { pid, began: began(pid)? })
    }

    pub(crate) fn is_alive(&self) -> bool {
        began(self.pid) == Some(self.began)
    }

    /// Whether it runs this program: what a file says about a process is not believed.
    pub(crate) fn runs(&self, program: &Path) -> bool {
        let exe = fs::read_link(format!("/proc/{}/exe", self.pid)).unwrap_or_default();
        // A binary that was replaced while it runs is said to be deleted.
        let name = exe.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        program.file_name().is_some_and(|own| name.trim_end_matches(" (deleted)") == own.to_string_lossy())
    }

    pub(crate) fn send(&self, signal: Signal) -> io::Result<()> {
        if !self.is_alive() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it is gone"));
        }
        let number = match signal {
            Signal::Interrupt => libc::SIGINT,
            Signal::Kill => libc::SIGKILL,
        };
        let pid = libc::pid_t::try_from(self.pid).map_err(io::Error::other)?;
        // SAFETY: a signal to a process by its number; no memory is touched.
        match unsafe { libc::kill(pid, number) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Memory that it holds now.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{}/statm", self.pid)).ok()?;
        let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
        Some(pages * 4096)
    }
}

/// When a living process began; one that is dead and not yet fetched does not live.
fn began(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    if state == "Z" || state == "X" { None } else { fields.nth(18)?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_known_while_it_lives_and_not_after() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::find(child.id()).unwrap();
        assert!(process.is_alive() && process.resident_bytes().is_some());
        assert!(process.runs(Path::new("/usr/bin/sleep")) && !process.runs(Path::new("/usr/bin/plimsoll")));
        assert!(!Process { began: process.began + 1, ..process }.is_alive());
        process.send(Signal::Kill).unwrap();
        child.wait().unwrap();
        assert!(!process.is_alive() && process.send(Signal::Interrupt).is_err());
    }
}
