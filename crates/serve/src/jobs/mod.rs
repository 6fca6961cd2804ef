//! Trainings that clients ask for: packed onto devices by bytes, run as processes of their own, found again after a
//! restart.

mod keeper;
mod process;
mod queue;
mod record;
mod schedule;
mod tools;

pub(crate) use keeper::Keeper;
pub use keeper::Other;
pub(crate) use process::Process;
pub(crate) use queue::{Queue, Submission};
pub(crate) use record::{Job, JobState};
pub(crate) use tools::{Output, Tools};
