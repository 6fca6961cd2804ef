//! The mean of a sequence's rows that a mask lets through: the embedding of a text from those of its tokens.

use super::cuda::{put, refuse_f64, slices, source, typed, width};
use super::*;
use crate::graph::InputGrads;
use crate::kernels::cpu::Element;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::parallel_chunks;
use crate::kernels::cpu::rows;
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Arg, DeviceTensor, Grid};
use crate::types::{DType, Results};
use plimsoll_base::simd::simd;
use smallvec::smallvec;

/// Inputs: x (B, T, D), mask i32 (B, T), 0 for rows that do not count. Output: (B, D), 0 where no row counts.
#[derive(Debug, Clone, PartialEq)]
pub struct MaskedMean;

impl MaskedMean {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let shape = [rng.size(1, 4), rng.size(1, 9), rng.size(1, 40)];
        let mask = SampleInput::new(Type::new(DType::I32, &shape[..2]), Fill::Mask);
        vec![Sample::new(MaskedMean, vec![SampleInput::float(&shape, Fill::Normal), mask])]
    }
}

impl Op for MaskedMean {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        match inputs {
            [x, mask] if x.rank() == 3 && mask.dtype == DType::I32 && mask.shape[..] == x.shape[..2] => {
                Ok(smallvec![x.with_shape(&[x.shape[0], x.shape[2]])])
            }
            _ => OpError::new(format!("needs x (B, T, D) and a mask i32 (B, T), not {inputs:?}")),
        }
    }
    fn class(&self) -> Class {
        Class::Reduction
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: inputs[0].elements() as f64, bytes: Cost::traffic(inputs, outputs) }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => forward::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let (x, y) = (&launch.inputs[0], &launch.outputs[0]);
        launch_rows(launch, "masked_mean", x.ty.shape[1], x.ty.shape[0], [x, y])
    }
}

impl Differentiable for MaskedMean {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let (mask, dy) = (cx.input(1), cx.grad0());
        Ok(smallvec![Some(cx.add1(MaskedMeanGrad, &[mask, dy])?), None])
    }
}

/// Inputs: mask (B, T), dy (B, D). Output: dy over the number of rows that count, in each of them.
#[derive(Debug, Clone, PartialEq)]
struct MaskedMeanGrad;

impl Op for MaskedMeanGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let [batch, time] = inputs[0].shape[..] else { return OpError::new(format!("{} is no mask", inputs[0])) };
        Ok(smallvec![inputs[1].with_shape(&[batch, time, inputs[1].shape[1]])])
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => backward::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let (dy, dx) = (&launch.inputs[1], &launch.outputs[0]);
        let (samples, time) = (dx.ty.shape[0], dx.ty.shape[1]);
        launch_rows(launch, "masked_mean_grad", time, samples * time, [dy, dx])
    }
}

/// A kernel that makes `rows` rows of the output.
fn launch_rows(
    launch: &mut Launch<'_>,
    entry: &'static str,
    time: usize,
    rows: usize,
    tensors: [&DeviceTensor; 2],
) -> Result<(), CudaError> {
    let row = tensors[1].ty.shape.last().copied().unwrap_or(1);
    let width = width(&tensors, row);
    let (threads, slices) = slices(row, width);
    let kernel = typed(source!("masked_mean", "map"), entry, &[("T", tensors[0])]).define("WIDTH", width);
    let all = launch.inputs.iter().chain(launch.outputs).map(Arg::from);
    let args: Vec<Arg> = all.chain([time.into(), row.into(), slices.into()]).collect();
    put(launch, &kernel, Grid::new(rows * slices, threads), rows * row, &args)
}

/// 1 / the rows that count; 0 where none does.
fn share<T: Float>(mask: &[i32]) -> T {
    match mask.iter().filter(|&&m| m != 0).count() {
        0 => T::ZERO,
        n => T::of(1.0 / n as f64),
    }
}

fn forward<T: Float + Element>(io: &CpuIo<'_>) {
    let (x, mask) = (io.input::<T>(0), io.input::<i32>(1));
    let [_, time, width] = io.input_type(0).shape[..] else { return };
    parallel_chunks(io.output::<T>(0), width.max(1), |sample, mean| {
        let mask = &mask[sample * time..][..time];
        let share = share::<T>(mask);
        mean.fill(T::ZERO);
        simd(
            #[inline(always)]
            || {
                for (at, _) in mask.iter().enumerate().filter(|(_, m)| **m != 0) {
                    rows::add(mean, &x[(sample * time + at) * width..][..width]);
                }
                for x in mean.iter_mut() {
                    *x *= share;
                }
            },
        );
    });
}

fn backward<T: Float + Element>(io: &CpuIo<'_>) {
    let (mask, dy) = (io.input::<i32>(0), io.input::<T>(1));
    let [_, time, width] = io.output_type(0).shape[..] else { return };
    parallel_chunks(io.output::<T>(0), (time * width).max(1), |sample, grad| {
        let mask = &mask[sample * time..][..time];
        let share = share::<T>(mask);
        for (to, &counts) in grad.chunks_exact_mut(width).zip(mask) {
            let factor = if counts != 0 { share } else { T::ZERO };
            to.iter_mut().zip(&dy[sample * width..]).for_each(|(to, &dy)| *to = factor * dy);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::testing::{f32s, i32s, run};
    use super::*;

    #[test]
    fn rows_behind_the_mask_do_not_count_and_an_empty_text_is_zero() {
        let x = f32s(&[2, 3, 1], &[1.0, 4.0, f32::NAN, f32::NAN, f32::NAN, f32::NAN]);
        assert_eq!(run(&MaskedMean, &[x, i32s(&[2, 3], &[1, 1, 0, 0, 0, 0])]), [2.5, 0.0]);
    }
}
