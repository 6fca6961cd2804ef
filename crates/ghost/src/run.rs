//! One question from beginning to end: find torch, put the stand-in in front, run the program, read what it left.

use crate::account::Account;
use crate::card::Card;
use crate::launch::{Ended, Ending, Launch};
use crate::notes::{Note, Notes};
use crate::python::{PythonError, Torch, interpreter_of};
use crate::report::{End, Findings, Report};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::stand_in::{StandIn, StandInError};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum GhostError {
    #[error(transparent)]
    Python(#[from] PythonError),
    #[error(transparent)]
    StandIn(#[from] StandInError),
    #[error("{command}: {cause}")]
    Start { command: String, cause: io::Error },
    #[error("{path}: {cause}")]
    Folder { path: PathBuf, cause: io::Error },
    #[error("{path}: LD_PRELOAD cannot name a folder with a space or a colon, and there is no /tmp")]
    Unnameable { path: PathBuf },
    #[error("the program never imported torch (it ended with {ending}){}", said(last_words))]
    NoTorch { ending: String, last_words: Vec<String> },
    #[error("the program never used CUDA: nothing of it ran on the GPU (it ended with {ending}){}", said(last_words))]
    NoCuda { ending: String, last_words: Vec<String> },
    #[error("the program left no memory history (it ended with {ending}){}", said(last_words))]
    NoHistory { ending: String, last_words: Vec<String> },
    #[error("the time limit came before there was anything to tell{}", said(last_words))]
    TimeLimit { last_words: Vec<String> },
    #[error("interrupted by Ctrl-C, SIGTERM or SIGHUP")]
    Interrupted,
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

impl GhostError {
    pub fn hint(&self) -> String {
        match self {
            GhostError::Python(error) => error.hint().into(),
            GhostError::StandIn(StandInError::Machine) => "run it on a Linux machine; no GPU is needed there".into(),
            GhostError::StandIn(_) | GhostError::Folder { .. } => {
                "check the path, its permissions and the space left".into()
            }
            GhostError::Unnameable { .. } => "set TMPDIR to a folder without them".into(),
            GhostError::Start { .. } => {
                "give the command as you would run it, e.g. `plimsoll ghost -- python train.py`".into()
            }
            GhostError::NoTorch { .. } => {
                "run it with --show-output to see why; `python -I`, `-E` and `-S` keep plimsoll out of the program"
                    .into()
            }
            GhostError::NoCuda { .. } => "let it train on `cuda`: torch.cuda.is_available() is true here".into(),
            GhostError::NoHistory { .. } => "run it with --show-output to see what it says".into(),
            GhostError::TimeLimit { .. } => "give it more with --time-limit".into(),
            GhostError::Interrupted => "what it had written down by then was too little for a report".into(),
            GhostError::Snapshot(_) => "this is a defect of plimsoll: please report it with the torch version".into(),
        }
    }

    /// Whether what was given is at fault, rather than the run.
    pub fn is_input(&self) -> bool {
        matches!(
            self,
            GhostError::Python(_)
                | GhostError::Start { .. }
                | GhostError::Unnameable { .. }
                | GhostError::StandIn(StandInError::Machine)
                | GhostError::NoTorch { .. }
                | GhostError::NoCuda { .. }
        )
    }
}

/// A program to try, on which card, for how long.
#[derive(Clone, Debug)]
pub struct Question {
    pub command: Vec<String>,
    /// The interpreter, where the command does not show it.
    pub python: Option<String>,
    pub card: Card,
    /// Whether the card's memory is a limit, or only to be counted.
    pub limited: bool,
    pub steps: Option<usize>,
    pub time_limit: Duration,
    /// Ranks of a distributed training, of which the program is the first.
    pub world: Option<usize>,
    pub environment: Vec<(String, String)>,
    pub show_output: bool,
    /// Cards to judge.
    pub cards: Vec<Card>,
}

/// So much that nothing runs out of it, and little enough for sums.
const NO_LIMIT: u64 = 1 << 43;

/// A folder that goes with its owner.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, GhostError> {
        let name = format!("plimsoll-ghost-{}-{:?}", std::process::id(), Instant::now())
            .replace([' ', '{', '}', ':', ','], "");
        let path = scratch_place(std::env::temp_dir())?.join(name);
        let made = fs::create_dir(&path)
            .and_then(|()| fs::create_dir(path.join("out")))
            .and_then(|()| fs::create_dir(path.join("libraries")));
        made.map_err(|cause| GhostError::Folder { path: path.clone(), cause })?;
        Ok(Scratch(path))
    }
}

/// The folder for temporary files, or where LD_PRELOAD could not name it, which splits at spaces and colons, another.
fn scratch_place(usual: PathBuf) -> Result<PathBuf, GhostError> {
    let nameable = |path: &Path| !path.as_os_str().as_encoded_bytes().iter().any(|byte| b" :\t\n;".contains(byte));
    let absolute = std::path::absolute(&usual).unwrap_or_else(|_| usual.clone());
    if nameable(&absolute) {
        return Ok(absolute);
    }
    let others = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from);
    others.into_iter().find(|place| place.is_dir()).ok_or(GhostError::Unnameable { path: absolute })
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Question {
    /// Runs the program and says what it took. `stop` ends it early.
    pub fn ask(&self, stop: &AtomicBool) -> Result<Report, GhostError> {
        let torch = self.torch()?;
        let scratch = Scratch::new()?;
        let stand_in = StandIn::write(&torch, &scratch.0.join("libraries"))?;
        let out = scratch.0.join("out");
        let started = Instant::now();
        let ended = self.launch().run(&torch, &stand_in, &out, stop);
        let ended = ended.map_err(|cause| GhostError::Start { command: self.command.join(" "), cause })?;
        self.read(&torch, &out, ended, started.elapsed().as_secs_f64())
    }

    fn torch(&self) -> Result<Torch, GhostError> {
        let python = self.python.clone().unwrap_or_else(|| interpreter_of(&self.command));
        Ok(Torch::of(&python)?)
    }

    fn launch(&self) -> Launch {
        let mut card = self.card.clone();
        if !self.limited {
            card.total_bytes = NO_LIMIT;
        }
        Launch {
            command: self.command.clone(),
            card,
            steps: self.steps,
            time_limit: self.time_limit,
            world: self.world,
            environment: self.environment.clone(),
            show_output: self.show_output,
        }
    }

    fn read(&self, torch: &Torch, out: &Path, ended: Ended, seconds: f64) -> Result<Report, GhostError> {
        let notes = Notes::of_run(out);
        let Some(history) = &notes.history else { return Err(why_none(torch, &notes, ended)) };
        let snapshot = Snapshot::open(history)?;
        let mut account = Account::of(&snapshot, &notes);
        if let Some((allocated, reserved)) = notes.counted() {
            account.peak.allocated = account.peak.allocated.max(allocated);
            account.peak_reserved = account.peak_reserved.max(reserved);
        }
        let findings = Findings {
            card: &self.card,
            limited: self.limited,
            notes: &notes,
            account: &account,
            settings: &snapshot.settings,
            ending: ended.ending,
            last_words: &ended.last_words,
            world: self.world,
            seconds,
            cards: &self.cards,
        };
        Ok(findings.report())
    }

    /// The same without a limit: how much a program that died would have taken.
    pub fn without_limit(&self) -> Question {
        Question { limited: false, show_output: false, ..self.clone() }
    }
}

fn why_none(torch: &Torch, notes: &Notes, ended: Ended) -> GhostError {
    let Ended { ending, last_words } = ended;
    match ending {
        Ending::TimeLimit => return GhostError::TimeLimit { last_words },
        Ending::Interrupted => return GhostError::Interrupted,
        Ending::Exit(_) | Ending::Signal(_) => {}
    }
    let ending = ending.words();
    for note in &notes.notes {
        match note {
            Note::CpuOnly { version } => {
                return PythonError::NoCuda { python: torch.python.clone(), version: version.clone() }.into();
            }
            Note::Error { r#type, text, .. } => {
                return GhostError::NoHistory { ending: format!("{type}: {text}"), last_words };
            }
            _ => {}
        }
    }
    if notes.notes.is_empty() {
        GhostError::NoTorch { ending, last_words }
    } else if notes.notes.contains(&Note::Cuda) {
        GhostError::NoHistory { ending, last_words }
    } else {
        GhostError::NoCuda { ending, last_words }
    }
}

/// The end of what a program said, below what is said about it.
fn said(last_words: &[String]) -> String {
    if last_words.is_empty() {
        return String::new();
    }
    format!("; its last words:\n  {}", last_words.join("\n  "))
}

impl Ending {
    pub fn words(self) -> String {
        match self {
            Ending::Exit(code) => format!("exit code {code}"),
            Ending::Signal(number) => format!("signal {number}"),
            Ending::TimeLimit => "the time limit".into(),
            Ending::Interrupted => "a signal to end".into(),
        }
    }
}

impl Report {
    /// 0 where it fits, 3 where it does not, 1 where that is not known, 130 where it was interrupted.
    pub fn exit_code(&self) -> u8 {
        match self.end {
            End::Steps | End::Done => 0,
            End::OutOfMemory => 3,
            End::Failed | End::TimeLimit => 1,
            End::Interrupted => 130,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kept_a_program_from_a_history_is_said_with_its_last_words() {
        let torch = Torch {
            python: "python".into(),
            version: "2.11".into(),
            cuda: 13_000,
            cudnn: None,
            nccl: None,
            libraries: "/".into(),
            packages: "/".into(),
        };
        let why = |notes: &[Note], ending| {
            let last_words = vec!["SyntaxError: invalid syntax".to_string()];
            let notes = Notes { notes: notes.to_vec(), history: None };
            why_none(&torch, &notes, Ended { ending, last_words })
        };
        let imported = Note::Torch { version: "2.11".into(), cuda: "13.0".into() };
        let none = why(&[], Ending::Exit(1));
        assert!(matches!(none, GhostError::NoTorch { .. }) && none.to_string().contains("SyntaxError"), "{none}");
        let stepped = [imported.clone(), Note::Step(crate::notes::Mark::default())];
        assert!(matches!(why(&stepped, Ending::Exit(0)), GhostError::NoCuda { .. }));
        assert!(matches!(why(&[imported, Note::Cuda], Ending::Signal(9)), GhostError::NoHistory { .. }));
        assert!(matches!(why(&[], Ending::TimeLimit), GhostError::TimeLimit { .. }));
        assert!(matches!(why(&[], Ending::Interrupted), GhostError::Interrupted));
    }

    #[test]
    fn a_scratch_folder_can_be_named_by_the_loader_and_is_not_made_where_none_is() {
        for odd in ["/data/my files", "/data/a:b"] {
            assert_eq!(scratch_place(odd.into()).unwrap(), Path::new("/tmp"));
        }
        assert_eq!(scratch_place("/no/such/folder".into()).unwrap(), Path::new("/no/such/folder"));
    }
}
