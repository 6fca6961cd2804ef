//! Cross-entropy over rows of logits: a weighted sum, whose gradient is written over the logits.

use super::cuda::{mismatch, put, refuse_f64, source, stream_slices, stream_threads, stream_width, typed};
use super::*;
use crate::graph::{Aliases, InputGrads};
use crate::kernels::cpu::Element;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::{SharedMut, parallel};
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Arg, Grid, Source};
use crate::types::{DType, Results};
use plimsoll_base::simd::simd;
use smallvec::smallvec;

/// Inputs: logits (M, V), targets i32 (M), weights (M). Outputs: Σ weight · −log p(target), and log Σ exp per row.
/// A row of weight 0 counts nothing, whatever its target. A target outside 0..V makes the loss NaN.
#[derive(Debug, Clone, PartialEq)]
pub struct CrossEntropy;

impl CrossEntropy {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let (rows, classes) = (rng.size(1, 20), rng.size(2, 50));
        let inputs = vec![
            SampleInput::float(&[rows, classes], Fill::Normal),
            SampleInput::new(Type::new(DType::I32, &[rows]), Fill::Ids(classes)),
            SampleInput::constant(&[rows], Fill::Mask),
        ];
        vec![Sample::new(CrossEntropy, inputs).scalar_loss()]
    }
}

impl Op for CrossEntropy {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let [logits, targets, weights] = inputs else { return OpError::new("needs logits, targets and weights") };
        let rows = [logits.shape[0]];
        if logits.rank() != 2 || targets.shape[..] != rows || weights.shape[..] != rows || targets.dtype != DType::I32 {
            return OpError::new(format!("{logits}, {targets} and {weights} do not belong together"));
        }
        Ok(smallvec![logits.wide_shape(&[1]), logits.wide_shape(&rows)])
    }
    fn class(&self) -> Class {
        Class::Loss
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: 12.0 * inputs[0].elements() as f64, bytes: Cost::traffic(inputs, outputs) }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.input_type(0).dtype, T => forward::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let ([logits, targets, weights], [loss, lse]) = (launch.inputs, launch.outputs) else {
            return Err(mismatch(self, launch, "logits, targets and weights for a loss and log-sum-exps"));
        };
        let (rows, classes) = (logits.ty.shape[0], logits.ty.shape[1]);
        let width = stream_width(&[logits]);
        // The macro D stands for nothing here: one module serves both directions.
        let types = [("T", logits), ("W", weights), ("D", loss)];
        let kernel = |entry| typed(SOURCE, entry, &types).define("WIDTH", width);
        let threads = stream_threads(classes, width);
        let args: [Arg; 3] = [logits.into(), lse.into(), classes.into()];
        put(launch, &kernel("log_sum_exp"), Grid::new(rows, threads), rows, &args)?;
        let args: [Arg; 7] =
            [logits.into(), targets.into(), weights.into(), lse.into(), loss.into(), rows.into(), classes.into()];
        launch.kernel(&kernel("cross_entropy"), Grid::new(1, 1024), &args)
    }
}

impl Differentiable for CrossEntropy {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let inputs = [cx.input(0), cx.output(1), cx.input(1), cx.input(2), cx.grad0()];
        Ok(smallvec![Some(cx.add1(CrossEntropyGrad, &inputs)?), None, None])
    }
}

/// `dlogits = (softmax − onehot) · weight · dloss`, over the logits if nothing else reads them.
#[derive(Debug, Clone, PartialEq)]
struct CrossEntropyGrad;

