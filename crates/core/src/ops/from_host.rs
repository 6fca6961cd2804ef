//! A copy from host memory to the device: what was put there by `ToHost`, or a stretch of a resident.

use super::*;
use crate::kernels::cpu::strided;

/// `shape` elements of a host value, from element `first` on.
#[derive(Debug, Clone, PartialEq)]
pub struct FromHost {
    pub first: usize,
    pub shape: Vec<usize>,
}

impl FromHost {
    /// All of a value of this type.
    pub fn whole(ty: &Type) -> FromHost {
        FromHost { first: 0, shape: ty.shape.to_vec() }
    }

    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let (rows, width) = (rng.size(2, 9), rng.size(1, 9));
        let input = || vec![SampleInput::constant(&[rows, width], Fill::Normal)];
        let part = FromHost { first: width, shape: vec![(rows - 1) * width] };
        vec![Sample::plain(FromHost { first: 0, shape: vec![rows, width] }, input()), Sample::plain(part, input())]
    }
}

impl Op for FromHost {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        let part = inputs[0].with_shape(&self.shape);
        let end = part.checked_bytes().and_then(|_| self.first.checked_add(part.elements()));
        match end.is_some_and(|end| end <= inputs[0].elements()) {
            true => Ok(vec![part]),
            false => OpError::new(format!("{self:?} is outside {}", inputs[0])),
        }
    }
    fn input_space(&self, _: usize) -> Space {
        Space::Host
    }
    fn cost(&self, _: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: 0.0, bytes: Cost::traffic(outputs, outputs) }
    }
    fn class(&self) -> Class {
        Class::Move
    }
    fn host_bytes(&self, _: &[Type], outputs: &[Type]) -> f64 {
        Cost::traffic(&[], outputs)
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let ty = io.output_type(0);
        let from = io.input_ptr(0).wrapping_add(self.first * ty.dtype.bytes());
        // SAFETY: the part lies inside the host's value, and the two memories are disjoint.
        unsafe { strided::copy(ty, from, ty, io.output_ptr(0)) }
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (from, to) = (&launch.inputs[0], &launch.outputs[0]);
        let skipped = (self.first * to.ty.dtype.bytes()) as u64;
        launch.queue.copy(to.address, from.address + skipped, to.ty.span_bytes())
    }
}
