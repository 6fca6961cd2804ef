//! Why a run, or the use of one, failed.

#![deny(missing_docs)]

use plimsoll_base::explain::{Explain, Fault};
use plimsoll_base::safetensors::TensorFileError;
use plimsoll_base::units::format_bytes;
use plimsoll_core::kernels::cuda::CudaError;
use plimsoll_core::plan::{PlanError, PlanFileError};
use plimsoll_data::DataError;
use plimsoll_exec::ExecError;
use plimsoll_models::hf::HfError;
use plimsoll_models::recipe::RecipeError;
use plimsoll_planner::PlanFailure;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a checkpoint could not be written or read.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// It cannot be written.
    #[error("cannot write checkpoint {path}: {cause}; {previous}")]
    Write {
        /// Its folder.
        path: PathBuf,
        /// Why.
        cause: io::Error,
        /// Which is the last good one.
        previous: String,
    },
    /// It cannot be read.
    #[error("cannot read checkpoint {path}: {cause}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// It is not as it was written.
    #[error("checkpoint {path} is damaged: {cause}")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// How that shows.
        cause: String,
    },
    /// It is another model's.
    #[error("checkpoint {path} does not fit this recipe: {cause}")]
    Another {
        /// Its folder.
        path: PathBuf,
        /// How that shows.
        cause: String,
    },
    /// Its tensors cannot be read.
    #[error(transparent)]
    Tensors(#[from] TensorFileError),
    /// The device did not take or give them.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

impl Explain for CheckpointError {
    fn fault(&self) -> Fault {
        match self {
            CheckpointError::Write { .. } => Fault::Failed,
            CheckpointError::Exec(error) => error.fault(),
            _ => Fault::BadInput,
        }
    }

    fn hints(&self) -> Vec<String> {
        let hint = match self {
            CheckpointError::Write { .. } => "make room or choose another disk with --out, then go on with --resume",
            CheckpointError::Exec(error) => return error.hints(),
            CheckpointError::Another { .. } => "use it with the recipe that wrote it",
            _ => "move it away: --resume then goes on from the checkpoint before it",
        };
        vec![hint.into()]
    }
}

/// Why a run, or the use of one, failed.
#[derive(Debug, Error)]
pub enum RunError {
    /// There is no plan.
    #[error(transparent)]
    Planning(#[from] PlanFailure),
    /// The data is not what the recipe says.
    #[error(transparent)]
    Data(#[from] DataError),
    /// What was asked for cannot be done.
    #[error("{cause}")]
    Refused {
        /// Why.
        cause: String,
        /// What to ask for instead.
        hint: String,
    },
    /// A stored plan is damaged.
    #[error("{path}: {cause}")]
    PlanFile {
        /// Which file.
        path: PathBuf,
        /// How that shows.
        cause: PlanFileError,
    },
    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A Hugging Face folder cannot be read or written.
    #[error(transparent)]
    HuggingFace(#[from] HfError),
    /// Any other file cannot be read or written.
    #[error("{path}: {cause}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// Memory that was free when the plan was made is not any more.
    #[error("cannot take an arena of {bytes} bytes: {cause}")]
    Arena {
        /// The size of the arena.
        bytes: u64,
        /// What the system says.
        cause: io::Error,
    },
    /// The device failed.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// The training went astray.
    #[error("the loss became {loss} at step {step}")]
    Diverged {
        /// The update in which it showed.
        step: usize,
        /// Not a number, or infinite.
        loss: f64,
        /// Of all gradients together.
        norm: f64,
        /// The last checkpoint before it.
        last_good: Option<PathBuf>,
    },
}

impl RunError {
    /// A file that cannot be read or written, for `map_err`.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> RunError {
        move |cause| RunError::Io { path: path.into(), cause }
    }
}

impl From<CudaError> for RunError {
    fn from(error: CudaError) -> RunError {
        RunError::Exec(ExecError::device(error))
    }
}

impl From<PlanError> for RunError {
    fn from(error: PlanError) -> RunError {
        RunError::Planning(error.into())
    }
}

impl From<RecipeError> for RunError {
    fn from(error: RecipeError) -> RunError {
        RunError::Planning(error.into())
    }
}

impl Explain for RunError {
    fn lacks_memory(&self) -> bool {
        match self {
            RunError::Planning(failure) => failure.lacks_memory(),
            RunError::Exec(error) => error.lacks_memory(),
            RunError::Arena { .. } => true,
            _ => false,
        }
    }

    fn fault(&self) -> Fault {
        match self {
            RunError::Planning(failure) => failure.fault(),
            RunError::Data(error) => error.fault(),
            RunError::Checkpoint(error) => error.fault(),
            RunError::HuggingFace(error) => error.fault(),
            RunError::Exec(error) => error.fault(),
            RunError::Refused { .. } | RunError::PlanFile { .. } => Fault::BadInput,
            RunError::Io { .. } | RunError::Arena { .. } | RunError::Diverged { .. } => Fault::Failed,
        }
    }

    fn hints(&self) -> Vec<String> {
        let hint = |words: &str| vec![words.to_string()];
        match self {
            RunError::Planning(failure) => failure.hints(),
            RunError::Data(error) => error.hints(),
            RunError::Checkpoint(error) => error.hints(),
            RunError::HuggingFace(error) => error.hints(),
            RunError::Exec(error) => error.hints(),
            RunError::Refused { hint: words, .. } => hint(words),
            RunError::PlanFile { .. } => {
                hint("the file is damaged or of another recipe: train without --plan makes a new one")
            }
            RunError::Io { .. } => hint("check the path, its permissions and the space left"),
            RunError::Arena { .. } => {
                hint("give a smaller --memory, or end what else holds memory (`plimsoll devices`)")
            }
            RunError::Diverged { .. } => vec![
                "lower train.optimizer.lr, or set train.clip_norm = 1.0".into(),
                "check the data for values far off the rest".into(),
            ],
        }
    }

    fn message(&self) -> String {
        match self {
            RunError::Planning(failure) => failure.message(),
            RunError::HuggingFace(error) => error.message(),
            RunError::Exec(error) => error.message(),
            RunError::Arena { bytes, cause } => format!("cannot take the arena of {}: {cause}", format_bytes(*bytes)),
            RunError::Diverged { step, loss, norm, last_good } => {
                let last_good = match last_good {
                    Some(path) => format!("the last good checkpoint is {}", path.display()),
                    None => "there was no checkpoint before it".into(),
                };
                format!("the run diverged at step {step}: loss {loss}, gradient norm {norm}; {last_good}")
            }
            _ => self.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diverged_run_names_step_checkpoint_and_what_to_try() {
        let last_good = Some(PathBuf::from("runs/a-1/checkpoints/step-40"));
        let error = RunError::Diverged { step: 41, loss: f64::NAN, norm: 3.0, last_good };
        assert_eq!(error.fault(), Fault::Failed);
        assert!(error.message().contains("step 41") && error.message().contains("step-40"), "{}", error.message());
        assert!(error.hints()[0].contains("lr"), "{:?}", error.hints());
    }

    #[test]
    fn what_the_user_wrote_is_bad_input_and_what_the_disk_did_is_not() {
        let refused = RunError::Refused { cause: "no".into(), hint: "yes".into() };
        assert_eq!(
            (refused.fault(), refused.message(), refused.hints()),
            (Fault::BadInput, "no".into(), vec!["yes".into()])
        );
        let full = RunError::Io { path: "a".into(), cause: io::Error::other("disk full") };
        assert_eq!(full.fault(), Fault::Failed);
    }
}
