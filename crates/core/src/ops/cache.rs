//! The key/value cache of generation: rows written at a position that the host sets, and the rows of beams put in
//! another order. Both change a resident in place.

use super::cuda::mismatch;
use super::*;
use crate::graph::Aliases;
use crate::kernels::cpu::parallel::{SharedMut, parallel};
use crate::kernels::cuda::{Arg, Kernel, Source};
use crate::types::{DType, Results};
use device::run_over;
use smallvec::smallvec;

const SOURCE: Source = Source { name: "cache", text: include_str!("cache.cu") };

/// Steps of a cache that are put in order at a time on a CUDA device.
const LANES: usize = 64;

/// Inputs: new (R·n, W), which may be a slice of columns; cache (R, T, W…); then the position i64[1] of the first new
/// step if `at_position`, otherwise it is 0. Output: the cache with steps position..position + n of every row replaced.
/// Steps that lie outside the cache are dropped.
#[derive(Debug, Clone, PartialEq)]
pub struct CacheWrite {
    pub at_position: bool,
}

impl CacheWrite {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let (rows, time, width) = (rng.size(1, 4), rng.size(2, 9), rng.size(1, 40));
        let inputs = |steps: usize| {
            let new = SampleInput::constant(&[rows * steps, width], Fill::Normal);
            vec![new, SampleInput::constant(&[rows, time, width], Fill::Normal)]
        };
        let position = SampleInput::new(Type::new(DType::I64, &[1]), Fill::Ids(time));
        let at_position = [inputs(1), vec![position]].concat();
        vec![
            Sample::plain(CacheWrite { at_position: true }, at_position),
            Sample::plain(CacheWrite { at_position: false }, inputs(time)),
        ]
    }
}

impl Op for CacheWrite {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let [new, cache, position @ ..] = inputs else { return OpError::new("needs new rows and a cache") };
        let (rows, _, width) = extents(cache)?;
        let whole_steps = new.rank() == 2 && new.shape[1] == width && new.shape[0].is_multiple_of(rows.max(1));
        if !whole_steps || new.dtype != cache.dtype {
            return OpError::new(format!("{new} cannot be written into {cache}"));
        }
        match (self.at_position, position) {
            (false, []) => Ok(smallvec![cache.clone()]),
            (true, [p]) if is_position(p) => Ok(smallvec![cache.clone()]),
            _ => OpError::new("the position is to be i64[1]"),
        }
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::must(0, 1)]
    }
    fn accepts(&self, input: usize, ty: &Type) -> bool {
        ty.is_contiguous() || (input == 0 && ty.is_row_strided())
    }
    fn class(&self) -> Class {
        Class::Move
    }
    fn cost(&self, inputs: &[Type], _: &[Type]) -> Cost {
        Cost { flops: 0.0, bytes: Cost::traffic(&inputs[..1], &inputs[..1]) }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let (new, cache) = (io.input_type(0), io.output_type(0));
        let Ok((count, time, width)) = extents(cache) else { return };
        let position = if self.at_position { io.input::<i64>(2)[0] } else { 0 };
        let (steps, size) = (new.shape[0] / count.max(1), cache.dtype.bytes());
        let (from, to) = (SharedMut::new(io.input_ptr(0) as *mut u8), SharedMut::new(io.output_ptr(0)));
        parallel(count, |row| {
            for step in 0..steps {
                let at = usize::try_from(position.saturating_add(step as i64)).unwrap_or(usize::MAX);
                if at >= time {
                    continue;
                }
                // SAFETY: the places lie inside both tensors, which are apart; a row belongs to one task.
                unsafe {
                    let from = from.ptr().add((row * steps + step) * new.strides[0] * size);
                    to.slice((row * time + at) * width * size, width * size)
                        .copy_from_slice(std::slice::from_raw_parts(from, width * size));
                }
            }
        });
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let ([new, _, position @ ..], [cache]) = (launch.inputs, launch.outputs) else {
            return Err(mismatch(self, launch, "new rows and a cache for that cache"));
        };
        if position.len() != usize::from(self.at_position) {
            return Err(mismatch(self, launch, "a position where it writes at one, and only there"));
        }
        let Ok((rows, time, width)) = extents(&cache.ty) else {
            return Err(mismatch(self, launch, "a cache of rows, steps and what a step holds"));
        };
        let steps = new.ty.shape[0] / rows.max(1);
        let position = position.first().map_or(Arg::Address(0), Arg::from);
        let ends = [Arg::from(new), Arg::from(cache), position];
        let sizes = [rows, steps, time, width, new.ty.strides[0]].map(Arg::from);
        let kernel = Kernel::new(SOURCE, "write_steps").dtype("T", cache.ty.dtype);
        run_over(launch, &kernel, new.ty.elements(), &[&ends[..], &sizes].concat())
    }
}

/// Inputs: cache (R, T, W…), order i32 (R), position i64[1]. Output: the cache with row r's steps before the position
/// replaced by those of row order[r]; later ones are not written yet. A row of an index outside 0..R keeps its own.
#[derive(Debug, Clone, PartialEq)]
pub struct CacheReorder;

impl CacheReorder {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let (rows, time) = (rng.size(1, 5), rng.size(2, 9));
        let inputs = vec![
            SampleInput::constant(&[rows, time, 2, rng.size(1, 20)], Fill::Normal),
            SampleInput::new(Type::new(DType::I32, &[rows]), Fill::Ids(rows)),
            SampleInput::new(Type::new(DType::I64, &[1]), Fill::Ids(time + 1)),
        ];
        vec![Sample::plain(CacheReorder, inputs)]
    }
}