impl Op for CrossEntropyGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[0].clone()])
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::may(0, 0)]
    }
    fn class(&self) -> Class {
        Class::Loss
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, 12.0)
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => backward::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let ([logits, lse, targets, weights, dloss], [grads]) = (launch.inputs, launch.outputs) else {
            return Err(mismatch(self, launch, "logits, log-sum-exps, targets, weights and dloss for dlogits"));
        };
        let (rows, classes) = (logits.ty.shape[0], logits.ty.shape[1]);
        let width = stream_width(&[logits, grads]);
        let (threads, slices) = (stream_threads(classes, width), stream_slices(rows, classes, width));
        let kernel = typed(SOURCE, "cross_entropy_grad", &[("T", logits), ("W", weights), ("D", dloss)]);
        let tensors = [logits, lse, targets, weights, dloss, grads].map(Arg::from);
        let args: Vec<Arg> = tensors.into_iter().chain([classes.into(), slices.into()]).collect();
        put(launch, &kernel.define("WIDTH", width), Grid::new(rows * slices, threads), rows, &args)
    }
}

const SOURCE: Source = source!("cross_entropy", "map", "long_rows");

fn forward<T: Float + Element>(io: &CpuIo<'_>) {
    let classes = io.input_type(0).shape[1];
    let (logits, targets, weights) = (io.input::<T>(0), io.input::<i32>(1), io.input::<T>(2));
    let lse = io.output::<T>(1);
    let slots = SharedMut::new(lse.as_mut_ptr());
    parallel(targets.len(), |row| {
        let value = simd(
            #[inline(always)]
            || log_sum_exp(&logits[row * classes..][..classes]),
        );
        // SAFETY: task `row` writes slot `row` only.
        unsafe { slots.slice(row, 1)[0] = value };
    });
    let row_loss = |row: usize| match logits[row * classes..][..classes].get(targets[row] as usize) {
        Some(&logit) => (weights[row] * (lse[row] - logit)).to_f64(),
        None => f64::NAN,
    };
    let counted = (0..targets.len()).filter(|&row| weights[row] != T::ZERO);
    io.output::<T>(0)[0] = T::of(counted.map(row_loss).sum());
}

fn backward<T: Float + Element>(io: &CpuIo<'_>) {
    let classes = io.input_type(0).shape[1];
    let (lse, targets, weights, dloss) = (io.input::<T>(1), io.input::<i32>(2), io.input::<T>(3), io.scalar::<T>(4));
    let in_place = io.is_in_place(0, 0);
    let (logits, grads) = (SharedMut::new(io.input_ptr(0) as *mut T), SharedMut::new(io.output_ptr(0).cast::<T>()));
    parallel(targets.len(), |row| {
        let factor = weights[row] * dloss;
        // SAFETY: rows are disjoint.
        let grad = unsafe { grads.slice(row * classes, classes) };
        if factor == T::ZERO {
            return grad.fill(T::ZERO);
        }
        if !in_place {
            // SAFETY: apart from the gradient, and only read.
            grad.copy_from_slice(unsafe { logits.slice(row * classes, classes) });
        }
        let shift = lse[row];
        simd(
            #[inline(always)]
            || {
                for x in grad.iter_mut() {
                    *x = factor * (*x - shift).exp();
                }
            },
        );
        if let Some(at) = grad.get_mut(targets[row] as usize) {
            *at -= factor;
        }
    });
}

/// log Σ exp(x), shifted by the maximum.
#[inline(always)]
pub(crate) fn log_sum_exp<T: Float>(row: &[T]) -> T {
    const LANES: usize = 16;
    let (blocks, tail) = row.as_chunks::<LANES>();
    let mut highest = [T::NEG_INFINITY; LANES];
    for block in blocks {
        for l in 0..LANES {
            highest[l] = highest[l].max(block[l]);
        }
    }
    let mut max = T::NEG_INFINITY;
    for x in highest.iter().chain(tail) {
        max = max.max(*x);
    }
    if max == T::NEG_INFINITY {
        return max;
    }
    let mut sums = [T::ZERO; LANES];
    for block in blocks {
        for l in 0..LANES {
            sums[l] += (block[l] - max).exp();
        }
    }
    for (l, x) in tail.iter().enumerate() {
        sums[l] += (*x - max).exp();
    }
    let mut sum = T::ZERO;
    for x in sums {
        sum += x;
    }
    max + sum.ln()
}
