//! Batch normalization over all but the last dimension. Samples of weight 0 are padding and do not count.

use super::*;
use crate::graph::{Aliases, InputGrads};
use crate::kernels::cpu::Element;
use crate::kernels::cpu::batch_norm::{self as kernel, BatchNormShape, Layer, Rows, Saved, Statistics};
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Arg, DeviceTensor, Grid, Kernel, Source};
use crate::types::{DType, Results};
use cuda::{define_index, source, width};
use device::{Regions, int, refuse_f64, stretches};
use smallvec::smallvec;

const SOURCE: Source = source!("batch_norm", "map");

/// Inputs: x (B, …, C), gamma (C), beta (C), weight (B). Outputs: y, mean (C), biased variance (C), 1/√(var + eps) (C).
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNorm {
    pub eps: f64,
}

fn rows_of(x: &Type) -> BatchNormShape {
    let channels = *x.shape.last().unwrap_or(&1);
    BatchNormShape { rows: x.elements() / channels.max(1), channels }
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
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let channels = [rows_of(&inputs[0]).channels];
        let fits = inputs[1].shape[..] == channels
            && inputs[2].shape[..] == channels
            && inputs[3].shape[..] == inputs[0].shape[..1];
        if !fits {
            return OpError::new(format!("{inputs:?} do not belong together"));
        }
        let statistic = inputs[1].wide_shape(&channels);
        Ok(smallvec![inputs[0].clone(), statistic.clone(), statistic.clone(), statistic])
    }
    fn class(&self) -> Class {
        Class::Norm
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: 8.0 * inputs[0].elements() as f64, bytes: 2.0 * Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        match target.backend {
            Backend::Cpu => kernel::scratch(rows_of(&inputs[0])) * inputs[0].dtype.bytes(),
            Backend::Cuda => device_space(0, rows_of(&inputs[0]))[2] as usize,
        }
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
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let [x, gamma, beta, weight] = [0, 1, 2, 3].map(|n| &launch.inputs[n]);
        refuse_f64(self, &x.ty)?;
        let [y, mean, var, rstd] = [0, 1, 2, 3].map(|n| &launch.outputs[n]);
        let kernels = Kernels::new(&[x, y]).layer(gamma).statistics(mean).weights(weight);
        let per_weight = Arg::from(rows_per_weight(x, weight));
        let [parts, ..] = device_space(launch.workspace, kernels.shape).map(Arg::Address);
        kernels.by_stretch(launch, "moments", &[x.into(), weight.into(), parts], per_weight)?;
        let ends = [parts, mean.into(), var.into(), rstd.into()];
        kernels.by_channel(launch, "combine_moments", &ends, &[Arg::F32(self.eps as f32)])?;
        let ends = [x, gamma, beta, weight, mean, rstd, y].map(Arg::from);
        kernels.by_stretch(launch, "normalize", &ends, per_weight)
    }
}

/// Parts of each stretch of rows, then sums of all; one past both at the end.
fn device_space(start: u64, shape: BatchNormShape) -> [u64; 3] {
    let mut regions = Regions::new(start);
    let parts = regions.take(4 * 3 * stretches(shape.rows).1 * shape.channels);
    let sums = regions.take(4 * 3 * shape.channels);
    [parts, sums, regions.end()]
}

fn rows_per_weight(x: &DeviceTensor, weight: &DeviceTensor) -> usize {
    (rows_of(&x.ty).rows / weight.ty.elements().max(1)).max(1)
}

