//! The exponential of every element: a learned temperature is kept as a logarithm.

use super::cuda::{map, refuse_f64, source, typed};
use super::*;
use crate::graph::{Aliases, InputGrads};
use crate::kernels::cpu::elementwise::map1;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::with_float;
use crate::types::Results;
use smallvec::smallvec;

#[derive(Debug, Clone, PartialEq)]
pub struct Exp;

impl Exp {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let sample = |shape: &[usize]| Sample::new(Exp, vec![SampleInput::float(shape, Fill::Normal)]);
        vec![sample(&[1]), sample(&[rng.size(1, 9), rng.size(1, 40)])]
    }
}

impl Op for Exp {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[0].contiguous()])
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::may(0, 0)]
    }
    fn class(&self) -> Class {
        Class::Function
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, 15.0)
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => map1::<T>(io, 0, <T as Float>::exp))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let (x, y) = (&launch.inputs[0], &launch.outputs[0]);
        map(launch, typed(source!("exp", "map"), "exponential", &[("T", x)]), &[x, y], &[])
    }
}

impl Differentiable for Exp {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let (dy, y) = (cx.grad0(), cx.output(0));
        Ok(smallvec![Some(cx.add1(Binary::MUL, &[dy, y])?)])
    }
}
