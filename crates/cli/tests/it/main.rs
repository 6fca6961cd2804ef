//! The command from outside: what it prints, writes and exits with.

#[path = "../common/mod.rs"]
mod common;

mod advise;
mod answers;
mod calibrate;
mod families;
mod files;
mod plan;
mod report;
mod robust;
mod train;
mod tune;