/// The kernels of batch norm for the sizes and types of what they read; what an op does not have is f32.
#[derive(Clone, Copy)]
struct Kernels {
    shape: BatchNormShape,
    types: [(&'static str, DType); 5],
    /// Neighbouring channels of a thread, and how many threads of a block lie side by side.
    width: usize,
    columns: usize,
}

/// Threads of a block that goes down a stretch of rows.
const THREADS: usize = 256;

impl Kernels {
    /// For all tensors that have rows.
    fn new(tensors: &[&DeviceTensor]) -> Kernels {
        let shape = rows_of(&tensors[0].ty);
        let width = width(tensors, shape.channels);
        let columns = [8, 16].into_iter().find(|columns| shape.channels <= columns * width).unwrap_or(32);
        Kernels { shape, types: ["T", "G", "S", "W", "R"].map(|name| (name, DType::F32)), width, columns }
            .with(0, tensors[0])
    }
    fn with(mut self, index: usize, tensor: &DeviceTensor) -> Kernels {
        self.types[index].1 = tensor.ty.dtype;
        self
    }
    fn layer(self, gamma: &DeviceTensor) -> Kernels {
        self.with(1, gamma)
    }
    fn statistics(self, mean: &DeviceTensor) -> Kernels {
        self.with(2, mean)
    }
    fn weights(self, weight: &DeviceTensor) -> Kernels {
        self.with(3, weight)
    }
    fn running(self, mean: &DeviceTensor) -> Kernels {
        self.with(4, mean)
    }

    fn entry(&self, entry: &'static str) -> Kernel {
        let kernel = define_index(Kernel::new(SOURCE, entry), self.shape.rows);
        let kernel = kernel.define("WIDTH", self.width).define("COLUMNS", self.columns);
        self.types.iter().fold(kernel, |kernel, &(name, dtype)| kernel.dtype(name, dtype))
    }

    /// One block for every stretch of rows and the channels of its columns.
    fn by_stretch(
        &self,
        launch: &mut Launch<'_>,
        entry: &'static str,
        ends: &[Arg],
        last: Arg,
    ) -> Result<(), CudaError> {
        let BatchNormShape { rows, channels } = self.shape;
        let (length, many) = stretches(rows);
        let blocks = many * channels.div_ceil(self.columns * self.width);
        if blocks == 0 {
            return Ok(());
        }
        let threads = [self.columns, THREADS / self.columns, 1].map(|n| n as u32);
        let sizes = [rows.into(), length.into(), int(channels), last];
        launch.kernel(&self.entry(entry), Grid { threads, ..Grid::new(blocks, THREADS) }, &[ends, &sizes].concat())
    }

    /// One block for every 32 channels, whose stretches 32 threads share.
    fn by_channel(
        &self,
        launch: &mut Launch<'_>,
        entry: &'static str,
        ends: &[Arg],
        more: &[Arg],
    ) -> Result<(), CudaError> {
        let BatchNormShape { rows, channels } = self.shape;
        if channels == 0 {
            return Ok(());
        }
        let sizes = [int(stretches(rows).1), int(channels)];
        let grid = Grid { threads: [32, 32, 1], ..Grid::new(channels.div_ceil(32), 1024) };
        launch.kernel(&self.entry(entry), grid, &[ends, &sizes, more].concat())
    }
}

impl Differentiable for BatchNorm {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let inputs = [cx.grad0(), cx.input(0), cx.input(1), cx.input(3), cx.output(1), cx.output(3)];
        let grads = cx.add(BatchNormGrad, &inputs)?;
        Ok(smallvec![Some(grads[0]), Some(grads[1]), Some(grads[2]), None])
    }
}

/// Inputs: dy, x, gamma, weight, mean, 1/σ. Outputs: dx, dgamma, dbeta.
#[derive(Debug, Clone, PartialEq)]
struct BatchNormGrad;

impl Op for BatchNormGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[1].clone(), inputs[2].clone(), inputs[2].clone()])
    }
    fn class(&self) -> Class {
        Class::NormGrad
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: 10.0 * inputs[0].elements() as f64, bytes: 2.0 * Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        match target.backend {
            Backend::Cpu => kernel::scratch(rows_of(&inputs[1])) * inputs[0].dtype.bytes(),
            Backend::Cuda => device_space(0, rows_of(&inputs[1]))[2] as usize,
        }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => {
            let rows = counting(io, 1, 3);
            let saved = Saved { x: io.input::<T>(1), rows, gamma: io.input(2), mean: io.input(4), rstd: io.input(5) };
            let (dx, dgamma, dbeta) = (io.output(0), io.output(1), io.output(2));
            kernel::backward(rows_of(io.input_type(1)), io.input(0), saved, dx, dgamma, dbeta, io.workspace())
        })
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let [dy, x, gamma, weight, mean, rstd] = [0, 1, 2, 3, 4, 5].map(|n| &launch.inputs[n]);
        refuse_f64(self, &x.ty)?;
        let [dx, dgamma, dbeta] = [0, 1, 2].map(|n| &launch.outputs[n]);
        let kernels = Kernels::new(&[x, dy, dx]).layer(gamma).statistics(mean).weights(weight);
        let per_weight = Arg::from(rows_per_weight(x, weight));
        let [parts, sums, _] = device_space(launch.workspace, kernels.shape).map(Arg::Address);
        let ends = [dy.into(), x.into(), weight.into(), mean.into(), rstd.into(), parts];
        kernels.by_stretch(launch, "slopes", &ends, per_weight)?;
        kernels.by_channel(launch, "combine_slopes", &[parts, dgamma.into(), dbeta.into(), sums], &[])?;
        let ends = [dy.into(), x.into(), gamma.into(), weight.into(), mean.into(), rstd.into(), sums, dx.into()];
        kernels.by_stretch(launch, "input_gradient", &ends, per_weight)
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
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[0].clone()])
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => {
            let layer = Layer { gamma: io.input::<T>(1), beta: io.input::<T>(2), eps: T::of(self.eps) };
            kernel::evaluate(rows_of(io.input_type(0)), io.input(0), layer, io.input(3), io.input(4), io.output(0))
        })
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let [x, gamma, beta, mean, var] = [0, 1, 2, 3, 4].map(|n| &launch.inputs[n]);
        refuse_f64(self, &x.ty)?;
        let y = &launch.outputs[0];
        let kernels = Kernels::new(&[x, y]).layer(gamma).running(mean);
        let ends = [x, gamma, beta, mean, var, y].map(Arg::from);
        kernels.by_stretch(launch, "normalize_fixed", &ends, Arg::F32(self.eps as f32))
    }
}

