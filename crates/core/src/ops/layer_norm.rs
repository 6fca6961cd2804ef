//! Layer norm over the last dimension, with a scale and a shift.

use super::cuda::{mismatch, refuse_f64};
use super::norm::{Backward, Forward, norm_rows, put_norm, put_norm_grad, refuse_statistics_gradient, workspace_bytes};
use super::*;
use crate::kernels::cpu::Element;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::{SharedMut, parallel};
use crate::kernels::cpu::rows::{self, InPlace};
use crate::with_float;
use plimsoll_base::simd::simd;
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
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        let [x, _, _] = inputs else { return OpError::new("needs x, gamma and beta") };
        let statistic = norm_rows(x, &inputs[1..])?;
        Ok(vec![x.contiguous(), statistic.clone(), statistic])
    }
    fn aliases(&self, _: &[Type]) -> Vec<Alias> {
        vec![Alias::may(0, 0)]
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
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<Vec<Option<ValueId>>, GraphError> {
        refuse_statistics_gradient(cx, 1..3)?;
        let inputs = [cx.grad0(), cx.input(0), cx.input(1), cx.output(1), cx.output(2)];
        Ok(cx.add(LayerNormGrad, &inputs)?.into_iter().map(Some).collect())
    }
}

/// Inputs: dy, x, gamma, mean, rstd. Outputs: dx, dgamma, dbeta.
#[derive(Debug, Clone, PartialEq)]
struct LayerNormGrad;

impl Op for LayerNormGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        Ok(vec![inputs[1].contiguous(), inputs[2].clone(), inputs[2].clone()])
    }
    fn aliases(&self, _: &[Type]) -> Vec<Alias> {
        vec![Alias::may(0, 0)]
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        let (rows, row) = (inputs[3].elements(), inputs[2].elements());
        match target.backend {
            Backend::Cpu => 2 * rows::stretches(rows) * row * inputs[2].dtype.wide().bytes(),
            Backend::Cuda => workspace_bytes(rows, row, 2),
        }
    }
    fn class(&self) -> Class {
        Class::NormGrad
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, 16.0)
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => backward::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let ([dy, x, gamma, mean, rstd], [dx, dgamma, dbeta]) = (launch.inputs, launch.outputs) else {
            return Err(mismatch(self, launch, "dy, x, gamma, mean and rstd for dx, dgamma and dbeta"));
        };
        let (mean, dbeta) = (Some(mean), Some(dbeta));
        put_norm_grad(launch, Backward { dy, x, gamma, mean, rstd, dx, dgamma, dbeta })
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
fn normalize<T: Float>(row: &mut [T], gamma: &[T], beta: &[T], eps: T) -> (T, T) {
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

fn backward<T: Float + Element>(io: &CpuIo<'_>) {
    let (x, gamma, means, rstds) = (io.input::<T>(1), io.input::<T>(2), io.input::<T>(3), io.input::<T>(4));
    let (count, width) = (means.len(), gamma.len());
    let (dx, stretches) = (InPlace::<T>::new(io, 0, 0), rows::stretches(count));
    let (dgammas, dbetas) = io.workspace::<T>()[..2 * stretches * width].split_at_mut(stretches * width);
    let partials = [SharedMut::new(dgammas.as_mut_ptr()), SharedMut::new(dbetas.as_mut_ptr())];
    parallel(stretches, |index| {
        // SAFETY: a stretch of rows and its partial sums belong to one task.
        let [dgamma, dbeta] = partials.map(|p| unsafe { p.slice(index * width, width) });
        dgamma.fill(T::ZERO);
        dbeta.fill(T::ZERO);
        simd(
            #[inline(always)]
            || {
                for row in rows::stretch(count, index) {
                    // SAFETY: the row is one of this stretch, which no other task has.
                    let dx = unsafe { dx.load(row * width, width) };
                    let x = &x[row * width..][..width];
                    backward_row(dx, x, gamma, means[row], rstds[row], dgamma, dbeta);
                }
            },
        );
    });
    simd(
        #[inline(always)]
        || {
            rows::add_up(dgammas, io.output(1));
            rows::add_up(dbetas, io.output(2));
        },
    );
}

/// With h = dy · gamma and x̂ the normalized row: dx = rstd · (h − mean(h) − x̂ · mean(h · x̂)). `dx` starts as dy.
#[inline(always)]
fn backward_row<T: Float>(dx: &mut [T], x: &[T], gamma: &[T], mean: T, rstd: T, dgamma: &mut [T], dbeta: &mut [T]) {
    let sums = dgamma.iter_mut().zip(dbeta);
    for ((dx, (x, gamma)), (dgamma, dbeta)) in dx.iter_mut().zip(x.iter().zip(gamma)).zip(sums) {
        *dgamma = dx.mul_add((*x - mean) * rstd, *dgamma);
        *dbeta += *dx;
        *dx *= *gamma;
    }
    let n = T::of(dx.len() as f64);
    let mean_h = rows::sum(dx, identity) / n;
    let slope = rows::sum2(
        dx,
        x,
        #[inline(always)]
        |h, x| h * ((x - mean) * rstd),
    ) / n;
    for (h, x) in dx.iter_mut().zip(x) {
        *h = rstd * (*h - mean_h - (*x - mean) * rstd * slope);
    }
}
