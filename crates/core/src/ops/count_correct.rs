//! How many rows of logits have their largest value at the target.

use super::cuda::{mismatch, put, refuse_f64, source, stream_threads, stream_width, typed};
use super::*;
use crate::kernels::cpu::Element;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::{SharedMut, parallel};
use crate::kernels::cpu::rows;
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Arg, Grid};
use crate::types::{DType, Results};
use plimsoll_base::simd::simd;
use smallvec::smallvec;

/// Inputs: logits (M, V), targets i32 (M), weights (M). Output: Σ weight · [argmax = target]. The first of equal
/// logits wins; a row with a NaN or a target outside 0..V is not correct.
#[derive(Debug, Clone, PartialEq)]
pub struct CountCorrect;

impl CountCorrect {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let (count, classes) = (rng.size(1, 300), rng.size(2, 5));
        let inputs = vec![
            SampleInput::constant(&[count, classes], Fill::Normal),
            SampleInput::new(Type::new(DType::I32, &[count]), Fill::Ids(classes)),
            SampleInput::constant(&[count], Fill::Mask),
        ];
        vec![Sample::plain(CountCorrect, inputs)]
    }
}

impl Op for CountCorrect {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let [logits, targets, weights] = inputs else { return OpError::new("needs logits, targets and weights") };
        let fits = logits.rank() == 2 && [targets, weights].iter().all(|t| t.shape[..] == logits.shape[..1]);
        match fits && targets.dtype == DType::I32 && weights.dtype == logits.dtype.wide() {
            true => Ok(smallvec![logits.wide_shape(&[1])]),
            false => OpError::new(format!("{logits}, {targets} and {weights} do not belong together")),
        }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        match target.backend {
            Backend::Cpu => 8 * rows::stretches(inputs[0].shape[0]),
            Backend::Cuda => size_of::<f32>() * inputs[0].shape[0],
        }
    }
    fn class(&self) -> Class {
        Class::Loss
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: inputs[0].elements() as f64, bytes: Cost::traffic(inputs, outputs) }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => count::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let ([logits, targets, weights], [total]) = (launch.inputs, launch.outputs) else {
            return Err(mismatch(self, launch, "logits, targets and weights for a total"));
        };
        let (rows, classes) = (logits.ty.shape[0], logits.ty.shape[1]);
        let kernel = typed(source!("count_correct", "map", "long_rows"), "correct", &[("T", logits), ("W", weights)]);
        let width = stream_width(&[logits]);
        let threads = stream_threads(classes, width);
        let counted = launch.workspace;
        let args: [Arg; 5] = [logits.into(), targets.into(), weights.into(), Arg::Address(counted), classes.into()];
        put(launch, &kernel.define("WIDTH", width), Grid::new(rows, threads), rows, &args)?;
        reduce::add_parts(launch, counted, rows, &[total])
    }
}

fn count<T: Float + Element>(io: &CpuIo<'_>) {
    let (logits, targets, weights) = (io.input::<T>(0), io.input::<i32>(1), io.input::<T>(2));
    let (count, classes) = (targets.len(), io.input_type(0).shape[1]);
    let partials = &mut io.workspace::<f64>()[..rows::stretches(count)];
    let slots = SharedMut::new(partials.as_mut_ptr());
    parallel(rows::stretches(count), |index| {
        let weight = |row: usize| {
            let logits = &logits[row * classes..][..classes];
            let correct = simd(
                #[inline(always)]
                || is_correct(logits, targets[row]),
            );
            if correct { weights[row].to_f64() } else { 0.0 }
        };
        // SAFETY: each task writes its own slot.
        unsafe { slots.slice(index, 1)[0] = rows::stretch(count, index).map(weight).sum() };
    });
    io.output::<T>(0)[0] = T::of(partials.iter().sum());
}

/// Compares all logits with the target's, without looking for the largest; comparisons with NaN are false.
#[inline(always)]
fn is_correct<T: Float>(logits: &[T], target: i32) -> bool {
    let Some((target, &best)) = usize::try_from(target).ok().and_then(|t| Some((t, logits.get(t)?))) else {
        return false;
    };
    let beaten_before = logits[..target].iter().fold(true, |all, &x| all & (x < best));
    logits[target..].iter().fold(beaten_before, |all, &x| all & (x <= best))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equal_logits_wins_and_nan_never_does() {
        let nan = f32::NAN;
        assert!(is_correct(&[1.0, 2.0, 2.0], 1));
        assert!(!is_correct(&[1.0, 2.0, 2.0], 2));
        assert!(!is_correct(&[1.0, 2.0, nan], 1));
        assert!(!is_correct(&[nan, nan], 0));
        assert!(!is_correct(&[1.0], 1));
        assert!(!is_correct(&[1.0], -1));
    }
}
