//! One-dimensional convolution, channels last.

use super::*;
use crate::graph::InputGrads;
use crate::kernels::cpu::conv1d::{self as kernel, Conv1dShape};
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Arg, DeviceTensor, Gemm, Kernel, Matrix, Source};
use crate::types::{DType, Results};
use cuda::{define_index, source};
use device::{GEMM_BYTES, Regions, by_columns, by_rows, int, multiply, product, refuse_f64, round_to, run_over};
use smallvec::smallvec;

const SOURCE: Source = source!("conv1d", "map");

/// On a CUDA device windows exist as rows of a matrix; up to this much of them at a time, and one sample at least.
const WINDOW_BYTES: usize = 32 << 20;

/// Taps of vectors that a thread keeps in registers.
const MOST_TAPS: usize = 8;

/// Inputs: x (B, T, C), weight (O, C, K) as PyTorch stores it, bias (O). Output: (B, T', O).
#[derive(Debug, Clone, PartialEq)]
pub struct Conv1d {
    pub stride: usize,
    pub padding: usize,
}

impl Conv1d {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let mut samples = Vec::new();
        for (kernel, stride, padding) in [(3, 1, 1), (5, 1, 2), (3, 2, 0), (1, 1, 0)] {
            let (batch, time, from, to) = (rng.size(1, 3), rng.size(5, 12), rng.size(1, 6), rng.size(1, 6));
            let inputs = vec![
                SampleInput::float(&[batch, time, from], Fill::Normal),
                SampleInput::float(&[to, from, kernel], Fill::Normal),
                SampleInput::float(&[to], Fill::Normal),
            ];
            samples.push(Sample::new(Conv1d { stride, padding }, inputs));
        }
        samples
    }

    fn shape(&self, x: &Type, weight: &Type) -> Conv1dShape {
        Conv1dShape {
            batch: x.shape[0],
            time: x.shape[1],
            channels_in: x.shape[2],
            channels_out: weight.shape[0],
            kernel: weight.shape[2],
            stride: self.stride,
            padding: self.padding,
        }
    }

    /// As one product: every position of the output with every tap.
    fn as_product(s: &Conv1dShape) -> Products {
        Products { count: 1, m: s.batch * s.time_out(), n: s.channels_out, k: s.channels_in * s.kernel }
    }
}

impl Op for Conv1d {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let (x, weight) = (&inputs[0], &inputs[1]);
        let fits = x.rank() == 3 && weight.rank() == 3 && x.shape[2] == weight.shape[1] && self.stride > 0;
        if !fits || inputs[2].shape[..] != weight.shape[..1] {
            return OpError::new(format!("cannot convolve {x} with {weight} and bias {}", inputs[2]));
        }
        let shape = self.shape(x, weight);
        if shape.time_out() == 0 {
            return OpError::new(format!("{x} is shorter than the kernel of {weight}"));
        }
        Ok(smallvec![x.with_shape(&[shape.batch, shape.time_out(), shape.channels_out])])
    }
    fn class(&self) -> Class {
        Class::Convolution
    }
    fn products(&self, inputs: &[Type], _: &[Type]) -> Option<Products> {
        Some(Conv1d::as_product(&self.shape(&inputs[0], &inputs[1])))
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Conv1d::as_product(&self.shape(&inputs[0], &inputs[1])).cost(inputs, outputs)
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        let (shape, dtype) = (self.shape(&inputs[0], &inputs[1]), inputs[0].dtype);
        match target.backend {
            Backend::Cpu => kernel::forward_scratch(shape, target.threads) * dtype.bytes(),
            Backend::Cuda => Windows::new(0, shape, dtype).end as usize,
        }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let shape = self.shape(io.input_type(0), io.input_type(1));
        with_float!(io.output_type(0).dtype, T => {
            let (x, w, b) = (io.input::<T>(0), io.input::<T>(1), io.input::<T>(2));
            // SAFETY: the types were checked and the slots are apart.
            unsafe { kernel::forward(shape, x.as_ptr(), w.as_ptr(), Some(b.as_ptr()), io.output_ptr(0).cast(), io.workspace()) }
        })
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (x, weight, y) = (&launch.inputs[0], &launch.inputs[1], &launch.outputs[0]);
        refuse_f64(self, &x.ty)?;
        let windows = Windows::new(launch.workspace, self.shape(&x.ty, &weight.ty), x.ty.dtype);
        let bias = Some(launch.inputs[2].address);
        windows.groups().try_for_each(|group| {
            windows.unfold(launch, x, group)?;
            let b = by_columns(weight.address, windows.dtype, windows.width());
            let gemm = windows.product(group, windows.matrix(), b, windows.outputs(y, group));
            multiply(launch, Gemm { n: windows.shape.channels_out, k: windows.width(), bias, ..gemm })
        })
    }
}

