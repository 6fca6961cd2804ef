//! Executors: what runs a plan. A trainer sees only this trait; which device is behind it is the plan's business.

pub mod cpu;
pub mod cuda;
pub mod devices;
mod null;

pub use null::NullExecutor;

use crate::graph::DType;
use crate::plan::{Layout, Program};
use cuda::CudaError;
use half::{bf16, f16};
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

    /// The same as numbers, whatever float type it has on the device.
    fn read_floats(&self, phase: usize, name: &str) -> Option<Vec<f32>> {
        Some(floats(DType::F32, &self.read_output(phase, name)?))
    }

    /// Further phases over the same residents, laid out within the same arena. Returns the number of the first.
    fn add_phases(&mut self, program: &Program, layout: &Layout) -> usize;

    /// Bytes of device memory in use now, as the system reports them.
    fn measured_bytes(&self) -> u64;

    /// Runs a phase; `watch` is told after each node that its tick is over, where the executor can tell. For profiles.
    fn run_watched(&mut self, phase: usize, watch: &mut dyn FnMut(usize)) {
        self.run(phase);
        watch(0);
    }

    /// What went wrong since the executor was made. A device works behind the host's back, so its errors show late; from
    /// the first one on nothing is run or written, and what is read means nothing.
    fn check(&self) -> Result<(), CudaError> {
        Ok(())
    }
}

/// The numbers behind a tensor's bytes; none if they are not floats.
pub fn floats(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let halves = || bytes.chunks_exact(2).map(bytemuck::pod_read_unaligned::<u16>);
    match dtype {
        DType::F32 => bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect(),
        DType::Bf16 => halves().map(|bits| bf16::from_bits(bits).to_f32()).collect(),
        DType::F16 => halves().map(|bits| f16::from_bits(bits).to_f32()).collect(),
        _ => Vec::new(),
    }
}

/// An executor behind a pointer is one too, so that a loop need not know which it has.
impl<E: Executor + ?Sized> Executor for Box<E> {
    fn run(&mut self, phase: usize) {
        (**self).run(phase)
    }
    fn write_input(&mut self, phase: usize, name: &str, data: &[u8]) -> bool {
        (**self).write_input(phase, name, data)
    }
    fn write_resident(&mut self, name: &str, data: &[u8]) -> bool {
        (**self).write_resident(name, data)
    }
    fn write_resident_at(&mut self, name: &str, offset: usize, data: &[u8]) -> bool {
        (**self).write_resident_at(name, offset, data)
    }
    fn read_resident(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        (**self).read_resident(name)
    }
    fn read_output(&self, phase: usize, name: &str) -> Option<Cow<'_, [u8]>> {
        (**self).read_output(phase, name)
    }
    fn read_floats(&self, phase: usize, name: &str) -> Option<Vec<f32>> {
        (**self).read_floats(phase, name)
    }
    fn add_phases(&mut self, program: &Program, layout: &Layout) -> usize {
        (**self).add_phases(program, layout)
    }
    fn measured_bytes(&self) -> u64 {
        (**self).measured_bytes()
    }
    fn run_watched(&mut self, phase: usize, watch: &mut dyn FnMut(usize)) {
        (**self).run_watched(phase, watch)
    }
    fn check(&self) -> Result<(), CudaError> {
        (**self).check()
    }
}
