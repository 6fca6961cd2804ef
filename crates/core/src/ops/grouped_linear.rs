//! Many small linear layers side by side: each group of columns has its own weights.

use super::cuda::source;
use super::*;
use crate::graph::InputGrads;
use crate::kernels::cpu::grouped_linear::{self as kernel, GroupedShape};
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Arg, Gemm, Grid, Kernel, Matrix, Source};
use crate::types::{DType, Results};
use device::{GEMM_BYTES, Regions, add_up, by_columns, by_rows, every, multiply, product, refuse_f64, stretches};
use smallvec::smallvec;

const SOURCE: Source = source!("grouped_linear", "map");

/// On a CUDA device, groups up to this wide have their own loops; wider ones are products.
const NARROW: usize = 32;

/// Inputs: x (M, G·I) (rows may lie apart), weight (G, P·O, I), bias (G, P·O). Output: (M, P, G, O): with three parts,
/// a packed qkv over all groups' heads.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupedLinear {
    pub parts: usize,
}

impl GroupedLinear {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let mut samples = Vec::new();
        // Four parts are more than the loops of narrow groups on a card take.
        for parts in [3, 1, 4] {
            let (rows, groups, width) = (rng.size(1, 30), rng.size(1, 5), rng.size(1, 9));
            let inputs = vec![
                SampleInput::float(&[rows, groups * width], Fill::Normal),
                SampleInput::float(&[groups, parts * width, width], Fill::Normal),
                SampleInput::float(&[groups, parts * width], Fill::Normal),
            ];
            samples.push(Sample::new(GroupedLinear { parts }, inputs));
        }
        samples
    }

    fn shape(&self, x: &Type, weight: &Type) -> GroupedShape {
        GroupedShape {
            rows: x.shape[0],
            groups: weight.shape[0],
            parts: self.parts,
            inputs: weight.shape[2],
            outputs: weight.shape[1] / self.parts.max(1),
            row_stride: if x.shape[0] > 1 { x.strides[0] } else { x.shape[1] },
        }
    }
}

fn flops(shape: &GroupedShape) -> f64 {
    2.0 * shape.rows as f64 * (shape.groups * shape.parts * shape.outputs * shape.inputs) as f64
}

impl Op for GroupedLinear {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let (x, weight) = (&inputs[0], &inputs[1]);
        let fits = x.rank() == 2
            && weight.rank() == 3
            && self.parts > 0
            && weight.shape[1] % self.parts == 0
            && x.shape[1] == weight.shape[0] * weight.shape[2]
            && inputs[2].shape[..] == weight.shape[..2];
        if !fits {
            return OpError::new(format!("{inputs:?} do not belong together"));
        }
        let shape = self.shape(x, weight);
        Ok(smallvec![x.with_shape(&[shape.rows, shape.parts, shape.groups, shape.outputs])])
    }
    fn accepts(&self, input: usize, ty: &Type) -> bool {
        if input == 0 { ty.is_row_strided() } else { ty.is_contiguous() }
    }
    fn class(&self) -> Class {
        Class::Grouped
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: flops(&self.shape(&inputs[0], &inputs[1])), bytes: Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        match target.backend {
            Backend::Cpu => {
                kernel::forward_scratch(self.shape(&inputs[0], &inputs[1]), target.threads) * inputs[0].dtype.bytes()
            }
            Backend::Cuda => 0,
        }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let shape = self.shape(io.input_type(0), io.input_type(1));
        with_float!(io.output_type(0).dtype, T => {
            let (x, w, b) = (io.input_ptr(0).cast::<T>(), io.input::<T>(1), io.input::<T>(2));
            // SAFETY: the types were checked and the slots are apart.
            unsafe { kernel::forward(shape, x, w.as_ptr(), b.as_ptr(), io.output_ptr(0).cast(), io.workspace()) }
        })
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let [x, w, b] = [0, 1, 2].map(|n| launch.inputs[n].address);
        refuse_f64(self, &launch.inputs[0].ty)?;
        let (y, dtype) = (launch.outputs[0].address, launch.inputs[0].ty.dtype);
        let groups = Groups { shape: self.shape(&launch.inputs[0].ty, &launch.inputs[1].ty), dtype };
        let (s, row) = (&groups.shape, groups.y_row());
        if groups.is_narrow() {
            let share = Share::of_rows(s.rows, row, s.inputs, groups.width(x, s.row_stride));
            return groups.run(launch, "forward", share, &[x, w, b, y], Some(s.row_stride));
        }
        groups.run(launch, "spread_bias", Share::of_rows(s.rows, row, s.inputs, 1), &[b, y], None)?;
        (0..s.parts).try_for_each(|part| {
            let a = every(s.inputs, by_rows(x, dtype, s.row_stride));
            let c = every(s.outputs, by_rows(groups.y_part(y, part), dtype, row));
            let gemm = product([s.rows, s.outputs, s.inputs], a, groups.weights(w, part, true), c);
            multiply(launch, Gemm { batch: s.groups, beta: 1.0, ..gemm })
        })
    }
}

