//! A metric: how many rows have their target as the likeliest class.

use super::*;
use crate::exec::cpu::Element;
use crate::exec::cpu::float::Float;
use crate::graph::DType;
use crate::with_float;

/// Inputs: logits (M, V), targets i32 (M), weights (M). Output: Σ weight · [argmax = target]; ties go to the lowest.
#[derive(Debug, Clone, PartialEq)]
pub struct Correct;

impl Op for Correct {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        match inputs[0].rank() == 2 && inputs[1].dtype == DType::I32 && inputs[1].shape[..] == inputs[0].shape[..1] {
            true => Ok(vec![Type::scalar(inputs[0].dtype)]),
            false => OpError::new(format!("{} and {} do not belong together", inputs[0], inputs[1])),
        }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => run::<T>(io))
    }
}

fn run<T: Float + Element>(io: &CpuIo<'_>) {
    let classes = io.input_type(0).shape[1];
    let (logits, targets, weights) = (io.input::<T>(0), io.input::<i32>(1), io.input::<T>(2));
    let mut total = 0.0;
    for (row, (&target, &weight)) in targets.iter().zip(weights).enumerate() {
        let row = &logits[row * classes..][..classes];
        let best = row.iter().enumerate().fold(0, |b, (i, x)| if *x > row[b] { i } else { b });
        if best as i32 == target {
            total += weight.to_f64();
        }
    }
    io.output::<T>(0)[0] = T::of(total);
}
