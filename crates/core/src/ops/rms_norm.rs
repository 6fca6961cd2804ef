//! RMS norm over the last dimension, with a scale.

use super::cuda::{mismatch, refuse_f64};
use super::norm::{Backward, Forward, norm_rows, put_norm, put_norm_grad, refuse_statistics_gradient, workspace_bytes};
use super::*;
use crate::kernels::cpu::Element;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::{SharedMut, parallel};
use crate::kernels::cpu::rows::{self, InPlace};
use crate::with_float;
use plimsoll_base::simd::simd;

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
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        let [x, _] = inputs else { return OpError::new("needs x and gamma") };
        Ok(vec![x.contiguous(), norm_rows(x, &inputs[1..])?])
    }
    fn aliases(&self, _: &[Type]) -> Vec<Alias> {
        vec![Alias::may(0, 0)]
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
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<Vec<Option<ValueId>>, GraphError> {
        refuse_statistics_gradient(cx, 1..2)?;
        let inputs = [cx.grad0(), cx.input(0), cx.input(1), cx.output(1)];
        Ok(cx.add(RmsNormGrad, &inputs)?.into_iter().map(Some).collect())
    }
}

/// Inputs: dy, x, gamma, rstd. Outputs: dx, dgamma.
#[derive(Debug, Clone, PartialEq)]
struct RmsNormGrad;

impl Op for RmsNormGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        Ok(vec![inputs[1].contiguous(), inputs[2].clone()])
    }
    fn aliases(&self, _: &[Type]) -> Vec<Alias> {
        vec![Alias::may(0, 0)]
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        let (rows, row) = (inputs[3].elements(), inputs[2].elements());
        match target.backend {
            Backend::Cpu => rows::stretches(rows) * row * inputs[2].dtype.wide().bytes(),
            Backend::Cuda => workspace_bytes(rows, row, 1),
        }
    }
    fn class(&self) -> Class {
        Class::NormGrad
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, 12.0)
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => backward::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let ([dy, x, gamma, rstd], [dx, dgamma]) = (launch.inputs, launch.outputs) else {
            return Err(mismatch(self, launch, "dy, x, gamma and rstd for dx and dgamma"));
        };
        put_norm_grad(launch, Backward { dy, x, gamma, mean: None, rstd, dx, dgamma, dbeta: None })
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
fn normalize<T: Float>(row: &mut [T], gamma: &[T], eps: T) -> T {
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

fn backward<T: Float + Element>(io: &CpuIo<'_>) {
    let (x, gamma, rstds) = (io.input::<T>(1), io.input::<T>(2), io.input::<T>(3));
    let (count, width) = (rstds.len(), gamma.len());
    let (dx, stretches) = (InPlace::<T>::new(io, 0, 0), rows::stretches(count));
    let dgammas = &mut io.workspace::<T>()[..stretches * width];
    let partials = SharedMut::new(dgammas.as_mut_ptr());
    parallel(stretches, |index| {
        // SAFETY: a stretch of rows and its partial sum belong to one task.
        let dgamma = unsafe { partials.slice(index * width, width) };
        dgamma.fill(T::ZERO);
        simd(
            #[inline(always)]
            || {
                for row in rows::stretch(count, index) {
                    // SAFETY: the row is one of this stretch, which no other task has.
                    let dx = unsafe { dx.load(row * width, width) };
                    backward_row(dx, &x[row * width..][..width], gamma, rstds[row], dgamma);
                }
            },
        );
    });
    simd(
        #[inline(always)]
        || rows::add_up(dgammas, io.output(1)),
    );
}

/// With h = dy · gamma and x̂ = x · rstd: dx = rstd · (h − x̂ · mean(h · x̂)). `dx` starts as dy.
#[inline(always)]
fn backward_row<T: Float>(dx: &mut [T], x: &[T], gamma: &[T], rstd: T, dgamma: &mut [T]) {
    for ((dx, (x, gamma)), dgamma) in dx.iter_mut().zip(x.iter().zip(gamma)).zip(dgamma) {
        *dgamma = dx.mul_add(*x * rstd, *dgamma);
        *dx *= *gamma;
    }
    let slope = rows::sum2(
        dx,
        x,
        #[inline(always)]
        |h, x| h * (x * rstd),
    ) / T::of(dx.len() as f64);
    for (h, x) in dx.iter_mut().zip(x) {
        *h = rstd * (*h - *x * rstd * slope);
    }
}
