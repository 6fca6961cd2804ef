//! What can go wrong, said so that a user can act on it.

use std::path::PathBuf;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller asked for what cannot be.
    #[error("{0}")]
    Input(String),
    #[error("not JSON at byte {byte}: expected {wanted}, found {found:?}")]
    Json { byte: usize, wanted: String, found: String },
    #[error(
        "{path}, line {line}: {cause}\nhint: the journal is damaged there; move it away or cut it before that line"
    )]
    Journal { path: PathBuf, line: usize, cause: String },
    #[error("{path}: {cause}")]
    File { path: PathBuf, cause: std::io::Error },
    #[error("study {name:?} does not exist in this storage")]
    NoSuchStudy { name: String, near: Option<String> },
    #[error("study {0:?} exists already\nhint: load it to go on, or choose another name")]
    StudyExists(String),
    #[error("study {study:?} is being run by another coordinator (process {holder})\nhint: wait for it or stop it")]
    Busy { study: String, holder: String },
    /// The trial ended, by this or by another process, and can no longer be changed.
    #[error("trial {0} has ended and cannot be changed")]
    TrialEnded(u64),
    /// Another worker took the trial over while this one was thought dead.
    #[error("trial {0} was taken over by another worker")]
    TrialTakenOver(u64),
    /// Other workers made the last trials that were wanted.
    #[error("the study has all its trials")]
    StudyFull,
    #[error("trial {0} does not exist")]
    NoSuchTrial(i64),
    #[error("{storage}: schema {found}, but this version works with {wanted}\nhint: {hint}")]
    Schema { storage: String, found: String, wanted: String, hint: String },
    #[error("{storage}: {cause}\nhint: {hint}; the same command goes on")]
    Database { storage: String, cause: String, hint: &'static str },
}

/// Messages carry their hints behind `hint: `, on lines of their own.
impl plimsoll::Explain for Error {
    fn fault(&self) -> plimsoll::Fault {
        match self {
            Self::Input(_) | Self::Json { .. } | Self::Journal { .. } | Self::Schema { .. } => {
                plimsoll::Fault::BadInput
            }
            Self::NoSuchStudy { .. } | Self::StudyExists(_) | Self::Busy { .. } => plimsoll::Fault::BadInput,
            Self::TrialEnded(_) | Self::TrialTakenOver(_) | Self::NoSuchTrial(_) | Self::StudyFull => {
                plimsoll::Fault::Failed
            }
            Self::File { .. } | Self::Database { .. } => plimsoll::Fault::Failed,
        }
    }

    fn hints(&self) -> Vec<String> {
        let text = self.to_string();
        let own = text.lines().filter_map(|line| line.strip_prefix("hint: ")).map(String::from);
        let usual = match self {
            Self::File { .. } => {
                Some("check the path, its permissions and the space left; the same command goes on".into())
            }
            Self::NoSuchStudy { near: Some(near), .. } => Some(format!("did you mean {near:?}?")),
            Self::NoSuchStudy { .. } => Some("`plimsoll tune` makes one; is the name right?".into()),
            _ => None,
        };
        own.chain(usual).collect()
    }

    fn message(&self) -> String {
        let text = self.to_string();
        text.lines().filter(|line| !line.starts_with("hint: ")).collect::<Vec<_>>().join("\n")
    }
}

impl Error {
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |cause| Self::File { path, cause }
    }
}
