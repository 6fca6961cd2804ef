//! The command as users and scripts meet it: what it prints, and the recipes it writes.

#[path = "../common/mod.rs"]
mod common;
mod init;
mod shells;
mod snapshots;
mod walks;
