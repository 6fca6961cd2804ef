//! Plans and runs for people: tables for the terminal, a picture of memory over a step, a page about all of it.

pub mod page;
mod svg;
mod tables;
mod timeline;

pub use tables::{Side, Table, breakdown_table, decisions_table, layers_table, live_table};
pub use timeline::timeline_svg;
