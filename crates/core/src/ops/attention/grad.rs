//! The gradient of attention.

use super::operands::rows;
use super::*;
use crate::graph::InputGrads;
use crate::kernels::cpu::attention::{Targets, View};
use crate::types::Results;
use smallvec::smallvec;
use std::ptr;

impl Differentiable for Attention {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        if self.offset {
            return Err(GraphError::Broken("attention at a position that is known at run time has no gradient".into()));
        }
        let mut inputs = cx.inputs();
        let mut grads = smallvec![None; inputs.len()];
        inputs.extend([cx.output(0), cx.output(1), cx.grad0()]);
        let found = cx.add(AttentionGrad(self.clone()), &inputs)?;
        grads.iter_mut().zip(found).for_each(|(grad, found)| *grad = Some(found));
        Ok(grads)
    }
}

/// Inputs: those of the forward op, then out, lse and dout. Outputs: the gradients of queries, keys and values, packed
/// alike, then of the bias's tables.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AttentionGrad(pub Attention);

impl Op for AttentionGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(inputs[..self.0.mask()].iter().map(Type::contiguous).collect())
    }
    fn class(&self) -> Class {
        if self.0.is_disentangled() { Class::DisentangledGrad } else { Class::AttentionGrad }
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        // Five products instead of two; scores come twice, and what is packed is packed for three gradients.
        let [products, others] = self.0.flops(inputs);
        Cost { flops: 2.5 * products + 6.0 * others, bytes: Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        match target.backend {
            Backend::Cpu => self.0.scratch_bytes(inputs, target, kernel::backward_scratch),
            Backend::Cuda => self.0.cuda_workspace(inputs, true),
        }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => self.backward::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        self.cuda_backward(launch)
    }
}

impl AttentionGrad {
    fn backward<T: Float + Element>(&self, io: &CpuIo<'_>) {
        let op = &self.0;
        let Operands { shape, q, k, v, options } = op.operands::<T>(io);
        let out = op.inputs();
        let view = |i: usize| View { ptr: io.input_ptr(i).cast::<T>(), strides: rows(io.input_type(i)) };
        let lse = io.input::<T>(out + 1).as_ptr();
        // SAFETY: the views cover the tensors, whose slots are apart; parts of one tensor interleave without overlap.
        unsafe {
            let (out, dout, to) = (view(out), view(out + 2), self.targets(io));
            kernel::backward(shape, q, k, v, out, lse, dout, options, to, io.workspace())
        }
    }

    fn targets<T: Float + Element>(&self, io: &CpuIo<'_>) -> Targets<T> {
        let packed = self.0.packing.inputs();
        let output = |i: usize| (io.output_type(i), io.output_ptr(i).cast::<T>().cast_const());
        let views = self.0.packing.views([output(0), output(packed - 1)]);
        let [q, k, v] = views.map(|view| ViewMut { ptr: view.ptr.cast_mut(), strides: view.strides });
        let table = |n: usize| match n < self.0.bias.tables() {
            true => io.output::<T>(packed + n).as_mut_ptr(),
            false => ptr::null_mut(),
        };
        Targets { q, k, v, tables: [table(0), table(1)] }
    }
}
