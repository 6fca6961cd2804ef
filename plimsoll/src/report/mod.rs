//! Plans for people: tables for the terminal and a picture of memory over a step.

mod svg;
mod tables;
mod timeline;

pub use tables::{Side, Table, breakdown_table, decisions_table, layers_table, live_table};
pub use timeline::timeline_svg;
