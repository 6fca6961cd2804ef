//! One `plimsoll train` as a process of its own: started, followed by its events, asked to stop, heard out at its end.
//! It dies with its coordinator, so that nothing trains behind anybody's back.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use plimsoll_runs::{End, Event, EventTail, Finished};

use crate::error::{Error, Result};

/// What to run, where.
#[derive(Clone, Debug)]
pub(super) struct Task {
    /// The command `plimsoll`.
    pub program: PathBuf,
    pub recipe: PathBuf,
    pub settings: Vec<String>,
    pub device: String,
    pub threads: Option<usize>,
    pub out: PathBuf,
    /// What it says goes here.
    pub log: PathBuf,
    /// A plan whose library algorithms are taken over where products are the same.
    pub products: Option<PathBuf>,
    /// A variable of the environment that is the coordinator's alone.
    pub secret: Option<String>,
}

/// A training under way.
pub(super) struct Training {
    child: Child,
    tail: EventTail,
    log: PathBuf,
    /// Bytes of the log that are of earlier starts.
    log_from: u64,
    finished: Option<Finished>,
}

/// How a training ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ending {
    Finished(Box<Finished>),
    /// It was asked to stop, and left a checkpoint.
    Interrupted,
    /// The loss became no number.
    Diverged(String),
    /// There was no memory for it after all.
    DoesNotFit(String),
    /// Whatever it was asked to do cannot be done.
    Refused(String),
    /// It died or failed on the way; another start may do better.
    Died(String),
}

impl Training {
    /// Starts a training, or goes on with the run in the folder if there is one.
    pub(super) fn start(task: &Task) -> Result<Training> {
        let log = open_log(&task.log)?;
        let log_from = log.metadata().map_err(Error::file(&task.log))?.len();
        let mut command = task.command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // Ctrl-C on the terminal is the coordinator's to hear, who then asks its trials.
        command.process_group(0);
        die_with_parent(&mut command);
        let child = command.spawn().map_err(Error::file(&task.program))?;
        let tail = EventTail::new(&task.out.join("events.jsonl"));
        Ok(Training { child, tail, log: task.log.clone(), log_from, finished: None })
    }

    /// What it told since the last look.
    pub(super) fn events(&mut self) -> Vec<Event> {
        // A file that cannot be read now may be read later; the end of the process is heard in any case.
        let events = self.tail.next_events().unwrap_or_default();
        for event in &events {
            match event {
                Event::Finished(finished) => self.finished = Some(finished.clone()),
                Event::Resumed { .. } | Event::Started(_) => self.finished = None,
                _ => {}
            }
        }
        events
    }

    /// Asks it to write a checkpoint and leave.
    pub(super) fn interrupt(&self) {
        self.signal(libc::SIGINT);
    }

    /// Ends it at once.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the process is our child and has not been waited for, so its number is still its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// How it ended, once it has; `events` must have been read to the end by then, so it is asked for them again.
    pub(super) fn ended(&mut self) -> Option<(Vec<Event>, Ending)> {
        let status = self.child.try_wait().ok()??;
        let last = self.events();
        let ending = match (status.code(), self.finished.take()) {
            (Some(0), Some(finished)) => Ending::Finished(Box::new(finished)),
            (_, Some(finished)) if finished.end == End::Interrupted => Ending::Interrupted,
            (Some(2), _) => Ending::Refused(self.last_words("it was refused")),
            (Some(3), _) => Ending::DoesNotFit(self.last_words("it did not fit")),
            (Some(_), _) => self.failed(),
            (None, _) => Ending::Died(format!("killed by signal {}", status.signal().unwrap_or(0))),
        };
        Some((last, ending))
    }

    fn failed(&self) -> Ending {
        let words = self.last_words("it failed");
        if words.contains("diverged") { Ending::Diverged(words) } else { Ending::Died(words) }
    }

    /// The message of the error, from what it said.
    fn last_words(&self, otherwise: &str) -> String {
        let said = read_from(&self.log, self.log_from).unwrap_or_default();
        let from = said.lines().rev().find_map(|line| line.split_once("error: ").map(|(_, words)| words.trim()));
        from.filter(|words| !words.is_empty()).unwrap_or(otherwise).to_string()
    }
}

impl Drop for Training {
    /// Nobody would hear of it any more.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
    }
}

impl Task {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        // A trial has no business with the storage.
        for name in ["PGPASSWORD"].into_iter().chain(self.secret.as_deref()) {
            command.env_remove(name);
        }
        let stored = self.out.join("recipe.toml");
        let resumed = stored.is_file();
        command.arg("train").arg(if resumed { &stored } else { &self.recipe });
        command.arg("--out").arg(&self.out).arg("--device").arg(&self.device);
        if resumed {
            // The stored recipe holds every setting of the first start.
            command.arg("--resume");
        } else {
            for set in &self.settings {
                command.args(["--set", set]);
            }
        }
        if let Some(threads) = self.threads {
            command.arg("--threads").arg(threads.to_string());
        }
        if let Some(products) = self.products.as_ref().filter(|_| !resumed) {
            command.arg("--products").arg(products);
        }
        command
    }
}

fn open_log(path: &Path) -> Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(Error::file(folder))?;
    }
    OpenOptions::new().create(true).append(true).open(path).map_err(Error::file(path))
}

fn read_from(path: &Path, offset: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(target_os = "linux")]
fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let before_exec = move || {
        // SAFETY: both calls are async-signal-safe and touch nothing of this process's memory.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
            // The parent may have gone before the line above.
            if libc::getppid() as u32 != parent {
                return Err(std::io::Error::other("the coordinator is gone"));
            }
        }
        Ok(())
    };
    // SAFETY: the closure allocates nothing on its good path and takes no locks: it may run between fork and exec.
    unsafe { command.pre_exec(before_exec) };
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_: &mut Command) {}
