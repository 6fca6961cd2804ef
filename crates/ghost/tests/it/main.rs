//! Ghost from outside: programs on cards that are not there, and snapshots that somebody changed.

mod mutations;
mod programs;
