//! The command as users and scripts meet it: what it prints, and the recipes it writes.

mod answers;
#[path = "../common/mod.rs"]
mod common;
mod init;
mod readme;
mod release;
mod shells;
mod snapshots;
mod walks;
