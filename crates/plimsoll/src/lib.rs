//! plimsoll trains neural networks without ever running out of memory: a training step is a static program, so its
//! memory can be laid out before it runs.
//!
//! ```text
//! Recipe ─► plan on a Device ─► PlanReport        on any machine, in milliseconds
//!    └────► Run ─► Events                         in one arena, inside the number that was announced
//! ```
//!
//! What this crate names is its interface; the crates behind it (`plimsoll-core`, `plimsoll-planner`, …) are how it is
//! built, and may change.

#![deny(missing_docs)]

mod device;
mod machine;
mod profiles;
mod questions;
mod report;
mod timeline;
mod trials;

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

pub use device::{Device, DeviceError, Facts};
pub use machine::Machine;
pub use plimsoll_base::explain::{Explain, Fault};
pub use plimsoll_base::names::{Named, nearest};
pub use plimsoll_base::units::{Size, format_bytes, format_seconds, parse_size};
pub use plimsoll_exec::host::Holder;
pub use plimsoll_models::families::{Preset, presets};
pub use plimsoll_models::recipe::{Draft, Every, Recipe, RecipeError, reference};
pub use plimsoll_planner::PlanFailure;
pub use plimsoll_planner::cards::{Card, catalog};
pub use plimsoll_planner::whatif::{Attempt, Outline, Progress};
pub use plimsoll_runs::{Event, Finished};
pub use plimsoll_train::RunError;
pub use plimsoll_train::run::{Run, RunOptions};
pub use profiles::{Measured, store as store_profile};
pub use questions::{Outlooks, largest_batch, layers, on_every_card, outlook, ways_out};
pub use report::{PlanReport, SCHEMA, plan};
pub use timeline::{BufferMap, PhaseMap, Timeline};
pub use trials::{Expected, attempt, attempts, budget_bytes, expected, planning_key};
