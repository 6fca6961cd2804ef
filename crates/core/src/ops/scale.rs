//! Multiplication by a constant.

use super::cuda::{refuse_f64, source, sweep, typed};
use super::*;
use crate::graph::{Aliases, InputGrads};
use crate::kernels::cpu::elementwise::map1;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::with_float;
use crate::types::Results;
use smallvec::smallvec;

#[derive(Debug, Clone, PartialEq)]
pub struct Scale(pub f64);

impl Scale {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        vec![Sample::new(Scale(-1.7), vec![SampleInput::float(&[rng.size(1, 90), 3], Fill::Normal)])]
    }
}

impl Op for Scale {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[0].contiguous()])
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::may(0, 0)]
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => {
            let factor = T::of(self.0);
            map1::<T>(io, 0, #[inline(always)] move |x| x * factor)
        })
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let (x, y) = (&launch.inputs[0], &launch.outputs[0]);
        let kernel = typed(source!("scale", "map", "sweep"), "scale", &[("T", x)]);
        sweep(launch, kernel, &[x, y], &[(self.0 as f32).into()])
    }
}

impl Differentiable for Scale {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let dy = cx.grad0();
        Ok(smallvec![Some(cx.add1(self.clone(), &[dy])?)])
    }
}
