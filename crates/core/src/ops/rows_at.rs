//! Rows of a resident table from a position that the host sets: how micro-steps read and write their part of what
//! belongs to the whole effective batch.

use super::*;
use crate::graph::Aliases;
use crate::kernels::cpu::Element;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::parallel_chunks;
use crate::kernels::cpu::rows;
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Arg, DeviceTensor, Kernel, Source};
use crate::types::{DType, Results};
use device::{refuse_f64, run_over};
use smallvec::smallvec;
use std::ops::Range;

const SOURCE: Source = Source { name: "rows_at", text: include_str!("rows_at.cu") };

/// Inputs: table (R, D), position i64[1]. Output: rows position..position + len (len, D); NaN where the table has no
/// such row.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadRows {
    pub len: usize,
}

/// Inputs: rows (L, D), a position i64[1] if it is not 0, and last the table (R, D), which is overwritten from that row
/// on. Rows that would fall outside are left out.
#[derive(Debug, Clone, PartialEq)]
pub struct WriteRows;

impl ReadRows {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let (len, more, width) = (rng.size(1, 9), rng.size(1, 9), rng.size(1, 40));
        let table = SampleInput::constant(&[len + more, width], Fill::Normal);
        vec![Sample::plain(ReadRows { len }, vec![table, position(more)])]
    }
}

impl WriteRows {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let (len, more, width) = (rng.size(1, 9), rng.size(1, 9), rng.size(1, 40));
        let float = |rows: usize| SampleInput::constant(&[rows, width], Fill::Normal);
        vec![
            Sample::plain(WriteRows, vec![float(len), position(more), float(len + more)]),
            Sample::plain(WriteRows, vec![float(len), float(len + more)]),
        ]
    }
}

fn position(below: usize) -> SampleInput {
    SampleInput::new(Type::new(DType::I64, &[1]), Fill::Ids(below))
}

fn is_position(ty: &Type) -> bool {
    ty.dtype == DType::I64 && ty.shape[..] == [1]
}

impl Op for ReadRows {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        match inputs {
            [table, position] if table.rank() == 2 && is_position(position) && self.len <= table.shape[0] => {
                Ok(smallvec![table.with_shape(&[self.len, table.shape[1]])])
            }
            _ => OpError::new(format!("cannot read {} rows: needs a table and a position, not {inputs:?}", self.len)),
        }
    }
    fn class(&self) -> Class {
        Class::Gather
    }
    fn cost(&self, _: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: 0.0, bytes: Cost::traffic(outputs, outputs) }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => read::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (table, rows) = (&launch.inputs[0], &launch.outputs[0]);
        refuse_f64(self, &table.ty)?;
        let ends = [Arg::from(table), Arg::from(&launch.inputs[1]), Arg::from(rows)];
        move_rows(launch, "read_rows", ends, rows, table)
    }
}

impl Op for WriteRows {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let (from, table) = match inputs {
            [from, position, table] if is_position(position) => (from, table),
            [from, table] => (from, table),
            _ => return OpError::new(format!("needs rows, a position and a table, not {inputs:?}")),
        };
        let fits = from.rank() == 2
            && table.rank() == 2
            && from.shape[1] == table.shape[1]
            && from.shape[0] <= table.shape[0]
            && from.dtype == table.dtype;
        match fits {
            true => Ok(smallvec![table.clone()]),
            false => OpError::new(format!("cannot write {from} into {table}")),
        }
    }
    fn aliases(&self, inputs: &[Type]) -> Aliases {
        smallvec![Alias::must(0, inputs.len() - 1)]
    }
    fn class(&self) -> Class {
        Class::Move
    }
    fn cost(&self, inputs: &[Type], _: &[Type]) -> Cost {
        Cost { flops: 0.0, bytes: 2.0 * Cost::traffic(&inputs[..1], &[]) }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => write::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (rows, table) = (&launch.inputs[0], &launch.outputs[0]);
        refuse_f64(self, &table.ty)?;
        let position = if launch.inputs.len() == 3 { Arg::from(&launch.inputs[1]) } else { Arg::Address(0) };
        move_rows(launch, "write_rows", [Arg::from(rows), position, Arg::from(table)], rows, table)
    }
}

