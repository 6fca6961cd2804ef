//! Why a command did not do what was asked: a message, a hint, an exit code.

use plimsoll_base::explain::{Explain, Fault};
use plimsoll_planner::choose::Planned;
use std::path::Path;
use std::process::ExitCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Failed = 1,
    BadInput = 2,
    DoesNotFit = 3,
    /// By Ctrl-C or a signal; what was done is kept.
    Interrupted = 130,
}

impl From<Fault> for Code {
    fn from(fault: Fault) -> Code {
        match fault {
            Fault::Failed => Code::Failed,
            Fault::BadInput => Code::BadInput,
            Fault::DoesNotFit => Code::DoesNotFit,
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> ExitCode {
        ExitCode::from(code as u8)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub code: Code,
    pub message: String,
    pub hints: Vec<String>,
}

impl Failure {
    /// By Ctrl-C or another signal to end: which it was is not told.
    pub(crate) fn interrupted() -> Failure {
        let message = "interrupted by Ctrl-C, SIGTERM or SIGHUP".into();
        Failure { code: Code::Interrupted, message, hints: vec![] }
    }

    /// Signals cannot be heard.
    pub(crate) fn deaf(cause: &ctrlc::Error) -> Failure {
        let hint = "threads and signals are needed for it: is their number limited (`ulimit -u`)?";
        Failure::failed(format!("cannot listen for Ctrl-C: {cause}"), hint)
    }

    pub(crate) fn failed(message: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { code: Code::Failed, message: message.into(), hints: vec![hint.into()] }
    }

    pub(crate) fn bad_input(message: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { code: Code::BadInput, message: message.into(), hints: vec![hint.into()] }
    }

    /// A file that could not be written.
    pub(crate) fn writing(path: &Path, cause: std::io::Error) -> Failure {
        Failure::failed(format!("{}: {cause}", path.display()), "check the path, its permissions and the space left")
    }

    pub(crate) fn does_not_fit(smallest: &Planned, hints: Vec<String>) -> Failure {
        Failure { code: Code::DoesNotFit, message: smallest.shortage(), hints }
    }
}

/// Every error of the library knows whose fault it is and what to do.
impl<E: Explain> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure { code: error.fault().into(), message: error.message(), hints: error.hints() }
    }
}
