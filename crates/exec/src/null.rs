//! An executor that runs nothing and only counts, for tests of everything around it.

use super::{Executor, Fill};
use plimsoll_core::plan::{Layout, Program};
use std::borrow::Cow;

#[derive(Default)]
pub struct NullExecutor {
    /// How often each phase was run.
    pub runs: Vec<usize>,
    pub phases: usize,
    pub arena_bytes: u64,
}

impl Executor for NullExecutor {
    fn run(&mut self, phase: usize) {
        if self.runs.len() <= phase {
            self.runs.resize(phase + 1, 0);
        }
        self.runs[phase] += 1;
    }
    fn fill_input(&mut self, _: usize, _: &str, _: usize, _: &Fill<'_>) -> bool {
        true
    }
    fn fill_resident(&mut self, _: &str, _: usize, _: &Fill<'_>) -> bool {
        true
    }
    fn clear_resident(&mut self, _: &str) -> bool {
        true
    }
    fn write_resident_at(&mut self, _: &str, _: usize, _: &[u8]) -> bool {
        true
    }
    fn read_resident(&self, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
    fn read_output(&self, _: usize, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }
    fn add_phases(&mut self, program: &Program, _: &Layout) -> usize {
        self.phases += program.phases.len();
        self.phases - program.phases.len()
    }
    fn measured_bytes(&self) -> u64 {
        self.arena_bytes
    }
}
