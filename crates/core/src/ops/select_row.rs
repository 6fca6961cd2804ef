//! One position of every sequence, chosen at run time: the hidden state that generation continues from.

use super::cuda::{put, refuse_f64, source, typed, width};
use super::*;
use crate::kernels::cpu::Element;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::parallel_chunks;
use crate::kernels::cpu::rows;
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Arg, Grid};
use crate::types::{DType, Results};
use smallvec::smallvec;

/// Inputs: x (B, T, D), position i64[1]. Output: x[:, position] (B, D), or NaN if there is no such position.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectRow;

impl SelectRow {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let shape = [rng.size(1, 4), rng.size(1, 9), rng.size(1, 40)];
        let position = SampleInput::new(Type::new(DType::I64, &[1]), Fill::Ids(shape[1]));
        vec![Sample::plain(SelectRow, vec![SampleInput::constant(&shape, Fill::Normal), position])]
    }
}

impl Op for SelectRow {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        match inputs {
            [x, position] if x.rank() == 3 && position.dtype == DType::I64 && position.shape[..] == [1] => {
                Ok(smallvec![x.with_shape(&[x.shape[0], x.shape[2]])])
            }
            _ => OpError::new(format!("needs x (B, T, D) and a position i64[1], not {inputs:?}")),
        }
    }
    fn class(&self) -> Class {
        Class::Gather
    }
    fn cost(&self, _: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: 0.0, bytes: Cost::traffic(outputs, outputs) }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => select::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let (x, position, y) = (&launch.inputs[0], &launch.inputs[1], &launch.outputs[0]);
        let (n, steps, row) = (y.ty.elements(), x.ty.shape[1], x.ty.shape[2]);
        let width = width(&[x, y], row);
        let kernel = typed(source!("select_row", "map"), "select_row", &[("T", x)]).define("WIDTH", width);
        let args: [Arg; 6] = [x.into(), position.into(), y.into(), n.into(), steps.into(), row.into()];
        put(launch, &kernel, Grid::over(n, width), n, &args)
    }
}

fn select<T: Float + Element>(io: &CpuIo<'_>) {
    let (x, position) = (io.input::<T>(0), io.input::<i64>(1)[0]);
    let [_, steps, width] = io.input_type(0).shape[..] else { return };
    let position = usize::try_from(position).ok().filter(|&at| at < steps);
    let (width, step) = (width.max(1), rows::rows_per_task(width));
    parallel_chunks(io.output::<T>(0), step * width, |task, piece| {
        for (row, to) in piece.chunks_exact_mut(width).enumerate() {
            match position {
                Some(at) => to.copy_from_slice(&x[((task * step + row) * steps + at) * width..][..width]),
                None => to.fill(T::of(f64::NAN)),
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::testing::{f32s, i64s, run};
    use super::*;

    #[test]
    fn picks_one_position_of_each_sequence() {
        let x = || f32s(&[2, 3, 1], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(run(&SelectRow, &[x(), i64s(&[1], &[1])]), [1.0, 4.0]);
        for outside in [-1, 3, i64::MAX] {
            assert!(run(&SelectRow, &[x(), i64s(&[1], &[outside])]).iter().all(|y| y.is_nan()));
        }
    }
}
