//! A row-major copy of a view.

use super::*;
use crate::exec::cpu::strided;

#[derive(Debug, Clone, PartialEq)]
pub struct Copy;

impl Copy {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        vec![Sample::new(Copy, vec![SampleInput::float(&[rng.size(1, 9), rng.size(1, 9)], Fill::Normal)])]
    }
}

impl Op for Copy {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        Ok(vec![inputs[0].contiguous()])
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
}

impl Differentiable for Copy {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<Vec<Option<ValueId>>, GraphError> {
        Ok(vec![cx.grad(0)])
    }
}
