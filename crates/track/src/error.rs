//! Why nothing can be told to somebody.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// What is wrong with what was asked for. Never holds a secret: it is printed.
#[derive(Debug, Error)]
pub enum TrackError {
    #[error("{path}: {cause}")]
    Io { path: PathBuf, cause: io::Error },
    /// The place it was written, such as `DISCORD_WEBHOOK`, and what is wrong with it.
    #[error("{place}: {cause}")]
    Url { place: String, cause: String },
    #[error("{path}: another process delivers the events of this run")]
    Busy { path: PathBuf },
    #[error("{tracker}: {cause}")]
    Refused { tracker: String, cause: String },
}

impl TrackError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> TrackError {
        move |cause| TrackError::Io { path: path.into(), cause }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            TrackError::Io { .. } => "check the path, its permissions and the space left",
            TrackError::Url { .. } => {
                "forms: discord://ID/TOKEN, slack://A/B/C, tgram://BOT/CHAT, ntfy://TOPIC, gotifys://HOST/TOKEN, \
                 jsons://HOST/PATH, or the https:// address that Discord or Slack gave you"
            }
            TrackError::Busy { .. } => "wait until it is done",
            TrackError::Refused { .. } => "check the address, and the token or user in the environment",
        }
    }
}