/// How the blocks of a kernel share columns and rows.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share {
    columns: usize,
    /// Columns and lanes of rows of a block.
    threads: usize,
    lanes: usize,
    /// Rows of a block.
    length: usize,
    /// Neighbours that are read at once.
    width: usize,
}

impl Share {
    fn threads(columns: usize) -> usize {
        columns.next_multiple_of(32).clamp(32, 256)
    }

    /// As many lanes as a block of up to `most` threads can add up, `inputs` values and one to a thread. Kernels that
    /// add nothing up are compiled together with the one that does.
    fn lanes(threads: usize, inputs: usize, most: usize) -> usize {
        (most / threads).min(SHARED / (4 * threads * (inputs + 1))).max(1)
    }

    /// Where every row is a result of its own: enough blocks for a large card before a thread gets a second row.
    fn of_rows(rows: usize, columns: usize, inputs: usize, width: usize) -> Share {
        let threads = Share::threads(columns);
        let lanes = Share::lanes(threads, inputs, 512);
        Share { columns, threads, lanes, length: rows.div_ceil(512).max(8).next_multiple_of(lanes), width }
    }

    /// Where rows are summed: no more parts than a large card has room for. A function of the shape alone, so the order
    /// of a sum is too.
    fn of_sums(rows: usize, columns: usize, inputs: usize, width: usize) -> Share {
        let threads = Share::threads(columns);
        let lanes = Share::lanes(threads, inputs, 1024);
        let parts = (256 / columns.div_ceil(threads)).max(1);
        Share { columns, threads, lanes, length: rows.div_ceil(parts).max(8), width }
    }

    /// A thread to a column, through stretches of rows in their order.
    fn of_stretches(columns: usize, length: usize) -> Share {
        Share { columns, threads: Share::threads(columns), lanes: 1, length, width: 1 }
    }
}

/// Bytes of shared memory that every card gives a block.
const SHARED: usize = 48 << 10;

/// A grouped layer on a CUDA device.
struct Groups {
    shape: GroupedShape,
    dtype: DType,
}

impl Groups {
    fn is_narrow(&self) -> bool {
        self.shape.inputs.max(self.shape.outputs) <= NARROW && self.shape.parts <= 3
    }

    /// Values in a row of y.
    fn y_row(&self) -> usize {
        self.shape.parts * self.shape.groups * self.shape.outputs
    }

    fn y_part(&self, y: u64, part: usize) -> u64 {
        y + (part * self.shape.groups * self.shape.outputs * self.dtype.bytes()) as u64
    }

    /// One part of the weights of every group, (outputs, inputs) or turned.
    fn weights(&self, w: u64, part: usize, turned: bool) -> Matrix {
        let s = &self.shape;
        let address = w + (part * s.outputs * s.inputs * self.dtype.bytes()) as u64;
        let matrix = if turned { by_columns } else { by_rows };
        every(s.parts * s.outputs * s.inputs, matrix(address, self.dtype, s.inputs))
    }

    /// How many neighbours of a group can be read at once from rows `stride` apart.
    fn width(&self, address: u64, stride: usize) -> usize {
        let (s, bytes) = (&self.shape, self.dtype.bytes());
        let divides = |width: usize| [s.inputs, s.outputs, stride].iter().all(|n| n.is_multiple_of(width));
        let fits = |&width: &usize| width * bytes <= 16 && address.is_multiple_of((width * bytes) as u64);
        [8, 4, 2].into_iter().filter(fits).find(|&width| divides(width)).unwrap_or(1)
    }

    /// How a weight gradient is summed, if groups are narrow.
    fn sums(&self, width: usize) -> Share {
        Share::of_sums(self.shape.rows, self.y_row(), self.shape.inputs, width)
    }

