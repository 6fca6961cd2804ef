//! Plans and runs for people: tables for the terminal, a picture of memory over a step and one of memory against time, a
//! page about all of it.
//!
//! ```text
//! kinds, svg ◄─ frontier, tables, timeline ◄─ answers, page
//! ```

mod answers;
mod frontier;
mod kinds;
pub mod page;
mod svg;
mod tables;
mod timeline;

pub use answers::largest_table;
pub use answers::{cards_table, frontier_table, grid_table, ladder_table, margins_text, neighbours_table};
pub use frontier::frontier_svg;
pub use tables::{Side, Table, breakdown_table, decisions_table, layers_table, live_table};
pub use tables::{all_layers_table, all_live_table, modules_table};
pub use timeline::timeline_svg;