impl Op for CacheReorder {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let [cache, order, position] = inputs else { return OpError::new("needs a cache, an order and a position") };
        let (rows, ..) = extents(cache)?;
        match order.dtype == DType::I32 && order.shape[..] == [rows] && is_position(position) {
            true => Ok(smallvec![cache.clone()]),
            false => OpError::new(format!("{order} at {position} cannot order the rows of {cache}")),
        }
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::must(0, 0)]
    }
    fn class(&self) -> Class {
        Class::Move
    }
    /// One step of all rows for each thread, or for each of the steps that a device puts in order at a time.
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        let Ok((rows, time, width)) = extents(&inputs[0]) else { return 0 };
        let steps = match target.backend {
            Backend::Cpu => target.threads,
            Backend::Cuda => time.min(LANES),
        };
        steps * rows * width * inputs[0].dtype.bytes()
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let Ok((count, time, width)) = extents(io.output_type(0)) else { return };
        let (order, position) = (io.input::<i32>(1), io.input::<i64>(2)[0]);
        let kept_order = order.iter().enumerate().all(|(row, &from)| from == row as i32);
        let steps = usize::try_from(position).unwrap_or(0).min(time);
        let scratch: &mut [u8] = bytemuck::cast_slice_mut(io.workspace::<f32>());
        let bytes = width * io.output_type(0).dtype.bytes();
        let share = count * bytes;
        if kept_order || share == 0 {
            return;
        }
        let tasks = (scratch.len() / share).clamp(1, steps.max(1));
        let (cache, pool) = (SharedMut::new(io.output_ptr(0)), SharedMut::new(scratch.as_mut_ptr()));
        parallel(tasks, |task| {
            // SAFETY: a step of all rows, and a share of the scratch, belong to one task.
            unsafe {
                let saved = pool.slice(task * share, share);
                for step in task * steps / tasks..(task + 1) * steps / tasks {
                    let place = |row: usize| cache.slice((row * time + step) * bytes, bytes);
                    saved.chunks_exact_mut(bytes).enumerate().for_each(|(row, to)| to.copy_from_slice(place(row)));
                    for (row, &from) in order.iter().enumerate() {
                        let from = usize::try_from(from).ok().filter(|&from| from < count).unwrap_or(row);
                        place(row).copy_from_slice(&saved[from * bytes..][..bytes]);
                    }
                }
            }
        });
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let ([_, order, position], [cache]) = (launch.inputs, launch.outputs) else {
            return Err(mismatch(self, launch, "a cache, an order and a position for that cache"));
        };
        let Ok((rows, time, width)) = extents(&cache.ty) else {
            return Err(mismatch(self, launch, "a cache of rows, steps and what a step holds"));
        };
        let lanes = time.min(LANES);
        let ends = [cache.into(), order.into(), position.into(), Arg::Address(launch.workspace)];
        let sizes = [rows, time, width, lanes].map(Arg::from);
        let kernel = Kernel::new(SOURCE, "reorder").dtype("T", cache.ty.dtype);
        run_over(launch, &kernel, lanes * width, &[&ends[..], &sizes].concat())
    }
}

/// (rows, steps, elements of one step) of a cache.
fn extents(cache: &Type) -> Result<(usize, usize, usize), OpError> {
    match cache.shape[..] {
        [rows, time, ref rest @ ..] if !rest.is_empty() => Ok((rows, time, rest.iter().product())),
        _ => OpError::new(format!("{cache} is not a cache (rows, steps, …)")),
    }
}

fn is_position(ty: &Type) -> bool {
    ty.dtype == DType::I64 && ty.shape[..] == [1]
}

#[cfg(test)]
mod tests {
    use super::testing::{f32s, i32s, i64s, run};
    use super::*;

    #[test]
    fn writes_every_row_at_the_position_and_nowhere_else() {
        let cache = || f32s(&[2, 3, 1], &[0.0; 6]);
        let write = CacheWrite { at_position: true };
        let at = |position| run(&write, &[f32s(&[2, 1], &[1.0, 2.0]), cache(), i64s(&[1], &[position])]);
        assert_eq!(at(1), [0.0, 1.0, 0.0, 0.0, 2.0, 0.0]);
        for outside in [-1, 3, i64::MAX] {
            assert_eq!(at(outside), [0.0; 6]);
        }
        let whole = f32s(&[6, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(run(&CacheWrite { at_position: false }, &[whole, cache()]), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn rows_follow_the_order_up_to_the_position() {
        let values: Vec<f32> = (0..18).map(|i| i as f32).collect();
        let reorder = |order: &[i32], position| {
            run(&CacheReorder, &[f32s(&[3, 3, 2], &values), i32s(&[3], order), i64s(&[1], &[position])])
        };
        let expected = [12, 13, 14, 15, 4, 5, 0, 1, 2, 3, 10, 11, 0, 1, 2, 3, 16, 17].map(|i| i as f32);
        assert_eq!(reorder(&[2, 0, 0], 2), expected);
        assert_eq!(reorder(&[0, 1, 2], 3), values[..]);
        assert_eq!(reorder(&[9, -1, 2], 3), values[..]);
        assert_eq!(reorder(&[2, 0, 0], 0), values[..]);
    }
}
