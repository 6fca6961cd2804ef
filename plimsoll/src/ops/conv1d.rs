//! One-dimensional convolution, channels last.

use super::*;
use crate::exec::cpu::kernels::conv1d::{self as kernel, Shape};
use crate::with_float;

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

    fn shape(&self, x: &Type, weight: &Type) -> Shape {
        Shape {
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
    fn as_product(s: &Shape) -> Products {
        Products { count: 1, m: s.batch * s.time_out(), n: s.channels_out, k: s.channels_in * s.kernel }
    }
}

impl Op for Conv1d {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        let (x, weight) = (&inputs[0], &inputs[1]);
        let fits = x.rank() == 3 && weight.rank() == 3 && x.shape[2] == weight.shape[1] && self.stride > 0;
        if !fits || inputs[2].shape[..] != weight.shape[..1] {
            return OpError::new(format!("cannot convolve {x} with {weight} and bias {}", inputs[2]));
        }
        let shape = self.shape(x, weight);
        if shape.time_out() == 0 {
            return OpError::new(format!("{x} is shorter than the kernel of {weight}"));
        }
        Ok(vec![x.with_shape(&[shape.batch, shape.time_out(), shape.channels_out])])
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
        kernel::forward_scratch(self.shape(&inputs[0], &inputs[1]), target.threads) * inputs[0].dtype.bytes()
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let shape = self.shape(io.input_type(0), io.input_type(1));
        with_float!(io.output_type(0).dtype, T => {
            let (x, w, b) = (io.input::<T>(0), io.input::<T>(1), io.input::<T>(2));
            // SAFETY: the types were checked and the slots are apart.
            unsafe { kernel::forward(shape, x.as_ptr(), w.as_ptr(), Some(b.as_ptr()), io.output_ptr(0).cast(), io.workspace()) }
        })
    }
}

impl Differentiable for Conv1d {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<Vec<Option<ValueId>>, GraphError> {
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
        let out = vec![cx.graph.shape(dy)[2]];
        let db = if cx.wants(2) { Some(reduce::sum_to(cx, dy, &out)?) } else { None };
        Ok(vec![dx, dw, db])
    }
}

/// Inputs: dy, weight. `shape` is that of x.
#[derive(Debug, Clone, PartialEq)]
struct Conv1dInputGrad {
    conv: Conv1d,
    shape: Vec<usize>,
}

impl Op for Conv1dInputGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        Ok(vec![inputs[0].with_shape(&self.shape)])
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
        let shape = self.conv.shape(&inputs[0].with_shape(&self.shape), &inputs[1]);
        kernel::backward_input_scratch(shape, target.threads) * inputs[0].dtype.bytes()
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let shape = self.conv.shape(io.output_type(0), io.input_type(1));
        with_float!(io.output_type(0).dtype, T => {
            let (dy, w) = (io.input::<T>(0), io.input::<T>(1));
            // SAFETY: the types were checked and the slots are apart.
            unsafe { kernel::backward_input(shape, dy.as_ptr(), w.as_ptr(), io.output_ptr(0).cast(), io.workspace()) }
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
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        Ok(vec![inputs[0].with_shape(&self.shape)])
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
        let shape = self.conv.shape(&inputs[0], &inputs[0].with_shape(&self.shape));
        kernel::backward_weight_scratch(shape, target.threads) * inputs[0].dtype.bytes()
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let shape = self.conv.shape(io.input_type(0), io.output_type(0));
        with_float!(io.output_type(0).dtype, T => {
            let (x, dy) = (io.input::<T>(0), io.input::<T>(1));
            // SAFETY: the types were checked and the slots are apart.
            unsafe { kernel::backward_weight(shape, x.as_ptr(), dy.as_ptr(), io.output_ptr(0).cast(), io.workspace()) }
        })
    }
}