    fn run(
        &self,
        launch: &mut Launch<'_>,
        entry: &'static str,
        share: Share,
        ends: &[u64],
        stride: Option<usize>,
    ) -> Result<(), CudaError> {
        let s = &self.shape;
        if s.rows * share.columns == 0 {
            return Ok(());
        }
        let kernel = Kernel::new(SOURCE, entry)
            .dtype("T", self.dtype)
            .define("GROUPS", s.groups)
            .define("PARTS", s.parts)
            .define("INPUTS", s.inputs)
            .define("OUTPUTS", s.outputs)
            .define("NARROW", u8::from(self.is_narrow()))
            .define("COLUMNS", share.threads)
            .define("LANES", share.lanes)
            .define("WIDTH", share.width);
        let blocks = share.columns.div_ceil(share.threads) * s.rows.div_ceil(share.length);
        let threads = [share.threads as u32, share.lanes as u32, 1];
        let grid = Grid { threads, ..Grid::new(blocks, share.threads) };
        let ends = ends.iter().map(|&end| Arg::Address(end));
        let args: Vec<Arg> = ends.chain([s.rows.into(), share.length.into()]).chain(stride.map(Arg::from)).collect();
        launch.kernel(&kernel, grid, &args)
    }

    /// The workspace of a weight gradient: parts of sums over rows, and the library's.
    fn weight_space(&self, start: u64) -> [u64; 3] {
        let (rows, columns, narrow) = (self.shape.rows, self.y_row(), self.is_narrow());
        let mut regions = Regions::new(start);
        let parts = regions.take(match narrow {
            true => 4 * rows.div_ceil(self.sums(1).length) * columns * (self.shape.inputs + 1),
            false => 4 * stretches(rows).1 * columns,
        });
        let gemm = regions.take(if narrow { 0 } else { GEMM_BYTES });
        [parts, gemm, regions.end()]
    }
}

impl Differentiable for GroupedLinear {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let (x, w, dy) = (cx.input(0), cx.input(1), cx.grad0());
        let shape = cx.graph.shape(w).to_vec();
        let dx = if cx.wants(0) { Some(cx.add1(GroupedInputGrad(self.clone()), &[dy, w])?) } else { None };
        let weights = cx.add(GroupedWeightGrad { op: self.clone(), shape }, &[x, dy])?;
        Ok(smallvec![dx, Some(weights[0]), Some(weights[1])])
    }
}

/// Inputs: dy, weight. Output: dx, row-major.
#[derive(Debug, Clone, PartialEq)]
struct GroupedInputGrad(GroupedLinear);

impl GroupedInputGrad {
    fn dx(dy: &Type, weight: &Type) -> Type {
        dy.with_shape(&[dy.shape[0], weight.shape[0] * weight.shape[2]])
    }
}

impl Op for GroupedInputGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![GroupedInputGrad::dx(&inputs[0], &inputs[1])])
    }
    fn class(&self) -> Class {
        Class::Grouped
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: flops(&self.0.shape(&outputs[0], &inputs[1])), bytes: Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        let shape = self.0.shape(&GroupedInputGrad::dx(&inputs[0], &inputs[1]), &inputs[1]);
        match target.backend {
            Backend::Cpu => kernel::backward_input_scratch(shape, target.threads) * inputs[0].dtype.bytes(),
            Backend::Cuda => 0,
        }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let shape = self.0.shape(io.output_type(0), io.input_type(1));
        with_float!(io.output_type(0).dtype, T => {
            let (dy, w) = (io.input::<T>(0), io.input::<T>(1));
            // SAFETY: the types were checked and the slots are apart.
            unsafe { kernel::backward_input(shape, dy.as_ptr(), w.as_ptr(), io.output_ptr(0).cast(), io.workspace()) }
        })
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let [dy, w] = [0, 1].map(|n| launch.inputs[n].address);
        refuse_f64(self, &launch.inputs[0].ty)?;
        let (dx, dtype) = (launch.outputs[0].address, launch.inputs[0].ty.dtype);
        let groups = Groups { shape: self.0.shape(&launch.outputs[0].ty, &launch.inputs[1].ty), dtype };
        let (s, row) = (&groups.shape, groups.shape.groups * groups.shape.inputs);
        if groups.is_narrow() {
            let share = Share::of_rows(s.rows, row, s.inputs, groups.width(dy, groups.y_row()));
            return groups.run(launch, "backward_input", share, &[dy, w, dx], None);
        }
        (0..s.parts).try_for_each(|part| {
            let a = every(s.outputs, by_rows(groups.y_part(dy, part), dtype, groups.y_row()));
            let c = every(s.inputs, by_rows(dx, dtype, row));
            let gemm = product([s.rows, s.inputs, s.outputs], a, groups.weights(w, part, false), c);
            multiply(launch, Gemm { batch: s.groups, beta: if part == 0 { 0.0 } else { 1.0 }, ..gemm })
        })
    }
}

