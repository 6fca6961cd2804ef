//! Copies from the device to host memory: a value that is wanted again later, or a stretch of a resident.

use super::*;
use crate::graph::Aliases;
use crate::kernels::cpu::strided;
use crate::types::Results;
use smallvec::smallvec;

/// The input in host memory.
#[derive(Debug, Clone, PartialEq)]
pub struct ToHost;

impl ToHost {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        vec![Sample::plain(ToHost, vec![SampleInput::constant(&[rng.size(1, 9), rng.size(1, 9)], Fill::Normal)])]
    }
}

impl Op for ToHost {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[0].contiguous()])
    }
    fn output_space(&self, _: usize) -> Space {
        Space::Host
    }
    fn cost(&self, inputs: &[Type], _: &[Type]) -> Cost {
        copied(&inputs[0])
    }
    fn class(&self) -> Class {
        Class::Move
    }
    fn host_bytes(&self, inputs: &[Type], _: &[Type]) -> f64 {
        Cost::traffic(&inputs[..1], &[])
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        copy(io, 0)
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        enqueue(launch, 0)
    }
}

/// Inputs (part, whole): the part overwrites the elements of the whole, which is in host memory, from `first` on.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreToHost {
    pub first: usize,
}

impl StoreToHost {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let (rows, width) = (rng.size(2, 9), rng.size(1, 9));
        let input = |shape: &[usize]| SampleInput::constant(shape, Fill::Normal);
        let part = input(&[(rows - 1) * width]);
        vec![Sample::plain(StoreToHost { first: width }, vec![part, input(&[rows, width])])]
    }
}

impl Op for StoreToHost {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let [part, whole] = inputs else { return OpError::new("needs a part and a whole") };
        let end = self.first.checked_add(part.elements());
        match part.dtype == whole.dtype && end.is_some_and(|end| end <= whole.elements()) {
            true => Ok(smallvec![whole.clone()]),
            false => OpError::new(format!("{part} from element {} on is outside {whole}", self.first)),
        }
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::must(0, 1)]
    }
    fn input_space(&self, input: usize) -> Space {
        if input == 0 { Space::Device } else { Space::Host }
    }
    fn output_space(&self, _: usize) -> Space {
        Space::Host
    }
    fn cost(&self, inputs: &[Type], _: &[Type]) -> Cost {
        copied(&inputs[0])
    }
    fn class(&self) -> Class {
        Class::Move
    }
    fn host_bytes(&self, inputs: &[Type], _: &[Type]) -> f64 {
        Cost::traffic(&inputs[..1], &[])
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        copy(io, self.first)
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        enqueue(launch, self.first)
    }
}

/// Read once and written once.
fn copied(part: &Type) -> Cost {
    Cost { flops: 0.0, bytes: 2.0 * Cost::traffic(std::slice::from_ref(part), &[]) }
}

/// Input 0 over output 0, from its element `first` on.
fn copy(io: &CpuIo<'_>, first: usize) {
    let ty = io.input_type(0);
    let to = io.output_ptr(0).wrapping_add(first * ty.dtype.bytes());
    // SAFETY: the part lies inside the host's value, and the two memories are disjoint.
    unsafe { strided::copy(ty, io.input_ptr(0), ty, to) }
}

fn enqueue(launch: &mut Launch<'_>, first: usize) -> Result<(), CudaError> {
    let (from, to) = (&launch.inputs[0], &launch.outputs[0]);
    let skipped = (first * from.ty.dtype.bytes()) as u64;
    launch.queue.copy(to.address + skipped, from.address, from.ty.span_bytes())
}
