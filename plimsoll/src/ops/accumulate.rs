//! `total += part`, in place: gradients over micro-steps, metrics over batches.

use super::cuda::{refuse_f64, source, sweep, typed};
use super::*;
use crate::exec::cpu::elementwise::combine;
use crate::with_float;

/// Inputs (part, total); the total comes last, as [`Op::accumulating`] wants it. On a card the part may be of a narrower
/// type than the total.
#[derive(Debug, Clone, PartialEq)]
pub struct Accumulate;

impl Op for Accumulate {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        let floats = inputs[0].dtype == inputs[1].dtype || inputs.iter().all(|t| t.dtype.is_float());
        match inputs[0].shape == inputs[1].shape && floats {
            true => Ok(vec![inputs[1].clone()]),
            false => OpError::new(format!("cannot add {} to {}", inputs[0], inputs[1])),
        }
    }
    fn aliases(&self, _: &[Type]) -> Vec<Alias> {
        vec![Alias::must(0, 1)]
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => combine::<T>(io.output(0), io.input(0), #[inline(always)] |total, part| total + part))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let (part, total) = (&launch.inputs[0], &launch.outputs[0]);
        let kernel = typed(source!("accumulate", "map", "sweep"), "accumulate", &[("P", part), ("T", total)]);
        sweep(launch, kernel, &[part, total], &[])
    }
}
