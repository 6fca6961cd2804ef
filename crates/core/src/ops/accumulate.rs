//! `total += part`, in place: gradients over micro-steps, metrics over batches.

use super::cuda::{refuse_f64, source, sweep_with, typed};
use super::*;
use crate::graph::Aliases;
use crate::kernels::cpu::elementwise::combine;
use crate::kernels::cpu::with_float;
use crate::types::{DType, Results};
use smallvec::smallvec;

/// Inputs (part, total); the total comes last, as [`Op::accumulating`] wants it. On a card the part may be of a narrower
/// type than the total.
#[derive(Debug, Clone, PartialEq)]
pub struct Accumulate;

impl Accumulate {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let shape = [rng.size(1, 20), rng.size(1, 20)];
        let sample = |shape: &[usize]| Sample::plain(Accumulate, vec![SampleInput::constant(shape, Fill::Normal); 2]);
        vec![sample(&shape), sample(&[1])]
    }
}

impl Op for Accumulate {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        total(inputs)
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::must(0, 1)]
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        add(io)
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        put(self, launch, None)
    }
}

/// The same for a total in bf16, whose sums are rounded stochastically: many small parts add up to what they are. Inputs
/// (part, total, rng).
#[derive(Debug, Clone, PartialEq)]
pub struct AccumulateStochastic {
    pub rounding: Rounding,
}

impl AccumulateStochastic {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let shape = [rng.size(1, 20), rng.size(1, 20)];
        let op = AccumulateStochastic { rounding: Rounding { site: 7, first: 0 } };
        let words = SampleInput::new(Type::new(DType::I64, &[3]), Fill::Ids(1000));
        let [part, total] = [0, 1].map(|_| SampleInput::constant(&shape, Fill::Normal));
        vec![Sample::plain(op, vec![part, total, words])]
    }
}

impl Op for AccumulateStochastic {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Rounding::check(Some(self.rounding), inputs.get(2..).unwrap_or_default())?;
        total(inputs)
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::must(0, 1)]
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        add(io)
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        put(self, launch, Some(self.rounding))
    }
}

fn total(inputs: &[Type]) -> Result<Results, OpError> {
    let [part, total] = [0, 1].map(|i| inputs[i].dtype);
    let fits = part == total || (part.is_float() && total.is_float() && part.bytes() < total.bytes());
    match inputs[0].shape == inputs[1].shape && fits {
        true => Ok(smallvec![inputs[1].clone()]),
        false => OpError::new(format!("cannot add {} to {}", inputs[0], inputs[1])),
    }
}

fn add(io: &CpuIo<'_>) {
    let [part, total] = [io.input_type(0), io.output_type(0)].map(|ty| ty.dtype);
    // Narrower parts come up in mixed precision only, which is for cards: read as the total's type, they end too early.
    assert_eq!(part, total, "the CPU adds what is of one type");
    with_float!(total, T => combine::<T>(io.output(0), io.input(0), #[inline(always)] |total, part| total + part))
}

fn put(op: &dyn Op, launch: &mut Launch<'_>, rounding: Option<Rounding>) -> Result<(), CudaError> {
    refuse_f64(op, launch)?;
    let (part, total, rng) = (&launch.inputs[0], &launch.outputs[0], launch.inputs.get(2));
    let headers = source!("accumulate", "map", "sweep", "rounding");
    let kernel = typed(headers, "accumulate", &[("P", part), ("T", total)]);
    let (words, rng) = Rounding::in_sweep(rounding, rng);
    sweep_with(launch, Rounding::define(rounding, kernel), &[part, total], words, &[rng])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_no_wider_than_its_total() {
        let types = |part: DType, total: DType| [part, total].map(|dtype| Type::new(dtype, &[3, 2]));
        let taken = |part: DType, total: DType| Accumulate.outputs(&types(part, total)).is_ok();
        for (part, total) in [(DType::F32, DType::F32), (DType::Bf16, DType::F32), (DType::F16, DType::F32)] {
            assert!(taken(part, total), "{} to {}", part.name(), total.name());
        }
        for (part, total) in [(DType::F32, DType::Bf16), (DType::F16, DType::Bf16), (DType::I32, DType::F32)] {
            assert!(!taken(part, total), "{} to {}", part.name(), total.name());
        }
    }
}
