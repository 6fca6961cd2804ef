//! Training: the program of a step, the choice of a plan, and the loop that runs it.

pub mod answers;
mod batch;
pub mod calibrate;
pub mod checkpoint;
mod choose;
pub mod contrastive;
mod data;
mod evaluate;
mod events;
mod expect;
mod files;
mod generate;
pub mod generation;
mod initial;
pub mod metrics;
mod model_folder;
mod predict;
mod random_batch;
mod rehearsal;
mod run;
mod scaling;
mod schedule;
mod setup;
mod shapes;
mod step;
mod stepper;
pub mod tensors;
mod trainer;
mod update;
mod use_model;
mod use_plan;

pub use batch::Feeder;
pub use checkpoint::Best;
pub(crate) use choose::divisors;
pub use choose::{Choice, ChooseError, Decision, FrontierPoint, Pins, RecomputePin, choose, frontier};
pub use data::{Extras, LoadedData, load_data, loader_options};
pub use events::{End, Evaluation, Event, EventLog, Finished, Started, StepEvent, read_events};
pub use expect::{ExpectedData, ExpectedSteps, expected_data, host_peak_bytes};
pub use files::write_whole;
pub use generate::{Sampling, generate};
pub use initial::{initialize, initialize_some};
pub use metrics::Scores;
pub use predict::{Answer, Prediction};
pub use rehearsal::Rehearsal;
pub use run::{Run, RunOptions, StoredPlan, take_arena};
pub use schedule::learning_rate;
pub(crate) use setup::profile;
pub use setup::{Planned, budget_bytes, family, length, pins, plan, precision, shapes, spec};
pub use shapes::{Pass, Shapes};
pub use step::{EVALUATE, MICRO_STEP, NEXT_TOKEN, STEP, Settings, StepSpec, UPDATE, UpdateRule, program};
pub use stepper::{Stepped, Stepper, Underway};
pub use use_model::TrainedRun;
pub use use_plan::plan_use;

use crate::data::DataError;
use crate::exec::cuda::CudaError;
use crate::hf::HfError;
use crate::ops::Target;
use crate::plan::{PlanError, PlanFileError, Profile};
use crate::recipe::{Precision, RecipeError};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// A device to plan for or train on.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    pub name: String,
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// Bytes that the runtime takes beside the arena.
    pub reserve_bytes: u64,
    pub profile: Profile,
    /// What plans for it are made for.
    pub target: Target,
    /// What `precision = "auto"` means here. It depends on the device alone, never on the budget.
    pub precision: Precision,
    /// Whether this program can run on it, not only plan for it.
    pub runs: bool,
    /// Which of several, as the driver counts them.
    pub ordinal: usize,
}

impl Device {
    /// A processor of so many threads with so much memory free, as fast as one that was not measured is taken to be.
    pub fn cpu(threads: usize, free_bytes: u64) -> Device {
        Device {
            name: "cpu".into(),
            total_bytes: free_bytes,
            free_bytes,
            reserve_bytes: 0,
            profile: Profile::cpu(threads),
            target: Target::cpu(threads),
            precision: Precision::F32,
            runs: true,
            ordinal: 0,
        }
    }
}

#[derive(Debug, Error)]
pub enum TrainError {
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error("{cause}")]
    Refused { cause: String, hint: String },
    #[error("the smallest plan does not fit the budget")]
    DoesNotFit(Box<Planned>),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("{path}: {cause}")]
    PlanFile { path: PathBuf, cause: PlanFileError },
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::CheckpointError),
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

impl std::fmt::Debug for Planned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} for {}", self.choice, self.device.name)
    }
}

impl TrainError {
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> TrainError {
        move |cause| TrainError::Io { path: path.into(), cause }
    }
}
