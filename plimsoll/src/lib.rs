//! plimsoll: a training step is a static program, so its memory can be laid out before it runs.

pub mod graph;
pub mod ops;

pub mod autodiff;
pub mod plan;

pub mod exec;
pub mod recipe;
pub mod report;
pub mod units;
