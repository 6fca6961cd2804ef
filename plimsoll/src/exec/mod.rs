//! Executors: what runs a plan. A trainer sees only this trait; which device is behind it is the plan's business.

pub mod cpu;
pub mod cuda;
pub mod devices;
mod null;

pub use null::NullExecutor;

use crate::plan::{Layout, Program};
use std::borrow::Cow;

/// Runs the phases of one program in one arena. Never allocates during a phase.
pub trait Executor {
    /// Runs all nodes of a phase. Its inputs have been written since its last run.
    fn run(&mut self, phase: usize);

    /// Copies `data` into an input of a phase; false if there is no such input of this size.
    fn write_input(&mut self, phase: usize, name: &str, data: &[u8]) -> bool;

    /// Copies `data` over a resident; false if there is no such resident of this size.
    fn write_resident(&mut self, name: &str, data: &[u8]) -> bool;

    /// Copies `data` into a resident from byte `offset` on; false if it does not lie inside.
    fn write_resident_at(&mut self, name: &str, offset: usize, data: &[u8]) -> bool;

    fn read_resident(&self, name: &str) -> Option<Cow<'_, [u8]>>;

    /// A value that the phase's graph keeps, after the phase has run.
    fn read_output(&self, phase: usize, name: &str) -> Option<Cow<'_, [u8]>>;

    /// Further phases over the same residents, laid out within the same arena. Returns the number of the first.
    fn add_phases(&mut self, program: &Program, layout: &Layout) -> usize;

    /// Bytes of device memory in use now, as the system reports them.
    fn measured_bytes(&self) -> u64;
}
