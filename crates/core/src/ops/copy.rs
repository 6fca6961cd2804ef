//! A row-major copy of a view.

use super::cuda::{Walk, put, source};
use super::*;
use crate::graph::InputGrads;
use crate::kernels::cpu::strided;
use crate::kernels::cuda::{Arg, DeviceTensor, Grid, Kernel, Source};
use crate::types::Results;
use smallvec::smallvec;

#[derive(Debug, Clone, PartialEq)]
pub struct Copy;

impl Copy {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        vec![Sample::new(Copy, vec![SampleInput::float(&[rng.size(1, 9), rng.size(1, 9)], Fill::Normal)])]
    }
}

impl Op for Copy {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[0].contiguous()])
    }
    fn accepts(&self, _: usize, _: &Type) -> bool {
        true
    }
    fn class(&self) -> Class {
        Class::Move
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, 2.0)
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        // SAFETY: both sides have the same shape and their own memory.
        unsafe { strided::copy(io.input_type(0), io.input_ptr(0), io.output_type(0), io.output_ptr(0)) }
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        copy_strided(launch, &launch.inputs[0], &launch.outputs[0])
    }
}

const SOURCE: Source = source!("copy", "map", "walk");

/// Elements of `from` to the same places of `to`; a stride of 0 repeats.
pub(super) fn copy_strided(launch: &mut Launch<'_>, from: &DeviceTensor, to: &DeviceTensor) -> Result<(), CudaError> {
    if from.ty.is_contiguous() && to.ty.is_contiguous() {
        return match to.ty.span_bytes() {
            0 => Ok(()),
            bytes => launch.queue.copy(to.address, from.address, bytes),
        };
    }
    strided(launch, "copy", Some(from), to)
}

/// Zeros to every place of `to`.
pub(super) fn zero_strided(launch: &mut Launch<'_>, to: &DeviceTensor) -> Result<(), CudaError> {
    if to.ty.is_contiguous() {
        return match to.ty.span_bytes() {
            0 => Ok(()),
            bytes => launch.queue.fill(to.address, 0, bytes),
        };
    }
    strided(launch, "zero", None, to)
}

fn strided(
    launch: &mut Launch<'_>,
    entry: &'static str,
    from: Option<&DeviceTensor>,
    to: &DeviceTensor,
) -> Result<(), CudaError> {
    let source = from.unwrap_or(to);
    let Some(walk) = Walk::new(&to.ty.shape, &source.ty.strides, &to.ty.strides) else {
        return Err(CudaError::NoKernel { op: format!("{entry} of {}", source.ty), dtype: to.ty.dtype });
    };
    let size = to.ty.dtype.bytes();
    let repeats = walk.steps().0 == 0;
    let walk = walk.vectors(size, &[source.address, to.address]);
    let kernel = Kernel::new(SOURCE, entry).define("T", integer(size)).define("REPEATS", u32::from(repeats));
    let args: Vec<Arg> = from.into_iter().chain([to]).map(Arg::from).chain(walk.args()).collect();
    put(launch, &walk.define(kernel), Grid::over(walk.count(), 1), walk.count(), &args)
}

/// The unsigned integer of this many bytes.
fn integer(bytes: usize) -> &'static str {
    match bytes {
        1 => "unsigned char",
        2 => "unsigned short",
        4 => "unsigned int",
        _ => "unsigned long long",
    }
}

impl Differentiable for Copy {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        Ok(smallvec![cx.grad(0)])
    }
}
