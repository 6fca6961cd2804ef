//! The trait behind which every device stands.

use crate::{Algorithms, ExecError, Fill, copy_of};
use half::{bf16, f16};
use plimsoll_core::plan::{Layout, Program};
use plimsoll_core::types::DType;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::time::Instant;

/// A few numbers.
pub type Scalars = SmallVec<[f64; 4]>;

/// Numbers that were asked for: known at once, or to be fetched when the device gets there.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    Known(Scalars),
    Later { slot: usize, count: usize },
}

/// Runs the phases of one program in one arena. Never allocates during a phase.
pub trait Executor {
    /// Runs all nodes of a phase. Its inputs have been written since its last run.
    fn run(&mut self, phase: usize);

    /// Lets `fill` write an input of a phase where the device takes it from; an error if there is no such input of
    /// this size. On return what `fill` reads is free again.
    fn fill_input(&mut self, phase: usize, name: &str, bytes: usize, fill: &Fill<'_>) -> Result<(), ExecError>;

    /// Copies `data` into an input of a phase; an error if there is no such input of this size.
    fn write_input(&mut self, phase: usize, name: &str, data: &[u8]) -> Result<(), ExecError> {
        self.fill_input(phase, name, data.len(), &copy_of(data))
    }

    /// As [`Executor::fill_input`], for a resident.
    fn fill_resident(&mut self, name: &str, bytes: usize, fill: &Fill<'_>) -> Result<(), ExecError>;

    /// Copies `data` over a resident; an error if there is no such resident of this size.
    fn write_resident(&mut self, name: &str, data: &[u8]) -> Result<(), ExecError> {
        self.fill_resident(name, data.len(), &copy_of(data))
    }

    /// Makes all bytes of a resident zero; an error if there is none of this name.
    fn clear_resident(&mut self, name: &str) -> Result<(), ExecError>;

    /// Copies `data` into a resident from byte `offset` on; an error if it does not lie inside.
    fn write_resident_at(&mut self, name: &str, offset: usize, data: &[u8]) -> Result<(), ExecError>;

    fn read_resident(&self, name: &str) -> Option<Cow<'_, [u8]>>;

    /// Asks for residents of one f32 as they are once everything given so far is done; NaN for what is not there. A
    /// device answers when it gets there, and takes further work meanwhile. Two questions may be open at a time.
    fn ask(&mut self, names: &[&str]) -> Asked {
        let scalar = |name: &&str| {
            let bytes = self.read_resident(name).and_then(|bytes| <[u8; 4]>::try_from(&*bytes).ok());
            bytes.map_or(f64::NAN, |bytes| f32::from_ne_bytes(bytes).into())
        };
        Asked::Known(names.iter().map(scalar).collect())
    }

    /// Waits for what was asked for.
    fn answer(&self, asked: &Asked) -> Scalars {
        match asked {
            Asked::Known(scalars) => scalars.clone(),
            Asked::Later { count, .. } => SmallVec::from_elem(f64::NAN, *count),
        }
    }

    /// A value that the phase's graph keeps, after the phase has run.
    fn read_output(&self, phase: usize, name: &str) -> Option<Cow<'_, [u8]>>;

    /// The same as numbers, whatever float type it has on the device; lent where it is in this memory.
    fn read_floats(&self, phase: usize, name: &str) -> Option<Cow<'_, [f32]>> {
        Some(match self.read_output(phase, name)? {
            Cow::Borrowed(bytes) => match bytemuck::try_cast_slice(bytes) {
                Ok(numbers) => Cow::Borrowed(numbers),
                Err(_) => Cow::Owned(floats(DType::F32, bytes)),
            },
            Cow::Owned(bytes) => Cow::Owned(floats(DType::F32, &bytes)),
        })
    }

    /// Puts another phase, laid out within the same arena, in the place of one that was added. False where that is not
    /// done, and phases stay: in memory that no budget counts.
    fn replace_phase(&mut self, _phase: usize, _program: &Program, _layout: &Layout) -> bool {
        false
    }

    /// Further phases over the same residents, laid out within the same arena. Returns the number of the first.
    fn add_phases(&mut self, program: &Program, layout: &Layout) -> usize;

    /// Bytes of device memory in use now, as the system reports them.
    fn measured_bytes(&self) -> u64;

    /// What it takes at most besides the arena from now on, where the device's runtime takes something.
    fn reserve_bytes(&self) -> Option<u64> {
        None
    }

    /// Runs a phase to its end and says how long each tick took, where the executor can tell them apart; the first gets
    /// it all otherwise. For profiles.
    fn run_timed(&mut self, phase: usize, seconds: &mut [f64]) {
        let began = Instant::now();
        self.run(phase);
        seconds.iter_mut().take(1).for_each(|first| *first = began.elapsed().as_secs_f64());
    }

    /// The algorithms behind the products, if any were added since the last time: with the same ones a later run gives the
    /// same bits. `None` where the plan alone decides.
    fn take_algorithms(&mut self) -> Option<Algorithms> {
        None
    }

    /// What went wrong since the executor was made. A device works behind the host's back, so its errors show late; from
    /// the first one on nothing is run or written, and what is read means nothing.
    fn check(&self) -> Result<(), ExecError> {
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
    fn fill_input(&mut self, phase: usize, name: &str, bytes: usize, fill: &Fill<'_>) -> Result<(), ExecError> {
        (**self).fill_input(phase, name, bytes, fill)
    }
    fn fill_resident(&mut self, name: &str, bytes: usize, fill: &Fill<'_>) -> Result<(), ExecError> {
        (**self).fill_resident(name, bytes, fill)
    }
    fn clear_resident(&mut self, name: &str) -> Result<(), ExecError> {
        (**self).clear_resident(name)
    }
    fn write_resident_at(&mut self, name: &str, offset: usize, data: &[u8]) -> Result<(), ExecError> {
        (**self).write_resident_at(name, offset, data)
    }
    fn read_resident(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        (**self).read_resident(name)
    }
    fn ask(&mut self, names: &[&str]) -> Asked {
        (**self).ask(names)
    }
    fn answer(&self, asked: &Asked) -> Scalars {
        (**self).answer(asked)
    }
    fn read_output(&self, phase: usize, name: &str) -> Option<Cow<'_, [u8]>> {
        (**self).read_output(phase, name)
    }
    fn read_floats(&self, phase: usize, name: &str) -> Option<Cow<'_, [f32]>> {
        (**self).read_floats(phase, name)
    }
    fn replace_phase(&mut self, phase: usize, program: &Program, layout: &Layout) -> bool {
        (**self).replace_phase(phase, program, layout)
    }
    fn add_phases(&mut self, program: &Program, layout: &Layout) -> usize {
        (**self).add_phases(program, layout)
    }
    fn measured_bytes(&self) -> u64 {
        (**self).measured_bytes()
    }
    fn reserve_bytes(&self) -> Option<u64> {
        (**self).reserve_bytes()
    }
    fn run_timed(&mut self, phase: usize, seconds: &mut [f64]) {
        (**self).run_timed(phase, seconds)
    }
    fn take_algorithms(&mut self) -> Option<Algorithms> {
        (**self).take_algorithms()
    }
    fn check(&self) -> Result<(), ExecError> {
        (**self).check()
    }
}
