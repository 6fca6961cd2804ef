//! The gradient of a feed-forward. Nothing but its inputs was kept: hidden values are computed again.

use super::*;
use crate::types::Results;

/// Inputs: x, up, its bias, down, dy. Outputs: the gradients of the first four.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FeedForwardGrad {
    pub activation: Activation,
}

impl Op for FeedForwardGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        check(inputs)?;
        match inputs.len() == 5 && inputs[4].shape == inputs[0].shape {
            true => Ok(inputs[..4].iter().map(Type::contiguous).collect()),
            false => OpError::new("the gradient of a feed-forward's output has its input's shape"),
        }
    }
    fn class(&self) -> Class {
        Class::FeedForwardGrad
    }
    /// Hidden values and their gradients, then the gradients of x and both weights: five products, and on cards, where
    /// x and the weights have kernels of their own, the first two twice.
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        let each = 2.0 * (self.activation.flops() + activation::SLOPE_FLOPS);
        let flops = Sizes::new(&inputs[0], &inputs[1]).flops(7.0, each);
        Cost { flops, bytes: Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        let sizes = Sizes::new(&inputs[0], &inputs[1]);
        match target.backend {
            Backend::Cpu => cpu::backward_scratch(&sizes, target.threads) * inputs[0].dtype.bytes(),
            Backend::Cuda => cuda::backward_workspace(&sizes, inputs[0].dtype),
        }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => cpu::backward::<T>(self.activation, io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        cuda::backward(self, launch)
    }
}