/// The windows of some samples as the rows of a matrix (samples · time_out, channels_in · kernel) in the workspace, then
/// the sums of a weight gradient.
struct Windows {
    shape: Conv1dShape,
    dtype: DType,
    windows: u64,
    sums: u64,
    gemm: u64,
    end: u64,
    /// Samples at a time.
    group: usize,
}

impl Windows {
    fn new(start: u64, shape: Conv1dShape, dtype: DType) -> Windows {
        let mut regions = Regions::new(start);
        let sample = shape.time_out() * shape.channels_in * shape.kernel * dtype.bytes();
        let group = WINDOW_BYTES.checked_div(sample).unwrap_or(shape.batch).clamp(1, shape.batch.max(1));
        Windows {
            shape,
            dtype,
            windows: regions.take(group * sample),
            sums: regions.take(4 * shape.channels_out * shape.channels_in * shape.kernel),
            gemm: regions.take(GEMM_BYTES),
            end: regions.end(),
            group,
        }
    }

    fn width(&self) -> usize {
        self.shape.channels_in * self.shape.kernel
    }

    /// The first sample of each group, and how many samples it has.
    fn groups(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (batch, group) = (self.shape.batch, self.group);
        (0..batch).step_by(group).map(move |first| (first, group.min(batch - first)))
    }

    fn matrix(&self) -> Matrix {
        by_rows(self.windows, self.dtype, self.width())
    }

    /// The rows of y or dy that belong to a group.
    fn outputs(&self, y: &DeviceTensor, (first, _): (usize, usize)) -> Matrix {
        let row = self.shape.channels_out;
        by_rows(y.address + (first * self.shape.time_out() * row * self.dtype.bytes()) as u64, self.dtype, row)
    }

    /// A product whose rows are the windows of a group.
    fn product(&self, (_, samples): (usize, usize), a: Matrix, b: Matrix, c: Matrix) -> Gemm {
        let (workspace, workspace_bytes) = (self.gemm, GEMM_BYTES);
        Gemm { workspace, workspace_bytes, ..product([samples * self.shape.time_out(), 0, 0], a, b, c) }
    }

    fn unfold(&self, launch: &mut Launch<'_>, x: &DeviceTensor, group: (usize, usize)) -> Result<(), CudaError> {
        self.run(launch, "unfold", [self.of_inputs(x, group), self.windows], group.1 * self.shape.time_out())
    }

    fn fold(&self, launch: &mut Launch<'_>, dx: &DeviceTensor, group: (usize, usize)) -> Result<(), CudaError> {
        self.run(launch, "fold", [self.windows, self.of_inputs(dx, group)], group.1 * self.shape.time)
    }

    fn of_inputs(&self, x: &DeviceTensor, (first, _): (usize, usize)) -> u64 {
        x.address + (first * self.shape.time * self.shape.channels_in * self.dtype.bytes()) as u64
    }

    /// A kernel with a thread for every row and vector of channels.
    fn run(&self, launch: &mut Launch<'_>, entry: &'static str, ends: [u64; 2], rows: usize) -> Result<(), CudaError> {
        let (s, width) = (&self.shape, self.vector(&ends));
        let count = rows * s.channels_in / width;
        let sizes = [s.time, s.time_out(), s.channels_in, s.stride, s.padding].map(int);
        let args = [&ends.map(Arg::Address)[..], &[count.into()], &sizes].concat();
        let kernel = define_index(Kernel::new(SOURCE, entry), count).dtype("T", self.dtype);
        run_over(launch, &kernel.define("WIDTH", width).define("TAPS", s.kernel), count, &args)
    }

    /// Channels that lie in 16 bytes, where all of them do and a thread can hold them with their taps; else one.
    fn vector(&self, ends: &[u64]) -> usize {
        let (s, width) = (&self.shape, 16 / self.dtype.bytes());
        let aligned = s.channels_in.is_multiple_of(width) && ends.iter().all(|end| end.is_multiple_of(16));
        if aligned && s.kernel <= MOST_TAPS { width } else { 1 }
    }
}

impl Differentiable for Conv1d {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let (x, w, dy) = (cx.input(0), cx.input(1), cx.grad0());
        let x_shape = cx.graph.shape(x).to_vec();
        let w_shape = cx.graph.shape(w).to_vec();
        let dx = match cx.wants(0) {
            true => Some(cx.add1(Conv1dInputGrad { conv: self.clone(), shape: x_shape }, &[dy, w])?),
            false => None,
        };
        let dw = match cx.wants(1) {
            true => Some(cx.add1(Conv1dWeightGrad { conv: self.clone(), shape: w_shape }, &[x, dy])?),
            false => None,
        };
        let out = [cx.graph.shape(dy)[2]];
        let db = if cx.wants(2) { Some(reduce::sum_to(cx, dy, &out)?) } else { None };
        Ok(smallvec![dx, dw, db])
    }
}

