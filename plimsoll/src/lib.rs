//! plimsoll: a training step is a static program, so its memory can be laid out before it runs.
//!
//! ```text
//! recipe.toml ─► recipe ─► models ─► graph ─► autodiff ─► plan ─► exec ─► train ─► events
//! ```
//! The modules stand in the order data flows.

pub mod units;

pub mod recipe;

pub mod graph;
pub mod ops;

pub mod models;

pub mod autodiff;
pub mod plan;

pub mod exec;
pub mod heap;

pub mod data;
pub mod hf;

pub mod report;
pub mod train;

pub mod advise;
