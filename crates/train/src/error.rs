//! Why a run, or the use of one, failed.

use crate::run::checkpoint::CheckpointError;
use plimsoll_core::kernels::cuda::CudaError;
use plimsoll_core::plan::{PlanError, PlanFileError};
use plimsoll_data::DataError;
use plimsoll_models::hf::HfError;
use plimsoll_models::recipe::RecipeError;
use plimsoll_planner::PlanFailure;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum RunError {
    #[error(transparent)]
    Planning(#[from] PlanFailure),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error("{cause}")]
    Refused { cause: String, hint: String },
    #[error("{path}: {cause}")]
    PlanFile { path: PathBuf, cause: PlanFileError },
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    HuggingFace(#[from] HfError),
    #[error("{path}: {cause}")]
    Io { path: PathBuf, cause: io::Error },
    #[error("cannot take an arena of {bytes} bytes: {cause}")]
    Arena { bytes: u64, cause: io::Error },
    #[error(transparent)]
    Cuda(#[from] CudaError),
    #[error("the loss became {loss} at step {step}")]
    Diverged { step: usize, loss: f64, norm: f64, last_good: Option<PathBuf> },
}

impl RunError {
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> RunError {
        move |cause| RunError::Io { path: path.into(), cause }
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