/// Inputs: x, dy. Outputs: gradients of weight (of this shape) and bias.
#[derive(Debug, Clone, PartialEq)]
struct GroupedWeightGrad {
    op: GroupedLinear,
    shape: Vec<usize>,
}

impl Op for GroupedWeightGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[0].with_shape(&self.shape), inputs[0].with_shape(&self.shape[..2])])
    }
    fn accepts(&self, input: usize, ty: &Type) -> bool {
        if input == 0 { ty.is_row_strided() } else { ty.is_contiguous() }
    }
    fn class(&self) -> Class {
        Class::Grouped
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: flops(&self.op.shape(&inputs[0], &outputs[0])), bytes: Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        let shape = self.op.shape(&inputs[0], &inputs[0].with_shape(&self.shape));
        match target.backend {
            Backend::Cpu => kernel::backward_weights_scratch(shape, target.threads) * inputs[0].dtype.bytes(),
            Backend::Cuda => Groups { shape, dtype: inputs[0].dtype }.weight_space(0)[2] as usize,
        }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let shape = self.op.shape(io.input_type(0), io.output_type(0));
        with_float!(io.output_type(0).dtype, T => {
            let (x, dy) = (io.input_ptr(0).cast::<T>(), io.input::<T>(1));
            let (dw, db) = (io.output_ptr(0).cast::<T>(), io.output_ptr(1).cast::<T>());
            // SAFETY: the types were checked and the slots are apart.
            unsafe { kernel::backward_weights(shape, x, dy.as_ptr(), dw, db, io.workspace()) }
        })
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let [x, dy] = [0, 1].map(|n| launch.inputs[n].address);
        let [dw, db] = [0, 1].map(|n| launch.outputs[n].address);
        refuse_f64(self, &launch.inputs[0].ty)?;
        let dtype = launch.inputs[0].ty.dtype;
        let groups = Groups { shape: self.op.shape(&launch.inputs[0].ty, &launch.outputs[0].ty), dtype };
        let (s, row) = (&groups.shape, groups.y_row());
        let [parts, workspace, _] = groups.weight_space(launch.workspace);
        if groups.is_narrow() {
            let (share, outputs) = (groups.sums(groups.width(x, s.row_stride)), launch.outputs);
            groups.run(launch, "weight_parts", share, &[x, dy, parts], Some(s.row_stride))?;
            return reduce::add_parts(launch, parts, s.rows.div_ceil(share.length), &[&outputs[0], &outputs[1]]);
        }
        let (length, many) = stretches(s.rows);
        groups.run(launch, "bias_parts", Share::of_stretches(row, length), &[dy, parts], None)?;
        add_up(launch, dtype, parts, db, row, many)?;
        (0..s.parts).try_for_each(|part| {
            let a = every(s.outputs, by_columns(groups.y_part(dy, part), dtype, row));
            let b = every(s.inputs, by_rows(x, dtype, s.row_stride));
            let c = groups.weights(dw, part, false);
            let gemm = product([s.outputs, s.inputs, s.rows], a, b, c);
            multiply(launch, Gemm { batch: s.groups, workspace, workspace_bytes: GEMM_BYTES, ..gemm })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_share_rows_within_what_a_card_gives_them() {
        for (rows, columns, inputs) in [(1, 1, 1), (1024, 192, 4), (16384, 192, 4), (16384, 6144, 32), (7, 96, 32)] {
            let sums = Share::of_sums(rows, columns, inputs, 1);
            for share in [sums, Share::of_rows(rows, columns, inputs, 1)] {
                assert!(share.threads * share.lanes <= 1024, "{share:?}");
                assert!(4 * share.threads * share.lanes * (inputs + 1) <= SHARED, "{share:?}");
            }
            let blocks = rows.div_ceil(sums.length) * columns.div_ceil(sums.threads);
            assert!(blocks <= 256, "{sums:?} in {blocks} blocks");
        }
        assert_eq!(Share::of_sums(1024, 192, 4, 4).length, 8);
    }

    #[test]
    fn groups_are_read_in_vectors_that_rows_keep_aligned() {
        let shape = GroupedShape { rows: 3, groups: 2, parts: 3, inputs: 8, outputs: 4, row_stride: 16 };
        let groups = Groups { shape, dtype: DType::F32 };
        assert_eq!(groups.width(64, 16), 4);
        assert_eq!(groups.width(72, 16), 2);
        assert_eq!(groups.width(64, 17), 1);
        assert_eq!(Groups { dtype: DType::Bf16, ..groups }.width(64, 16), 4);
    }
}
