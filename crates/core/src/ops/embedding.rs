//! Rows of a table by index, and the gradient that adds rows back.

use super::cuda::{put, refuse_f64, slices, source, typed, width};
use super::*;
use crate::graph::{Aliases, InputGrads};
use crate::kernels::cpu::Element;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::{SharedMut, parallel, parallel_chunks};
use crate::kernels::cpu::rows;
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Arg, DeviceTensor, Grid, Kernel, Source};
use crate::types::{DType, Results};
use plimsoll_base::simd::simd;
use smallvec::{SmallVec, smallvec};

/// Inputs: table (V, D), ids i32 of any shape. Output: (…, D). An id outside 0..V gives a row of NaN, so that bad data
/// shows in the loss; its gradient goes nowhere.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding;

impl Embedding {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let sample = |vocabulary: usize, width: usize, ids: &[usize]| {
            let ids = SampleInput::new(Type::new(DType::I32, ids), Fill::Ids(vocabulary));
            Sample::new(Embedding, vec![SampleInput::float(&[vocabulary, width], Fill::Normal), ids])
        };
        vec![sample(5, 3, &[2, 7]), sample(rng.size(1, 30), rng.size(1, 150), &[rng.size(1, 4), rng.size(1, 40)])]
    }
}

impl Op for Embedding {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let [table, ids] = inputs else { return OpError::new("needs a table and ids") };
        if table.rank() != 2 || ids.dtype != DType::I32 {
            return OpError::new(format!("{ids} cannot pick rows of {table}"));
        }
        let shape: Vec<usize> = ids.shape.iter().copied().chain([table.shape[1]]).collect();
        Ok(smallvec![table.with_shape(&shape)])
    }
    fn class(&self) -> Class {
        Class::Gather
    }
    fn cost(&self, _: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: 0.0, bytes: Cost::traffic(outputs, outputs) }
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => gather::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let (table, ids, y) = (&launch.inputs[0], &launch.inputs[1], &launch.outputs[0]);
        let (vocabulary, row) = (table.ty.shape[0], table.ty.shape[1]);
        let width = width(&[table, y], row);
        let (threads, slices) = slices(row, width);
        let rows = ids.ty.elements();
        let args: [Arg; 6] = [table.into(), ids.into(), y.into(), vocabulary.into(), row.into(), slices.into()];
        let grid = Grid::new(rows * slices, threads);
        put(launch, &kernel("embedding", table, width, false), grid, y.ty.elements(), &args)
    }
}

impl Differentiable for Embedding {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let (ids, dy, vocabulary) = (cx.input(1), cx.grad0(), cx.graph.shape(cx.input(0))[0]);
        Ok(smallvec![Some(cx.add1(EmbeddingGrad { vocabulary, accumulate: false }, &[ids, dy])?), None])
    }
}

/// Inputs: ids, dy and, to accumulate in place, the total so far. Output: (V, D).
#[derive(Debug, Clone, PartialEq)]
struct EmbeddingGrad {
    vocabulary: usize,
    accumulate: bool,
}

impl Op for EmbeddingGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let ty = inputs[1].with_shape(&[self.vocabulary, inputs[1].shape[inputs[1].rank() - 1]]);
        match self.accumulate && inputs[2] != ty {
            true => OpError::new(format!("{} cannot accumulate {ty}", inputs[2])),
            false => Ok(smallvec![ty]),
        }
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        if self.accumulate { smallvec![Alias::must(0, 2)] } else { SmallVec::new() }
    }
    fn class(&self) -> Class {
        Class::Scatter
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        // A row of the table is read and written for each id; without a total to add to, all of it is cleared first.
        let (rows, cleared) = (&inputs[1..2], if self.accumulate { &[] } else { outputs });
        let bytes = Cost::traffic(&inputs[..2], cleared) + Cost::traffic(rows, rows);
        Cost { flops: inputs[1].elements() as f64, bytes }
    }
    fn accumulating(&self) -> Option<Box<dyn Op>> {
        (!self.accumulate).then(|| Box::new(EmbeddingGrad { accumulate: true, ..self.clone() }) as Box<dyn Op>)
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => {
            if !self.accumulate {
                parallel_chunks(io.output::<T>(0), 64 << 10, |_, piece| piece.fill(T::ZERO));
            }
            scatter::<T>(io, self.vocabulary)
        })
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        match target.backend {
            Backend::Cpu => 0,
            Backend::Cuda => Scratch::of(&inputs[0], &inputs[1]).bytes(),
        }
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let table = &launch.outputs[0];
        if !self.accumulate {
            copy::zero_strided(launch, table)?;
        }
        match table.ty.elements() * launch.inputs[0].ty.elements() {
            0 => Ok(()),
            _ => self.add_rows(launch),
        }
    }
}

const SOURCE: Source = source!("embedding", "map");
/// Tokens that are sorted in shared memory, RUN of embedding.cu, and those that a block adds up, TILE.
const RUN: usize = 1024;
const TILE: usize = 32;

/// The workspace of the gradient: tokens sorted by id, twice, and parts of sums.
struct Scratch {
    tokens: usize,
    row: usize,
}

impl Scratch {
    fn of(ids: &Type, dy: &Type) -> Scratch {
        Scratch { tokens: ids.elements(), row: dy.shape.last().copied().unwrap_or(1) }
    }

    /// One of the two places for sorted tokens, a multiple of 16 bytes.
    fn key_bytes(&self) -> usize {
        (self.tokens * size_of::<u64>()).next_multiple_of(16)
    }

    fn tiles(&self) -> usize {
        self.tokens.div_ceil(TILE)
    }

    fn bytes(&self) -> usize {
        2 * self.key_bytes() + self.tiles() * self.row * size_of::<f32>()
    }
}

