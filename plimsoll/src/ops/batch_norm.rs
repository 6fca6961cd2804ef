//! Batch normalization over all but the last dimension. Samples of weight 0 are padding and do not count.

use super::*;
use crate::exec::cpu::Element;
use crate::exec::cpu::float::Float;
use crate::exec::cpu::kernels::batch_norm::{self as kernel, Layer, Rows, Saved, Shape, Statistics};
use crate::with_float;

/// Inputs: x (B, …, C), gamma (C), beta (C), weight (B). Outputs: y, mean (C), biased variance (C), 1/√(var + eps) (C).
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNorm {
    pub eps: f64,
}

fn rows_of(x: &Type) -> Shape {
    let channels = *x.shape.last().unwrap_or(&1);
    Shape { rows: x.elements() / channels.max(1), channels }
}

fn counting<'a, T: Element>(io: &CpuIo<'a>, x: usize, weight: usize) -> Rows<'a, T> {
    let weights = io.input::<T>(weight);
    Rows { weights: Some(weights), rows_per_weight: rows_of(io.input_type(x)).rows / weights.len().max(1) }
}

impl BatchNorm {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        // Enough rows that count: the gradient of a variance over two rows is too ill-conditioned for f32.
        let (batch, time, channels) = (rng.size(8, 12), rng.size(5, 8), rng.size(1, 20));
        let inputs = vec![
            SampleInput::float(&[batch, time, channels], Fill::Normal),
            SampleInput::float(&[channels], Fill::Normal),
            SampleInput::float(&[channels], Fill::Normal),
            SampleInput::constant(&[batch], Fill::Mask),
        ];
        vec![Sample::new(BatchNorm { eps: 1e-5 }, inputs).first_output()]
    }
}

impl Op for BatchNorm {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        let channels = [rows_of(&inputs[0]).channels];
        let fits = inputs[1].shape[..] == channels
            && inputs[2].shape[..] == channels
            && inputs[3].shape[..] == inputs[0].shape[..1];
        if !fits {
            return OpError::new(format!("{inputs:?} do not belong together"));
        }
        Ok([vec![inputs[0].clone()], vec![inputs[1].clone(); 3]].concat())
    }
    fn class(&self) -> Class {
        Class::Norm
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: 8.0 * inputs[0].elements() as f64, bytes: 2.0 * Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], _: &Target) -> usize {
        kernel::scratch(rows_of(&inputs[0])) * inputs[0].dtype.bytes()
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => {
            let layer = Layer { gamma: io.input::<T>(1), beta: io.input::<T>(2), eps: T::of(self.eps) };
            let statistics = Statistics { mean: io.output(1), var: io.output(2), rstd: io.output(3) };
            let shape = rows_of(io.input_type(0));
            kernel::forward(shape, io.input(0), counting(io, 0, 3), layer, io.output(0), statistics, io.workspace())
        })
    }
}

impl Differentiable for BatchNorm {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<Vec<Option<ValueId>>, GraphError> {
        let inputs = [cx.grad0(), cx.input(0), cx.input(1), cx.input(3), cx.output(1), cx.output(3)];
        let grads = cx.add(BatchNormGrad, &inputs)?;
        Ok(vec![Some(grads[0]), Some(grads[1]), Some(grads[2]), None])
    }
}

/// Inputs: dy, x, gamma, weight, mean, 1/σ. Outputs: dx, dgamma, dbeta.
#[derive(Debug, Clone, PartialEq)]
struct BatchNormGrad;

impl Op for BatchNormGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        Ok(vec![inputs[1].clone(), inputs[2].clone(), inputs[2].clone()])
    }
    fn class(&self) -> Class {
        Class::NormGrad
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: 10.0 * inputs[0].elements() as f64, bytes: 2.0 * Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], _: &Target) -> usize {
        kernel::scratch(rows_of(&inputs[1])) * inputs[0].dtype.bytes()
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => {
            let rows = counting(io, 1, 3);
            let saved = Saved { x: io.input::<T>(1), rows, gamma: io.input(2), mean: io.input(4), rstd: io.input(5) };
            let (dx, dgamma, dbeta) = (io.output(0), io.output(1), io.output(2));
            kernel::backward(rows_of(io.input_type(1)), io.input(0), saved, dx, dgamma, dbeta, io.workspace())
        })
    }
}

/// Normalization with running statistics, when not training. Inputs: x, gamma, beta, running mean, running variance.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNormFixed {
    pub eps: f64,
}

impl BatchNormFixed {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let channels = rng.size(1, 20);
        let constant = |fill| SampleInput::constant(&[channels], fill);
        let x = SampleInput::constant(&[rng.size(1, 5), 3, channels], Fill::Normal);
        let statistics = [constant(Fill::Normal), constant(Fill::Normal), constant(Fill::Normal)];
        let inputs = [vec![x], statistics.into(), vec![constant(Fill::Uniform(0.5, 2.0))]].concat();
        vec![Sample::plain(BatchNormFixed { eps: 1e-5 }, inputs)]
    }
}

impl Op for BatchNormFixed {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        Ok(vec![inputs[0].clone()])
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => {
            let layer = Layer { gamma: io.input::<T>(1), beta: io.input::<T>(2), eps: T::of(self.eps) };
            kernel::evaluate(rows_of(io.input_type(0)), io.input(0), layer, io.input(3), io.input(4), io.output(0))
        })
    }
}

/// Moves running statistics towards a batch's. Inputs: mean, biased variance, weight (B), running mean, running
/// variance; overwrites the last two. `rows_per_sample` rows of the normalized value belong to one sample.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNormRunning {
    pub momentum: f64,
    pub rows_per_sample: usize,
}

impl Op for BatchNormRunning {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        Ok(vec![inputs[3].clone(), inputs[4].clone()])
    }
    fn aliases(&self, _: &[Type]) -> Vec<Alias> {
        vec![Alias::must(0, 3), Alias::must(1, 4)]
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => {
            let samples = io.input::<T>(2).iter().filter(|&&w| w != T::ZERO).count();
            let (mean, var) = (io.input::<T>(0), io.input::<T>(1));
            let momentum = T::of(self.momentum);
            kernel::update_running(mean, var, samples * self.rows_per_sample, momentum, io.output(0), io.output(1))
        })
    }
}
