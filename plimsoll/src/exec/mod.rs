//! Executors: what runs a plan.

pub mod cpu;