/// Runs a kernel over rows that belong to a table.
fn move_rows(
    launch: &mut Launch<'_>,
    entry: &'static str,
    ends: [Arg; 3],
    rows: &DeviceTensor,
    table: &DeviceTensor,
) -> Result<(), CudaError> {
    let sizes = [rows.ty.shape[0], table.ty.shape[0], rows.ty.shape[1]].map(Arg::from);
    let kernel = Kernel::new(SOURCE, entry).dtype("T", table.ty.dtype);
    run_over(launch, &kernel, rows.ty.elements(), &[&ends[..], &sizes].concat())
}

fn read<T: Float + Element>(io: &CpuIo<'_>) {
    let (table, width) = (io.input::<T>(0), io.input_type(0).shape[1].max(1));
    let (first, step) = (io.input::<i64>(1)[0], rows::rows_per_task(width));
    parallel_chunks(io.output::<T>(0), step * width, |task, piece| {
        for (row, to) in piece.chunks_exact_mut(width).enumerate() {
            let at = usize::try_from(first.saturating_add((task * step + row) as i64)).ok();
            match at.and_then(|at| table.chunks_exact(width).nth(at)) {
                Some(from) => to.copy_from_slice(from),
                None => to.fill(T::of(f64::NAN)),
            }
        }
    });
}

fn write<T: Float + Element>(io: &CpuIo<'_>) {
    let (from, width) = (io.input::<T>(0), io.input_type(0).shape[1].max(1));
    let first = if io.inputs() == 3 { io.input::<i64>(1)[0] } else { 0 };
    let (table, step) = (io.output::<T>(0), rows::rows_per_task(width));
    let inside = overlap(first, from.len() / width, table.len() / width);
    let skipped = (inside.start as i64).saturating_sub(first);
    parallel_chunks(&mut table[inside.start * width..inside.end * width], step * width, |task, piece| {
        let start = (skipped as usize + task * step) * width;
        piece.copy_from_slice(&from[start..][..piece.len()]);
    });
}

/// The rows of a table that `len` rows from `first` on cover.
fn overlap(first: i64, len: usize, rows: usize) -> Range<usize> {
    let clamp = |at: i64| at.clamp(0, rows as i64) as usize;
    clamp(first)..clamp(first.saturating_add(len as i64))
}

#[cfg(test)]
mod tests {
    use super::testing::{f32s, i64s, run};
    use super::*;

    #[test]
    fn reads_and_writes_rows_at_a_position() {
        let table = || f32s(&[4, 1], &[0.0, 1.0, 2.0, 3.0]);
        let read = |at: i64| run(&ReadRows { len: 2 }, &[table(), i64s(&[1], &[at])]);
        assert_eq!(read(1), [1.0, 2.0]);
        assert!(read(3)[0] == 3.0 && read(3)[1].is_nan() && read(-9).iter().chain(&read(i64::MAX)).all(|x| x.is_nan()));

        let write = |at: i64| run(&WriteRows, &[f32s(&[2, 1], &[8.0, 9.0]), i64s(&[1], &[at]), table()]);
        assert_eq!(write(2), [0.0, 1.0, 8.0, 9.0]);
        assert_eq!(write(3), [0.0, 1.0, 2.0, 8.0]);
        assert_eq!(write(-1), [9.0, 1.0, 2.0, 3.0]);
        assert_eq!(run(&WriteRows, &[f32s(&[2, 1], &[8.0, 9.0]), table()]), [8.0, 9.0, 2.0, 3.0]);
        for outside in [4, -2, i64::MAX, i64::MIN] {
            assert_eq!(write(outside), [0.0, 1.0, 2.0, 3.0]);
        }
    }
}