/// Moves running statistics towards a batch's. Inputs: mean, biased variance, weight (B), running mean, running
/// variance; overwrites the last two. `rows_per_sample` rows of the normalized value belong to one sample.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNormRunning {
    pub momentum: f64,
    pub rows_per_sample: usize,
}

impl BatchNormRunning {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let (samples, channels) = (rng.size(2, 9), rng.size(1, 40));
        let constant = |fill: Fill| SampleInput::constant(&[channels], fill);
        let pair = || [constant(Fill::Normal), constant(Fill::Uniform(0.5, 2.0))];
        let weight = SampleInput::constant(&[samples], Fill::Mask);
        let inputs = pair().into_iter().chain([weight]).chain(pair()).collect();
        vec![Sample::plain(BatchNormRunning { momentum: 0.1, rows_per_sample: rng.size(1, 5) }, inputs)]
    }
}

impl Op for BatchNormRunning {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[3].clone(), inputs[4].clone()])
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::must(0, 3), Alias::must(1, 4)]
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => {
            let samples = io.input::<T>(2).iter().filter(|&&w| w != T::ZERO).count();
            let (mean, var) = (io.input::<T>(0), io.input::<T>(1));
            let momentum = T::of(self.momentum);
            kernel::update_running(mean, var, samples * self.rows_per_sample, momentum, io.output(0), io.output(1))
        })
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let [mean, var, weight] = [0, 1, 2].map(|n| &launch.inputs[n]);
        let [running_mean, running_var] = [0, 1].map(|n| &launch.outputs[n]);
        refuse_f64(self, &running_mean.ty)?;
        let kernel = Kernels::new(&[mean]).statistics(mean).weights(weight).running(running_mean).entry("move_running");
        let sizes = [int(weight.ty.elements()), int(mean.ty.elements()), self.rows_per_sample.into()];
        let ends = [mean, var, weight, running_mean, running_var].map(Arg::from);
        let args = [&ends[..], &sizes, &[Arg::F32(self.momentum as f32)]].concat();
        launch.kernel(&kernel, Grid::new(1, 256), &args)
    }
}
