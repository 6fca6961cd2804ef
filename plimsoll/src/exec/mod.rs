//! Executors: what runs a plan, and facts about the devices that could.

pub mod cpu;
pub mod devices;
