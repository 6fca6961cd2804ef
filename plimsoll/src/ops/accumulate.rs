//! `total += part`, in place: gradients over micro-steps, metrics over batches.

use super::cuda::{refuse_f64, source, sweep, typed};
use super::*;
use crate::exec::cpu::elementwise::combine;
use crate::exec::cuda::Arg;
use crate::graph::DType;
use crate::with_float;

/// Inputs (part, total); the total comes last, as [`Op::accumulating`] wants it. On a card the part may be of a narrower
/// type than the total.
#[derive(Debug, Clone, PartialEq)]
pub struct Accumulate;

impl Op for Accumulate {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        total(inputs)
    }
    fn aliases(&self, _: &[Type]) -> Vec<Alias> {
        vec![Alias::must(0, 1)]
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        add(io)
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        put(self, launch, None)
    }
}

/// The same for a total in bf16, whose sums are rounded by chance: many small parts add up to what they are. Inputs
/// (part, total, rng).
#[derive(Debug, Clone, PartialEq)]
pub struct AccumulateByChance {
    pub rounding: Rounding,
}

impl AccumulateByChance {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let shape = [rng.size(1, 20), rng.size(1, 20)];
        let op = AccumulateByChance { rounding: Rounding { site: 7, first: 0 } };
        let words = SampleInput::new(Type::new(DType::I64, &[3]), Fill::Ids(1000));
        let [part, total] = [0, 1].map(|_| SampleInput::constant(&shape, Fill::Normal));
        vec![Sample::plain(op, vec![part, total, words])]
    }
}

impl Op for AccumulateByChance {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        Rounding::check(Some(self.rounding), inputs.get(2..).unwrap_or_default())?;
        total(inputs)
    }
    fn aliases(&self, _: &[Type]) -> Vec<Alias> {
        vec![Alias::must(0, 1)]
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        add(io)
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        put(self, launch, Some(self.rounding))
    }
}

fn total(inputs: &[Type]) -> Result<Vec<Type>, OpError> {
    let floats = inputs[0].dtype == inputs[1].dtype || inputs[..2].iter().all(|t| t.dtype.is_float());
    match inputs[0].shape == inputs[1].shape && floats {
        true => Ok(vec![inputs[1].clone()]),
        false => OpError::new(format!("cannot add {} to {}", inputs[0], inputs[1])),
    }
}

fn add(io: &CpuIo<'_>) {
    with_float!(io.output_type(0).dtype, T => combine::<T>(io.output(0), io.input(0), #[inline(always)] |total, part| total + part))
}

fn put(op: &dyn Op, launch: &mut Launch<'_>, rounding: Option<Rounding>) -> Result<(), CudaError> {
    refuse_f64(op, launch)?;
    let (part, total, rng) = (&launch.inputs[0], &launch.outputs[0], launch.inputs.get(2));
    let headers = source!("accumulate", "map", "sweep", "rounding");
    let kernel = typed(headers, "accumulate", &[("P", part), ("T", total)]);
    let more: [Arg; 3] = Rounding::args(rounding, rng);
    sweep(launch, Rounding::define(rounding, kernel), &[part, total], &more)
}
