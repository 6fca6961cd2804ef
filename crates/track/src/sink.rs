//! Where events go. Each sink has its own thread and its own place in the log, so that one that hangs holds up no other.

use plimsoll_runs::Timed;
use serde_json::Value;
use std::time::Duration;

/// Why something was not delivered. The words are shown and stored: no address with a token in it, no header.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Trouble {
    /// Worth trying again, not before this.
    Later { cause: String, after: Option<Duration> },
    /// Will not get better by waiting: a refused token, an address that is not there.
    Never { cause: String },
}

impl Trouble {
    pub(crate) fn cause(&self) -> &str {
        let (Trouble::Later { cause, .. } | Trouble::Never { cause }) = self;
        cause
    }
}

pub(crate) trait Sink: Send {
    /// What its file in the run's folder is called, and people see: `mlflow`, `discord-1`.
    fn name(&self) -> String;

    /// What a former follower stored, before anything is delivered.
    fn restore(&mut self, state: &Value);

    /// Takes all of these or, with an error, may be given them again. In the order in which they happened.
    fn deliver(&mut self, events: &[Timed]) -> Result<(), Trouble>;

    /// The run's process is gone and has not said why: it was killed.
    fn abandoned(&mut self) -> Result<(), Trouble>;

    /// What the next follower has to know.
    fn state(&self) -> Value;

    /// How long the next request may take; at the end of a run there is less time.
    fn set_timeout(&mut self, timeout: Duration);
}
