//! RMS norm over the last dimension, with a scale.

use super::cuda::{mismatch, refuse_f64};
use super::norm::{Forward, norm_rows, put_norm, refuse_statistics_gradient};
use super::norm_grad::NormGrad;
use super::*;
use crate::graph::{Aliases, InputGrads};
use crate::kernels::cpu::Element;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::{SharedMut, parallel};
use crate::kernels::cpu::rows::{self, InPlace};
use crate::kernels::cpu::with_float;
use crate::types::Results;
use plimsoll_base::simd::simd;
use smallvec::{SmallVec, smallvec};

/// Inputs: x (…, D), gamma (D). Outputs: y = x · rstd · gamma, and per row rstd = 1 / √(mean(x²) + eps), which takes
/// no gradient itself.
#[derive(Debug, Clone, PartialEq)]
pub struct RmsNorm {
    pub eps: f64,
}

impl RmsNorm {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let sample = |rows: &[usize], width: usize, fill: Fill| {
            let x = SampleInput::float(&[rows, &[width]].concat(), fill);
            Sample::new(RmsNorm { eps: 1e-6 }, vec![x, SampleInput::float(&[width], Fill::Normal)]).first_output()
        };
        // A narrow row near zero bends within the step of a finite difference: narrow ones stay away from it.
        vec![
            sample(&[3], 8, Fill::Normal),
            sample(&[rng.size(1, 3), rng.size(1, 70)], rng.size(8, 80), Fill::Normal),
            sample(&[], rng.size(1, 8), Fill::Uniform(0.5, 2.0)),
        ]
    }
}

impl Op for RmsNorm {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let [x, _] = inputs else { return OpError::new("needs x and gamma") };
        Ok(smallvec![x.contiguous(), norm_rows(x, &inputs[1..])?])
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::may(0, 0)]
    }
    fn class(&self) -> Class {
        Class::Norm
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, 5.0)
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn adds_gradients(&self) -> bool {
        true
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => forward::<T>(io, T::of(self.eps)))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let ([x, gamma], [y, rstd]) = (launch.inputs, launch.outputs) else {
            return Err(mismatch(self, launch, "x and gamma for y and rstd"));
        };
        put_norm(launch, Forward { x, gamma, beta: None, y, mean: None, rstd }, self.eps)
    }
}

impl Differentiable for RmsNorm {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        refuse_statistics_gradient(cx, 1..2)?;
        let mut inputs: SmallVec<[ValueId; 8]> = smallvec![cx.grad0(), cx.input(0), cx.input(1), cx.output(1)];
        inputs.extend(cx.second);
        Ok(cx.add(NormGrad::new(false, cx.second.is_some()), &inputs)?.into_iter().map(Some).collect())
    }
}

fn forward<T: Float + Element>(io: &CpuIo<'_>, eps: T) {
    let gamma = io.input::<T>(1);
    let (count, width) = (io.output_type(1).elements(), gamma.len());
    let (y, step) = (InPlace::<T>::new(io, 0, 0), rows::rows_per_task(width));
    let rstds = SharedMut::new(io.output_ptr(1).cast::<T>());
    parallel(count.div_ceil(step), |task| {
        simd(
            #[inline(always)]
            || {
                for row in task * step..((task + 1) * step).min(count) {
                    // SAFETY: a row belongs to one task.
                    unsafe { rstds.slice(row, 1)[0] = normalize(y.load(row * width, width), gamma, eps) };
                }
            },
        )
    });
}

#[inline(always)]
pub(super) fn normalize<T: Float>(row: &mut [T], gamma: &[T], eps: T) -> T {
    let square = rows::sum(
        row,
        #[inline(always)]
        |x| x * x,
    ) / T::of(row.len() as f64);
    let rstd = T::ONE / (square + eps).sqrt();
    for (x, g) in row.iter_mut().zip(gamma) {
        *x = *x * rstd * *g;
    }
    rstd
}
