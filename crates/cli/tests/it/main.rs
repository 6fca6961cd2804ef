//! The command from outside: what it prints, writes and exits with.

#[path = "../common/mod.rs"]
mod common;

mod advise;
mod answers;
mod budgets;
mod calibrate;
mod edges;
mod families;
mod files;
mod going_on;
mod plan;
mod report;
mod robust;
mod scores;
mod serve;
mod tracking;
mod train;
mod tune;
