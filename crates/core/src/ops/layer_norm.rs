//! Layer norm over the last dimension, with a scale and a shift.

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
use std::convert::identity;

/// Inputs: x (…, D), gamma (D), beta (D). Outputs: y = (x − mean) · rstd · gamma + beta, and per row mean and
/// rstd = 1 / √(variance + eps), which take no gradient themselves.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerNorm {
    pub eps: f64,
}

impl LayerNorm {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let sample = |rows: &[usize], width: usize| {
            let vector = || SampleInput::float(&[width], Fill::Normal);
            let x = SampleInput::float(&[rows, &[width]].concat(), Fill::Normal);
            Sample::new(LayerNorm { eps: 1e-5 }, vec![x, vector(), vector()]).first_output()
        };
        // Few elements can be so alike that the function bends within the step of a finite difference.
        vec![
            sample(&[3], 8),
            sample(&[2, 5], 33),
            sample(&[rng.size(1, 3), rng.size(1, 70)], rng.size(8, 80)),
            sample(&[], rng.size(8, 20)),
        ]
    }
}

impl Op for LayerNorm {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let [x, _, _] = inputs else { return OpError::new("needs x, gamma and beta") };
        let statistic = norm_rows(x, &inputs[1..])?;
        Ok(smallvec![x.contiguous(), statistic.clone(), statistic])
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::may(0, 0)]
    }
    fn class(&self) -> Class {
        Class::Norm
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, 8.0)
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
        let ([x, gamma, beta], [y, mean, rstd]) = (launch.inputs, launch.outputs) else {
            return Err(mismatch(self, launch, "x, gamma and beta for y, mean and rstd"));
        };
        put_norm(launch, Forward { x, gamma, beta: Some(beta), y, mean: Some(mean), rstd }, self.eps)
    }
}

impl Differentiable for LayerNorm {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        refuse_statistics_gradient(cx, 1..3)?;
        let mut inputs: SmallVec<[ValueId; 8]> =
            smallvec![cx.grad0(), cx.input(0), cx.input(1), cx.output(1), cx.output(2)];
        inputs.extend(cx.second);
        Ok(cx.add(NormGrad::new(true, cx.second.is_some()), &inputs)?.into_iter().map(Some).collect())
    }
}

fn forward<T: Float + Element>(io: &CpuIo<'_>, eps: T) {
    let (gamma, beta) = (io.input::<T>(1), io.input::<T>(2));
    let (count, width) = (io.output_type(1).elements(), gamma.len());
    let (y, step) = (InPlace::<T>::new(io, 0, 0), rows::rows_per_task(width));
    let [means, rstds] = [1, 2].map(|i| SharedMut::new(io.output_ptr(i).cast::<T>()));
    parallel(count.div_ceil(step), |task| {
        simd(
            #[inline(always)]
            || {
                for row in task * step..((task + 1) * step).min(count) {
                    // SAFETY: a row belongs to one task.
                    unsafe {
                        let (mean, rstd) = normalize(y.load(row * width, width), gamma, beta, eps);
                        (means.slice(row, 1)[0], rstds.slice(row, 1)[0]) = (mean, rstd);
                    }
                }
            },
        )
    });
}

/// Normalizes one row in place; the variance comes from differences to the mean, so that a large mean cancels nothing.
#[inline(always)]
pub(super) fn normalize<T: Float>(row: &mut [T], gamma: &[T], beta: &[T], eps: T) -> (T, T) {
    let n = T::of(row.len() as f64);
    let mean = rows::sum(row, identity) / n;
    let variance = rows::sum(
        row,
        #[inline(always)]
        |x| (x - mean) * (x - mean),
    ) / n;
    let rstd = T::ONE / (variance + eps).sqrt();
    for (x, (g, b)) in row.iter_mut().zip(gamma.iter().zip(beta)) {
        *x = ((*x - mean) * rstd).mul_add(*g, *b);
    }
    (mean, rstd)
}
