//! Hyper-parameter search: the samplers and pruners of Optuna 5.0, on files and databases that Optuna opens.
//!
//! A driver creates or loads a [`Study`], asks it for trials and tells it what came of them. The study keeps every
//! trial in its storage before it answers, so that a kill at any moment loses nothing that was told. [`trials`] is such
//! a driver: it plans every suggestion, packs trials into the memory there is and runs each as a `plimsoll train` of its
//! own. [`report`] says what a study found.
//!
//! ```text
//! attributes, error, order, rng, time ◄─ json ◄─ space ◄─ trial ◄─ groups, pareto, storage ◄─ hypervolume
//!   ◄─ samplers ◄─ importance, pruners ◄─ study ◄─ report, trials
//! ```

mod attributes;
mod error;
mod groups;
mod hypervolume;
pub mod importance;
mod json;
mod order;
pub mod pareto;
pub mod pruners;
pub mod report;
mod rng;
pub mod samplers;
mod space;
pub mod storage;
mod study;
mod time;
mod trial;
pub mod trials;

pub use error::{Error, Result};
pub use json::Json;
pub use rng::Rng;
pub use space::{Condition, Distribution, Domain, Parameter, Point, Space, Value};
pub use study::{Asked, MOST_OF_A_NAME, Outcome, Study};
pub use time::Timestamp;
pub use trial::{Attributes, Direction, Param, State, Trial, TrialId};
