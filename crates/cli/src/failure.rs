//! Why a command did not do what was asked: a message, a hint, an exit code.

use plimsoll_base::units::format_bytes;
use plimsoll_core::kernels::cuda::CudaError;
use plimsoll_core::plan::{PlanError, Summary};
use plimsoll_data::DataError;
use plimsoll_models::hf::HfError;
use plimsoll_models::recipe::RecipeError;
use plimsoll_planner::PlanFailure;
use plimsoll_planner::choose::Planned;
use plimsoll_train::RunError;
use plimsoll_train::run::checkpoint::CheckpointError;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Failed = 1,
    BadInput = 2,
    DoesNotFit = 3,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> ExitCode {
        ExitCode::from(code as u8)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub code: Code,
    pub message: String,
    pub hints: Vec<String>,
}

impl Failure {
    pub fn failed(message: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { code: Code::Failed, message: message.into(), hints: vec![hint.into()] }
    }

    pub fn bad_input(message: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { code: Code::BadInput, message: message.into(), hints: vec![hint.into()] }
    }

    /// A file that could not be written.
    pub fn writing(path: &Path, cause: std::io::Error) -> Failure {
        Failure::failed(format!("{}: {cause}", path.display()), "check the path, its permissions and the space left")
    }

    pub fn does_not_fit(smallest: &Planned, hints: Vec<String>) -> Failure {
        Failure { code: Code::DoesNotFit, message: shortage(smallest), hints }
    }
}

/// How much the smallest plan needs, when, and against what.
fn shortage(smallest: &Planned) -> String {
    let choice = &smallest.choice;
    let peak = Summary::of(&choice.program, &choice.layout).peak;
    format!(
        "it does not fit: the smallest plan needs {} at tick {} of {} ({}), the budget is {}",
        format_bytes(smallest.planned_peak_bytes()),
        peak.tick,
        peak.phase,
        peak.node,
        format_bytes(smallest.budget_bytes)
    )
}

impl From<RecipeError> for Failure {
    /// The error's own text carries place and hint.
    fn from(error: RecipeError) -> Failure {
        Failure { code: Code::BadInput, message: error.to_string(), hints: Vec::new() }
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Failure {
        let code = if matches!(error, DataError::Worker { .. }) { Code::Failed } else { Code::BadInput };
        Failure { code, message: error.to_string(), hints: vec![error.hint()] }
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Failure {
        match error {
            error if error.is_too_large() => {
                Failure::bad_input(error.to_string(), "make the model, the batch or the length smaller")
            }
            error => {
                Failure::failed(error.to_string(), "this is a defect of plimsoll: please report it with the recipe")
            }
        }
    }
}

impl From<CudaError> for Failure {
    fn from(error: CudaError) -> Failure {
        let message = error.to_string();
        match error {
            CudaError::Missing { remedy, .. } => Failure::bad_input(message, remedy),
            CudaError::Unusable { hint, .. } => Failure::bad_input(message, hint),
            CudaError::OutOfMemory { .. } | CudaError::Full { .. } => Failure::failed(
                message,
                "end what else holds the memory (`plimsoll devices`), or give a smaller --memory",
            ),
            CudaError::HostMemory { .. } => Failure::failed(
                message,
                "end what else holds memory of this machine, or raise the limit on locked memory (`ulimit -l`)",
            ),
            CudaError::Fault { hint, .. } => Failure::failed(message, hint),
            CudaError::NoKernel { .. } => Failure::failed(message, "run it with --device cpu"),
            CudaError::Compile { .. } => {
                Failure::failed(message, "this is a defect of plimsoll: please report it; --device cpu runs meanwhile")
            }
            CudaError::Driver { .. } => Failure::failed(
                message,
                "the device failed; checkpoints written before are whole. `nvidia-smi` shows its state; \
                 go on with --resume, there or, unless the recipe pins a precision that only GPUs have, with \
                 --device cpu",
            ),
        }
    }
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Failure {
        let message = error.to_string();
        match error {
            CheckpointError::Write { .. } => {
                Failure::failed(message, "make room or choose another disk with --out, then go on with --resume")
            }
            CheckpointError::Another { .. } => Failure::bad_input(message, "use it with the recipe that wrote it"),
            _ => Failure::bad_input(message, "move it away: --resume then goes on from the checkpoint before it"),
        }
    }
}

impl From<HfError> for Failure {
    fn from(error: HfError) -> Failure {
        let (message, hint) = error.cause_and_hint();
        match error {
            HfError::Write { .. } => Failure::failed(message, hint),
            _ => Failure::bad_input(message, hint),
        }
    }
}

impl From<PlanFailure> for Failure {
    fn from(failure: PlanFailure) -> Failure {
        match failure {
            PlanFailure::Recipe(error) => error.into(),
            PlanFailure::Plan(error) => error.into(),
            PlanFailure::Refused { cause, hint } => Failure::bad_input(cause, hint),
            PlanFailure::DoesNotFit(smallest) => {
                let enough = format!("--memory {} is enough", smallest.planned_peak_bytes());
                Failure::does_not_fit(&smallest, vec![enough])
            }
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        let message = error.to_string();
        match error {
            RunError::Data(error) => error.into(),
            RunError::Planning(error) => error.into(),
            RunError::Checkpoint(error) => error.into(),
            RunError::Refused { cause, hint } => Failure::bad_input(cause, hint),
            RunError::HuggingFace(error) => error.into(),
            RunError::PlanFile { .. } => Failure::bad_input(
                message,
                "the file is damaged or of another recipe: train without --plan makes a new one",
            ),
            RunError::Io { path, cause } => Failure::writing(&path, cause),
            RunError::Arena { bytes, cause } => Failure::failed(
                format!("cannot take the arena of {}: {cause}", format_bytes(bytes)),
                "give a smaller --memory, or end what else holds memory (`plimsoll devices`)",
            ),
            RunError::Cuda(error) => error.into(),
            RunError::Diverged { step, loss, norm, last_good } => diverged(step, loss, norm, last_good),
        }
    }
}

fn diverged(step: usize, loss: f64, norm: f64, last_good: Option<PathBuf>) -> Failure {
    let last_good = match last_good {
        Some(path) => format!("the last good checkpoint is {}", path.display()),
        None => "there was no checkpoint before it".into(),
    };
    Failure {
        code: Code::Failed,
        message: format!("the run diverged at step {step}: loss {loss}, gradient norm {norm}; {last_good}"),
        hints: vec![
            "lower train.optimizer.lr, or set train.clip_norm = 1.0".into(),
            "check the data for values far off the rest".into(),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diverged_run_names_step_checkpoint_and_what_to_try() {
        let last_good = Some(PathBuf::from("runs/a-1/checkpoints/step-40"));
        let failure = Failure::from(RunError::Diverged { step: 41, loss: f64::NAN, norm: 3.0, last_good });
        assert_eq!(failure.code, Code::Failed);
        assert!(failure.message.contains("step 41") && failure.message.contains("step-40"), "{}", failure.message);
        assert!(failure.hints[0].contains("lr"), "{:?}", failure.hints);
    }

    #[test]
    fn what_the_user_wrote_is_bad_input_and_what_the_disk_did_is_not() {
        let refused = RunError::Refused { cause: "no".into(), hint: "yes".into() };
        assert_eq!(Failure::from(refused), Failure::bad_input("no", "yes"));
        let full = RunError::Io { path: "a".into(), cause: std::io::Error::other("disk full") };
        assert_eq!(Failure::from(full).code, Code::Failed);
    }
}