fn kernel(entry: &'static str, table: &DeviceTensor, width: usize, accumulate: bool) -> Kernel {
    typed(SOURCE, entry, &[("T", table)]).define("WIDTH", width).define("ACCUMULATE", u32::from(accumulate))
}

impl EmbeddingGrad {
    /// Sorts the tokens by id, then adds up those of each id in their order.
    fn add_rows(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (dy, table) = (&launch.inputs[1], &launch.outputs[0]);
        let scratch = Scratch::of(&launch.inputs[0].ty, &dy.ty);
        let Scratch { tokens, row } = scratch;
        let width = width(&[dy, table], row);
        let (threads, slices) = slices(row, width);
        let kernel = |entry| kernel(entry, table, width, self.accumulate);
        let keys = Arg::Address(sorted_tokens(launch, &scratch, &kernel)?);
        let parts = Arg::Address(launch.workspace + 2 * scratch.key_bytes() as u64);
        let grid = Grid::new(scratch.tiles() * slices, threads);
        let args: [Arg; 6] = [keys, dy.into(), parts, tokens.into(), row.into(), slices.into()];
        launch.kernel(&kernel("sum_leading"), grid, &args)?;
        let sizes = [tokens, self.vocabulary, row, slices].map(Arg::from);
        let args: Vec<Arg> = [keys, dy.into(), parts, table.into()].into_iter().chain(sizes).collect();
        launch.kernel(&kernel("embedding_grad"), grid, &args)
    }
}

/// Sorts the tokens by (id, position); returns where in the workspace they are.
fn sorted_tokens(
    launch: &mut Launch<'_>,
    scratch: &Scratch,
    kernel: &dyn Fn(&'static str) -> Kernel,
) -> Result<u64, CudaError> {
    let (tokens, first) = (scratch.tokens, launch.workspace);
    let (mut from, mut to) = (first, first + scratch.key_bytes() as u64);
    let args: [Arg; 3] = [(&launch.inputs[0]).into(), Arg::Address(from), tokens.into()];
    launch.kernel(&kernel("sort_runs"), Grid::new(tokens.div_ceil(RUN), RUN), &args)?;
    let mut run = RUN;
    while run < tokens {
        let args: [Arg; 4] = [Arg::Address(from), Arg::Address(to), tokens.into(), run.into()];
        launch.kernel(&kernel("merge_runs"), Grid::over(tokens, 1), &args)?;
        (from, to, run) = (to, from, 2 * run);
    }
    Ok(from)
}

fn gather<T: Float + Element>(io: &CpuIo<'_>) {
    let (table, ids, width) = (io.input::<T>(0), io.input::<i32>(1), io.input_type(0).shape[1].max(1));
    let step = rows::rows_per_task(width);
    parallel_chunks(io.output::<T>(0), step * width, |task, piece| {
        for (row, &id) in piece.chunks_exact_mut(width).zip(&ids[task * step..]) {
            match usize::try_from(id).ok().and_then(|id| table.chunks_exact(width).nth(id)) {
                Some(from) => row.copy_from_slice(from),
                None => row.fill(T::of(f64::NAN)),
            }
        }
    });
}

/// A task owns a range of columns and goes through all ids in order: any distribution of ids keeps tasks equal, and
/// each sum has one order. Ranges are whole cache lines.
fn scatter<T: Float + Element>(io: &CpuIo<'_>, vocabulary: usize) {
    let (ids, dy) = (io.input::<i32>(0), io.input::<T>(1));
    let width = io.output_type(0).shape[1];
    let columns = width.div_ceil(8).next_multiple_of(64 / size_of::<T>());
    let table = SharedMut::new(io.output_ptr(0).cast::<T>());
    parallel(width.div_ceil(columns.max(1)), |task| {
        let first = task * columns;
        let len = columns.min(width - first);
        simd(
            #[inline(always)]
            || {
                for (at, &id) in ids.iter().enumerate() {
                    if let Some(row) = usize::try_from(id).ok().filter(|&row| row < vocabulary) {
                        // SAFETY: the row exists, and its columns belong to this task.
                        let to = unsafe { table.slice(row * width + first, len) };
                        rows::add(to, &dy[at * width + first..][..len]);
                    }
                }
            },
        )
    });
}

#[cfg(test)]
mod tests {
    use super::testing::{f32s, i32s, run};
    use super::*;

    #[test]
    fn ids_outside_the_table_give_nan_and_take_no_gradient() {
        let ids = || i32s(&[5], &[2, -1, 0, 3, 2]);
        let rows = run(&Embedding, &[f32s(&[3, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), ids()]);
        assert_eq!((&rows[..2], &rows[4..6], &rows[8..]), (&[4.0, 5.0][..], &[0.0, 1.0][..], &[4.0, 5.0][..]));
        assert!(rows[2..4].iter().chain(&rows[6..8]).all(|x| x.is_nan()));

        let dy = || f32s(&[5, 2], &[1.0, 2.0, f32::NAN, f32::NAN, 3.0, 4.0, f32::NAN, f32::NAN, 5.0, 6.0]);
        let grad = EmbeddingGrad { vocabulary: 3, accumulate: false };
        assert_eq!(run(&grad, &[ids(), dy()]), [3.0, 4.0, 0.0, 0.0, 6.0, 8.0]);
    }

    #[test]
    fn accumulating_adds_to_the_total() {
        let grad = EmbeddingGrad { vocabulary: 2, accumulate: false };
        let total = f32s(&[2, 1], &[10.0, 20.0]);
        let inputs = [i32s(&[3], &[1, 1, 0]), f32s(&[3, 1], &[1.0, 2.0, 3.0]), total];
        let op = grad.accumulating().unwrap();
        assert_eq!(run(op.as_ref(), &inputs), [13.0, 23.0]);
    }
}
