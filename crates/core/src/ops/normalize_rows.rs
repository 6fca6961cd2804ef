//! Rows scaled to length 1: embeddings that are compared by their angle.

use super::cuda::{Group, put, refuse_f64, source, typed, width};
use super::norm::{norm_rows, refuse_statistics_gradient};
use super::*;
use crate::graph::{Aliases, InputGrads};
use crate::kernels::cpu::Element;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::{SharedMut, parallel};
use crate::kernels::cpu::rows::{self, InPlace};
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Arg, DeviceTensor};
use crate::types::Results;
use plimsoll_base::simd::simd;
use smallvec::smallvec;

/// Input: x (…, D). Outputs: y = x / ‖x‖, and 1 / ‖x‖ per row, which takes no gradient itself. A row of zeros has no
/// direction: it stays zero and passes no gradient.
#[derive(Debug, Clone, PartialEq)]
pub struct NormalizeRows;

impl NormalizeRows {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        // A row near zero bends within the step of a finite difference: narrow ones stay away from it.
        let sample = |shape: &[usize], fill| Sample::new(NormalizeRows, vec![SampleInput::float(shape, fill)]);
        vec![
            sample(&[3, 8], Fill::Normal).first_output(),
            sample(&[rng.size(1, 3), rng.size(1, 70), rng.size(8, 80)], Fill::Normal).first_output(),
            sample(&[rng.size(1, 5), rng.size(1, 7)], Fill::Uniform(0.5, 2.0)).first_output(),
        ]
    }
}

impl Op for NormalizeRows {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let [x] = inputs else { return OpError::new("needs one input") };
        Ok(smallvec![x.contiguous(), norm_rows(x, &[])?])
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::may(0, 0)]
    }
    fn class(&self) -> Class {
        Class::Norm
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, 3.0)
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => forward::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        launch_rows(launch, "normalize_rows", &[&launch.inputs[0], &launch.outputs[0]])
    }
}

impl Differentiable for NormalizeRows {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        refuse_statistics_gradient(cx, 1..2)?;
        let inputs = [cx.grad0(), cx.output(0), cx.output(1)];
        Ok(smallvec![Some(cx.add1(NormalizeRowsGrad, &inputs)?)])
    }
}

/// Inputs: dy, y, 1 / ‖x‖. Output: dx = (dy − y · (y · dy)) / ‖x‖.
#[derive(Debug, Clone, PartialEq)]
struct NormalizeRowsGrad;

impl Op for NormalizeRowsGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[1].contiguous()])
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::may(0, 0)]
    }
    fn class(&self) -> Class {
        Class::NormGrad
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, 5.0)
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => backward::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        launch_rows(launch, "normalize_rows_grad", &[&launch.inputs[0], &launch.inputs[1], &launch.outputs[0]])
    }
}

/// A kernel over the rows of `tensors`; its arguments are the inputs, the outputs, rows and their width.
fn launch_rows(launch: &mut Launch<'_>, entry: &'static str, tensors: &[&DeviceTensor]) -> Result<(), CudaError> {
    let (rows, row) = extents(&tensors[0].ty);
    let group = Group::new(row, width(tensors, row));
    let kernel = group.define(typed(source!("normalize_rows", "map", "rows"), entry, &[("T", tensors[0])]));
    let all = launch.inputs.iter().chain(launch.outputs).map(Arg::from);
    let args: Vec<Arg> = all.chain([rows.into(), row.into()]).collect();
    put(launch, &kernel, group.grid(rows), rows, &args)
}

fn forward<T: Float + Element>(io: &CpuIo<'_>) {
    let (count, width) = extents(io.output_type(0));
    let (y, step) = (InPlace::<T>::new(io, 0, 0), rows::rows_per_task(width));
    let inverses = SharedMut::new(io.output_ptr(1).cast::<T>());
    parallel(count.div_ceil(step), |task| {
        simd(
            #[inline(always)]
            || {
                for row in task * step..((task + 1) * step).min(count) {
                    // SAFETY: a row belongs to one task.
                    unsafe { inverses.slice(row, 1)[0] = normalize(y.load(row * width, width)) };
                }
            },
        )
    });
}

#[inline(always)]
fn normalize<T: Float>(row: &mut [T]) -> T {
    let square = rows::sum(
        row,
        #[inline(always)]
        |x| x * x,
    );
    let inverse = if square == T::ZERO { T::ZERO } else { T::ONE / square.sqrt() };
    for x in row {
        *x *= inverse;
    }
    inverse
}

fn backward<T: Float + Element>(io: &CpuIo<'_>) {
    let (y, inverses) = (io.input::<T>(1), io.input::<T>(2));
    let (count, width) = extents(io.output_type(0));
    let (dx, step) = (InPlace::<T>::new(io, 0, 0), rows::rows_per_task(width));
    parallel(count.div_ceil(step), |task| {
        simd(
            #[inline(always)]
            || {
                for row in task * step..((task + 1) * step).min(count) {
                    // SAFETY: a row belongs to one task.
                    let dx = unsafe { dx.load(row * width, width) };
                    backward_row(dx, &y[row * width..][..width], inverses[row]);
                }
            },
        )
    });
}

/// `dx` starts as dy.
#[inline(always)]
fn backward_row<T: Float>(dx: &mut [T], y: &[T], inverse: T) {
    let along = rows::sum2(
        dx,
        y,
        #[inline(always)]
        |dy, y| dy * y,
    );
    for (dx, y) in dx.iter_mut().zip(y) {
        *dx = inverse * (*dx - *y * along);
    }
}

/// Rows and their width.
fn extents(ty: &Type) -> (usize, usize) {
    let width = ty.shape.last().copied().unwrap_or(1).max(1);
    (ty.elements() / width, width)
}

#[cfg(test)]
mod tests {
    use super::testing::{f32s, run};
    use super::*;

    #[test]
    fn a_row_of_zeros_stays_zero_and_passes_no_gradient() {
        let y = run(&NormalizeRows, &[f32s(&[2, 2], &[3.0, 4.0, 0.0, 0.0])]);
        assert_eq!(y, [0.6, 0.8, 0.0, 0.0]);
        let dx = run(&NormalizeRowsGrad, &[f32s(&[1, 2], &[5.0, 7.0]), f32s(&[1, 2], &[0.0; 2]), f32s(&[1], &[0.0])]);
        assert_eq!(dx, [0.0, 0.0]);
    }
}
