//! The recurrence of one LSTM layer, one or both directions; the input projection is a product before it.

use super::*;
use crate::exec::cpu::kernels::lstm::{self as kernel, Backward, Forward, Shape};
use crate::with_float;

/// Inputs: gates (B, T, dirs, 4H) as x·W_ihᵀ + b_ih, w_hh (dirs, 4H, H), b_hh (dirs, 4H).
/// Outputs: h (B, T, dirs·H), activated gates (B, T, dirs, 4H), cells (B, T, dirs, H).
#[derive(Debug, Clone, PartialEq)]
pub struct Lstm;

impl Lstm {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let sample = |rng: &mut SampleRng, dirs: usize| {
            let (batch, time, hidden) = (rng.size(1, 4), rng.size(1, 7), rng.size(1, 9));
            let inputs = vec![
                SampleInput::float(&[batch, time, dirs, 4 * hidden], Fill::Normal),
                SampleInput::float(&[dirs, 4 * hidden, hidden], Fill::Normal),
                SampleInput::float(&[dirs, 4 * hidden], Fill::Normal),
            ];
            Sample::new(Lstm, inputs).first_output()
        };
        vec![sample(rng, 1), sample(rng, 2), sample(rng, 2)]
    }

    fn shape(gates: &Type) -> Shape {
        let d = &gates.shape;
        Shape { batch: d[0], time: d[1], dirs: d[2], hidden: d[3] / 4 }
    }
}

impl Op for Lstm {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        let [batch, time, dirs, all] = inputs[0].shape[..] else {
            return OpError::new(format!("{} is not (batch, time, directions, gates)", inputs[0]));
        };
        let h = all / 4;
        if all % 4 != 0 || inputs[1].shape[..] != [dirs, all, h] || inputs[2].shape[..] != [dirs, all] {
            return OpError::new(format!("{}, {} and {} do not belong together", inputs[0], inputs[1], inputs[2]));
        }
        let ty = |shape: &[usize]| inputs[0].with_shape(shape);
        Ok(vec![ty(&[batch, time, dirs * h]), inputs[0].clone(), ty(&[batch, time, dirs, h])])
    }
    fn aliases(&self, _: &[Type]) -> Vec<Alias> {
        vec![Alias::may(1, 0)]
    }
    fn class(&self) -> Class {
        Class::Recurrent
    }
    fn products(&self, inputs: &[Type], _: &[Type]) -> Option<Products> {
        let s = Lstm::shape(&inputs[0]);
        Some(Products { count: s.time * s.dirs, m: s.batch, n: 4 * s.hidden, k: s.hidden })
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        let s = Lstm::shape(&inputs[0]);
        let rows = (s.batch * s.time * s.dirs) as f64;
        Cost { flops: rows * s.hidden as f64 * (8.0 * s.hidden as f64 + 80.0), bytes: Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        kernel::forward_scratch(Lstm::shape(&inputs[0]), target.threads) * inputs[0].dtype.bytes()
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => {
            let operands = Forward::<T> {
                gates_x: io.input_ptr(0).cast(),
                w_hh: io.input_ptr(1).cast(),
                b_hh: io.input_ptr(2).cast(),
                h: io.output_ptr(0).cast(),
                gates: io.output_ptr(1).cast(),
                c: io.output_ptr(2).cast(),
            };
            // SAFETY: the types were checked; only the gates may share memory, which the kernel allows.
            unsafe { kernel::forward(Lstm::shape(io.input_type(0)), operands, io.workspace()) }
        })
    }
}

impl Differentiable for Lstm {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<Vec<Option<ValueId>>, GraphError> {
        let inputs = [cx.grad0(), cx.output(1), cx.output(2), cx.output(0), cx.input(1)];
        let grads = cx.add(LstmGrad, &inputs)?;
        let bias_shape = cx.graph.shape(cx.input(2)).to_vec();
        let bias = if cx.wants(2) { Some(reduce::sum_to(cx, grads[0], &bias_shape)?) } else { None };
        Ok(vec![Some(grads[0]), Some(grads[1]), bias])
    }
}

/// Inputs: dh, activated gates, cells, h, w_hh. Outputs: gradient of the gates' sums, gradient of w_hh.
#[derive(Debug, Clone, PartialEq)]
struct LstmGrad;

impl Op for LstmGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        Ok(vec![inputs[1].clone(), inputs[4].clone()])
    }
    fn aliases(&self, _: &[Type]) -> Vec<Alias> {
        vec![Alias::may(0, 1)]
    }
    fn class(&self) -> Class {
        Class::RecurrentGrad
    }
    /// The states' gradients and the weights' are a product each, of the same sizes.
    fn products(&self, inputs: &[Type], _: &[Type]) -> Option<Products> {
        let s = Lstm::shape(&inputs[1]);
        Some(Products { count: 2 * s.time * s.dirs, m: s.batch, n: s.hidden, k: 4 * s.hidden })
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        let s = Lstm::shape(&inputs[1]);
        let rows = (s.batch * s.time * s.dirs) as f64;
        Cost { flops: rows * s.hidden as f64 * (16.0 * s.hidden as f64 + 60.0), bytes: Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        kernel::backward_scratch(Lstm::shape(&inputs[1]), target.threads) * inputs[0].dtype.bytes()
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => {
            let operands = Backward::<T> {
                dh: io.input_ptr(0).cast(),
                gates: io.input_ptr(1).cast(),
                c: io.input_ptr(2).cast(),
                h: io.input_ptr(3).cast(),
                w_hh: io.input_ptr(4).cast(),
                dgates: io.output_ptr(0).cast(),
                dw_hh: io.output_ptr(1).cast(),
            };
            // SAFETY: the types were checked; only the gates may share memory, which the kernel allows.
            unsafe { kernel::backward(Lstm::shape(io.input_type(1)), operands, io.workspace()) }
        })
    }
}