/// Inputs: dy, weight. `shape` is that of x.
#[derive(Debug, Clone, PartialEq)]
struct Conv1dInputGrad {
    conv: Conv1d,
    shape: Vec<usize>,
}

impl Op for Conv1dInputGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[0].with_shape(&self.shape)])
    }
    fn class(&self) -> Class {
        Class::ConvolutionGrad
    }
    fn products(&self, inputs: &[Type], outputs: &[Type]) -> Option<Products> {
        let Products { count, m, n, k } = Conv1d::as_product(&self.conv.shape(&outputs[0], &inputs[1]));
        Some(Products { count, m, n: k, k: n })
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Conv1d::as_product(&self.conv.shape(&outputs[0], &inputs[1])).cost(inputs, outputs)
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        let (shape, dtype) = (self.conv.shape(&inputs[0].with_shape(&self.shape), &inputs[1]), inputs[0].dtype);
        match target.backend {
            Backend::Cpu => kernel::backward_input_scratch(shape, target.threads) * dtype.bytes(),
            Backend::Cuda => Windows::new(0, shape, dtype).end as usize,
        }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let shape = self.conv.shape(io.output_type(0), io.input_type(1));
        with_float!(io.output_type(0).dtype, T => {
            let (dy, w) = (io.input::<T>(0), io.input::<T>(1));
            // SAFETY: the types were checked and the slots are apart.
            unsafe { kernel::backward_input(shape, dy.as_ptr(), w.as_ptr(), io.output_ptr(0).cast(), io.workspace()) }
        })
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (dy, weight, dx) = (&launch.inputs[0], &launch.inputs[1], &launch.outputs[0]);
        refuse_f64(self, &dy.ty)?;
        let windows = Windows::new(launch.workspace, self.conv.shape(&dx.ty, &weight.ty), dy.ty.dtype);
        windows.groups().try_for_each(|group| {
            let b = by_rows(weight.address, windows.dtype, windows.width());
            let gemm = windows.product(group, windows.outputs(dy, group), b, windows.matrix());
            multiply(launch, Gemm { n: windows.width(), k: windows.shape.channels_out, ..gemm })?;
            windows.fold(launch, dx, group)
        })
    }
}

/// Inputs: x, dy. `shape` is that of the weight.
#[derive(Debug, Clone, PartialEq)]
struct Conv1dWeightGrad {
    conv: Conv1d,
    shape: Vec<usize>,
}

impl Op for Conv1dWeightGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[0].with_shape(&self.shape)])
    }
    fn class(&self) -> Class {
        Class::ConvolutionGrad
    }
    fn products(&self, inputs: &[Type], outputs: &[Type]) -> Option<Products> {
        let Products { count, m, n, k } = Conv1d::as_product(&self.conv.shape(&inputs[0], &outputs[0]));
        Some(Products { count, m: n, n: k, k: m })
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Conv1d::as_product(&self.conv.shape(&inputs[0], &outputs[0])).cost(inputs, outputs)
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        let (shape, dtype) = (self.conv.shape(&inputs[0], &inputs[0].with_shape(&self.shape)), inputs[0].dtype);
        match target.backend {
            Backend::Cpu => kernel::backward_weight_scratch(shape, target.threads) * dtype.bytes(),
            Backend::Cuda => Windows::new(0, shape, dtype).end as usize,
        }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let shape = self.conv.shape(io.input_type(0), io.output_type(0));
        with_float!(io.output_type(0).dtype, T => {
            let (x, dy) = (io.input::<T>(0), io.input::<T>(1));
            // SAFETY: the types were checked and the slots are apart.
            unsafe { kernel::backward_weight(shape, x.as_ptr(), dy.as_ptr(), io.output_ptr(0).cast(), io.workspace()) }
        })
    }
    /// What several groups give is summed in f32.
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (x, dy, dw) = (&launch.inputs[0], &launch.inputs[1], &launch.outputs[0]);
        refuse_f64(self, &x.ty)?;
        let windows = Windows::new(launch.workspace, self.conv.shape(&x.ty, &dw.ty), x.ty.dtype);
        let (shape, width) = (&windows.shape, windows.width());
        let rounded = shape.batch > windows.group && windows.dtype != DType::F32;
        let (to, dtype) = if rounded { (windows.sums, DType::F32) } else { (dw.address, windows.dtype) };
        for group in windows.groups() {
            windows.unfold(launch, x, group)?;
            let a = Matrix { row_stride: 1, column_stride: shape.channels_out, ..windows.outputs(dy, group) };
            let gemm = windows.product(group, a, windows.matrix(), by_rows(to, dtype, width));
            let beta = if group.0 == 0 { 0.0 } else { 1.0 };
            multiply(launch, Gemm { m: shape.channels_out, n: width, k: gemm.m, beta, ..gemm })?;
        }
        if rounded { round_to(launch, windows.dtype, to, dw.address, dw.ty.elements()) } else { Ok(()) }
    }
}
