//! plimsoll trains neural networks without ever running out of memory: a training step is a static program, so its
//! memory can be laid out before it runs.
//!
//! ```text
//! Recipe ─► plan on a Device ─► PlanReport        on any machine, in milliseconds
//!    └────► Run ─► Events                         in one arena, inside the number that was announced
//!            └───► TrainedRun ─► answers           scores, predictions, texts, a folder for others: in the same budget
//! ```
//!
//! ```
//! use plimsoll::{Device, Recipe, plan};
//!
//! let text = "
//!     [model]
//!     preset = \"bert-large-uncased\"
//!     [data]
//!     train = \"reviews.jsonl\"
//!     max_length = 384
//!     [train]
//!     effective_batch = 64
//! ";
//! let recipe = Recipe::parse(text, "reviews.toml", &[])?;
//! let report = plan(&recipe, &Device::from_name("rtx-3060-12gb")?)?; // neither the card nor the data is here
//! assert!(report.fits && report.headroom_bytes >= 0);
//! assert_eq!(report.effective_batch, 64); // what learning sees is never changed for memory
//! assert!(report.micro_batch * report.accumulation >= 64);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What this crate names is its interface; the crates behind it (`plimsoll-core`, `plimsoll-planner`, …) are how it is
//! built, and may change.
//!
//! ```text
//! answers, events, machine, page, plans, profiles, recipe, search ◄─ device
//! ◄─ advise, calibrate, report, timeline, trained, trials ◄─ questions, run
//! ```

#![deny(missing_docs)]

pub mod advise;
mod calibrate;
mod device;
mod machine;
mod profiles;
mod questions;
mod report;
mod run;
mod timeline;
mod trained;
mod trials;

/// What a [`Recipe`] holds: its tables, and what their keys may be.
pub mod recipe {
    pub use plimsoll_base::batching::{BadRows, Batching, Buckets, Compose, Gaps};
    pub use plimsoll_base::metric::Metric;
    pub use plimsoll_models::families::AttentionForm;
    pub use plimsoll_models::recipe::{
        Budget, Captions, Checkpoint, Choice, ClassWeights, Columns, CudaGraphs, Data, DataKind, DerivedLabel,
        Evaluate, EventFiles, FamilyName, Finding, Format, Label, Labelled, LabelledColumns, Memory, Model, News,
        NewsEvery, Notify, OffloadLevel, Optimizer, OptimizerState, Origin, PairColumns, Pairs, Precision, Problems,
        RecomputeLevel, Rule, Sample, Schedule, ScheduleShape, Series, Source, Synthetic, Task, Text, Track, Train,
        Validation, Warmup,
    };
}

/// What an [`Event`] says, and how a run's log of them is read.
pub mod events {
    pub use plimsoll_runs::{
        Best, DeviceEvent, End, Evaluation, EventTail, Failed, Scores, Started, StepEvent, Timed, read_events,
        read_timed,
    };
}

/// What a [`PlanReport`] and other answers about plans are made of.
pub mod plans {
    pub use plimsoll_core::graph::Component;
    pub use plimsoll_core::plan::{LiveBuffer, Peak};
    pub use plimsoll_planner::choose::{Decision, Planned};
    pub use plimsoll_planner::whatif::{
        CardAnswer, CardRow, FrontierPoint, Ladder, LargestRow, Margins, Neighbour, Rung,
    };
}

/// What a [`TrainedRun`] is asked, and what it answers.
pub mod answers {
    pub use plimsoll_train::infer::{Evaluated, Question, Within};
    pub use plimsoll_train::scoring::{Answer, ClassScore, Classes, Prediction, Recall, Retrieved};
    pub use plimsoll_train::writing::GenerationOptions;
}

/// What a search varies.
pub mod search {
    pub use plimsoll_models::recipe::search::{
        Effect, Objective, Parameter, PrunerName, Range, SamplerName, Scalar, Search, Values,
    };
}

/// Parts that pages are made of.
pub mod page {
    pub use plimsoll_report::page::{Chart, Html, Series, document, plain};
    pub use plimsoll_report::{Side, Table};
}

pub use calibrate::{Calibration, ClassCheck, StepCheck, calibrate};
pub use device::{Device, DeviceError, Facts};
pub use machine::Machine;
pub use plimsoll_base::explain::{Explain, Fault};
pub use plimsoll_base::names::{Named, nearest};
pub use plimsoll_base::units::{Size, format_bytes, format_seconds, parse_size};
pub use plimsoll_cuda::GpuFacts;
pub use plimsoll_exec::host::{CpuFacts, Holder};
pub use plimsoll_models::families::{Preset, presets};
pub use plimsoll_models::recipe::{Draft, Every, Recipe, RecipeError, reference};
pub use plimsoll_planner::PlanFailure;
pub use plimsoll_planner::cards::{Card, UnknownCard, catalog};
pub use plimsoll_planner::whatif::{Attempt, Outline, Progress};
pub use plimsoll_runs::{Event, Finished};
pub use plimsoll_train::RunError;
pub use plimsoll_train::run::RunOptions;
pub use profiles::{Measured, store as store_profile};
#[doc(hidden)] // The command has the plan itself.
pub use questions::ways_out;
pub use questions::{
    LargestBatch, Outlooks, Reach, largest_batch, largest_on_every_card, layers, on_every_card, outlook,
};
pub use report::{PlanReport, SCHEMA, plan};
pub use run::Run;
pub use timeline::{BufferMap, PhaseMap, Timeline};
pub use trained::{EvalReport, TrainedRun, evaluate};
pub use trials::{Expected, attempt, attempts, budget_bytes, expected, planning_key};
