//! Sums over one dimension, in an order that depends on the shape alone.

use super::copy::copy_strided;
use super::cuda::{put, refuse_f64, source, width};
use super::*;
use crate::graph::InputGrads;
use crate::kernels::cpu::Element;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::{SharedMut, parallel};
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Arg, DeviceTensor, Grid, Kernel, Source};
use crate::types::{DType, Results};
use plimsoll_base::simd::simd;
use smallvec::smallvec;

/// Removes dimension `axis` by summing over it; the last dimension of a rank-1 value leaves shape `[1]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Sum {
    pub axis: usize,
}

impl Sum {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let shape = [rng.size(1, 4), rng.size(1, 200), rng.size(1, 40)];
        let mut samples: Vec<Sample> =
            (0..3).map(|axis| Sample::new(Sum { axis }, vec![SampleInput::float(&shape, Fill::Normal)])).collect();
        samples.push(Sample::new(Sum { axis: 0 }, vec![SampleInput::float(&[rng.size(1, 99)], Fill::Normal)]));
        samples
    }

    /// (outer, summed, inner)
    fn extents(&self, ty: &Type) -> (usize, usize, usize) {
        let product = |dims: &[usize]| dims.iter().product();
        (product(&ty.shape[..self.axis]), ty.shape[self.axis], product(&ty.shape[self.axis + 1..]))
    }
}

impl Op for Sum {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        if self.axis >= inputs[0].rank() {
            return OpError::new(format!("{} has no dimension {}", inputs[0], self.axis));
        }
        let mut shape = inputs[0].shape.clone();
        shape.remove(self.axis);
        if shape.is_empty() {
            shape.push(1);
        }
        Ok(smallvec![inputs[0].with_shape(&shape)])
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        let (outer, n, inner) = self.extents(&inputs[0]);
        match target.backend {
            Backend::Cpu => outer * row_chunks(n) * inner * inputs[0].dtype.bytes(),
            Backend::Cuda => device_parts_up_to(outer, n, inner) * DType::F32.bytes(),
        }
    }
    fn class(&self) -> Class {
        Class::Reduction
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: inputs[0].elements() as f64, bytes: Cost::traffic(inputs, outputs) }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let (outer, n, inner) = self.extents(io.input_type(0));
        with_float!(io.output_type(0).dtype, T => {
            sum_middle::<T>(io.input(0), outer, n, inner, io.output(0), io.workspace())
        })
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let (x, y) = (&launch.inputs[0], &launch.outputs[0]);
        let (outer, n, inner) = self.extents(&x.ty);
        match device_chunks(outer, n, inner) {
            1 => sum_on_device(launch, x, (outer, n, inner), 1, y),
            chunks => {
                let ty = Type::new(DType::F32, &[outer, chunks, inner]);
                let partials = DeviceTensor { address: launch.workspace, ty };
                sum_on_device(launch, x, (outer, n, inner), chunks, &partials)?;
                put_parts(launch, launch.workspace, (outer, chunks), &[y])
            }
        }
    }
}

const SOURCE: Source = source!("reduce", "map");

/// Into how many stretches the device cuts a sum over `n` of (outer, n, inner): enough blocks for a large card.
fn device_chunks(outer: usize, n: usize, inner: usize) -> usize {
    let blocks = outer * inner.div_ceil(256);
    (n / least_chunk(inner)).min(MOST_BLOCKS / blocks.max(1)).clamp(1, MOST_CHUNKS)
}

fn least_chunk(inner: usize) -> usize {
    if inner == 1 { 8192 } else { 64 }
}

/// Blocks that sums are cut for, and stretches of one sum.
const MOST_BLOCKS: usize = 1024;
const MOST_CHUNKS: usize = 256;

/// Parts of sums that there are for any extents up to these. More sums are cut into fewer stretches each, so their number
/// does not grow with the extents.
fn device_parts_up_to(outer: usize, n: usize, inner: usize) -> usize {
    match (n / least_chunk(inner)).clamp(1, MOST_CHUNKS) {
        1 => 0,
        chunks => (outer * chunks * inner).min(MOST_BLOCKS * inner.min(256)),
    }
}

/// Sums x (outer, n, inner) over stretches of n: y (outer, chunks, inner).
fn sum_on_device(
    launch: &mut Launch<'_>,
    x: &DeviceTensor,
    (outer, n, inner): (usize, usize, usize),
    chunks: usize,
    y: &DeviceTensor,
) -> Result<(), CudaError> {
    let row = if inner == 1 { n } else { inner };
    let width = width(&[x, y], row);
    let stretch = n.div_ceil(chunks).next_multiple_of(8);
    let kernel = |entry| kernel(entry, x, y).define("WIDTH", width);
    if inner == 1 {
        let threads = stretch.min(n).div_ceil(width).next_multiple_of(32).clamp(32, 512);
        let args: [Arg; 5] = [x.into(), y.into(), n.into(), chunks.into(), stretch.into()];
        return put(launch, &kernel("sum_rows"), Grid::new(outer * chunks, threads), outer, &args);
    }
    let blocks = outer * chunks * inner.div_ceil(32 * width);
    let args: [Arg; 6] = [x.into(), y.into(), n.into(), inner.into(), chunks.into(), stretch.into()];
    put(launch, &kernel("sum_columns"), Grid::new(blocks, 256), outer * inner, &args)
}

fn kernel(entry: &'static str, x: &DeviceTensor, y: &DeviceTensor) -> Kernel {
    Kernel::new(SOURCE, entry).dtype("X", x.ty.dtype).dtype("Y", y.ty.dtype)
}

/// Adds up parts of sums that lie in the workspace: f32 (count, elements of `to`, one after the other if there are two or three; three are of one size).
pub(super) fn add_parts(
    launch: &mut Launch<'_>,
    address: u64,
    count: usize,
    to: &[&DeviceTensor],
) -> Result<(), CudaError> {
    match to {
        // A single number: all threads take part.
        [y] if y.ty.elements() == 1 => {
            let parts = DeviceTensor { address, ty: Type::new(DType::F32, &[count]) };
            sum_on_device(launch, &parts, (1, count, 1), 1, y)
        }
        _ => put_parts(launch, address, (1, count), to),
    }
}

/// Adds up `outer` times `count` parts: f32 (outer, count, columns), the columns being those of up to three tensors.
fn put_parts(
    launch: &mut Launch<'_>,
    address: u64,
    (outer, count): (usize, usize),
    to: &[&DeviceTensor],
) -> Result<(), CudaError> {
    let columns = to.iter().map(|y| y.ty.elements()).sum::<usize>() / outer.max(1);
    let width = to[0].ty.elements() / outer.max(1);
    let parts = DeviceTensor { address, ty: Type::new(DType::F32, &[outer, count, columns]) };
    let [y, z, last] = [0usize, 1, 2].map(|i| to[i.min(to.len() - 1)]);
    // Of two, all columns behind the first tensor's are the second's.
    let second = if to.len() == 3 { width } else { columns - width };
    let args: [Arg; 8] =
        [(&parts).into(), y.into(), z.into(), last.into(), count.into(), columns.into(), width.into(), second.into()];
    let blocks = outer * columns.div_ceil(32);
    put(launch, &kernel("add_parts", &parts, y).define("WIDTH", 1), Grid::new(blocks, 1024), blocks, &args)
}

impl Differentiable for Sum {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let (dy, shape) = (cx.grad0(), cx.graph.shape(cx.input(0)).to_vec());
        Ok(smallvec![Some(cx.add1(Repeat { axis: self.axis, shape }, &[dy])?)])
    }
}

/// The gradient of a sum: dimension `axis` put back by repeating.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Repeat {
    pub axis: usize,
    pub shape: Vec<usize>,
}

impl Op for Repeat {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[0].with_shape(&self.shape)])
    }
    fn class(&self) -> Class {
        Class::Move
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let (_, n, inner) = Sum { axis: self.axis }.extents(io.output_type(0));
        with_float!(io.output_type(0).dtype, T => {
            let x = io.input::<T>(0);
            crate::kernels::cpu::parallel::parallel_chunks(io.output::<T>(0), n * inner.max(1), |outer, piece| {
                let row = &x[outer * inner..][..inner];
                piece.chunks_mut(inner.max(1)).for_each(|to| to.copy_from_slice(row));
            })
        })
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (x, y) = (&launch.inputs[0], &launch.outputs[0]);
        let (outer, n, inner) = Sum { axis: self.axis }.extents(&y.ty);
        let shape = [outer, n, inner];
        let to = DeviceTensor { address: y.address, ty: Type::new(y.ty.dtype, &shape) };
        let mut from = DeviceTensor { address: x.address, ty: to.ty.clone() };
        from.ty.strides = [inner, 0, 1].into_iter().collect();
        copy_strided(launch, &from, &to)
    }
}

/// Sums `value` down to `shape`, undoing a broadcast.
pub(super) fn sum_to(cx: &mut Vjp<'_>, value: ValueId, shape: &[usize]) -> Result<ValueId, GraphError> {
    let mut current = value;
    while cx.graph.shape(current).len() > shape.len() {
        current = cx.add1(Sum { axis: 0 }, &[current])?;
        if cx.graph.shape(current) == [1] && shape.is_empty() {
            break;
        }
    }
    for axis in 0..shape.len() {
        let mut kept = cx.graph.shape(current).to_vec();
        if kept[axis] != shape[axis] {
            current = cx.add1(Sum { axis }, &[current])?;
            kept[axis] = 1;
            current = cx.add1(Reshape { shape: kept }, &[current])?;
        }
    }
    Ok(current)
}

/// Into how many stretches `n` rows are cut before their sums are added up in order.
fn row_chunks(n: usize) -> usize {
    (n / 64).clamp(1, 16)
}

/// `out[o, i] = Σ_n x[o, n, i]`: each stretch of rows into its own partial sum, then the partial sums in order.
fn sum_middle<T: Float + Element>(x: &[T], outer: usize, n: usize, inner: usize, out: &mut [T], partial: &mut [T]) {
    let chunks = row_chunks(n);
    let rows = n.div_ceil(chunks);
    let slots = SharedMut::new(partial.as_mut_ptr());
    parallel(outer * chunks, |task| {
        let (o, chunk) = (task / chunks, task % chunks);
        let (first, end) = ((chunk * rows).min(n), ((chunk + 1) * rows).min(n));
        // SAFETY: each task owns its partial sum.
        let sum = unsafe { slots.slice(task * inner, inner) };
        let data = &x[(o * n + first) * inner..(o * n + end) * inner];
        simd(
            #[inline(always)]
            || if inner == 1 { sum[0] = sum_row(data) } else { sum_rows(data, sum) },
        );
    });
    for (o, out) in out.chunks_mut(inner.max(1)).enumerate() {
        out.copy_from_slice(&partial[o * chunks * inner..][..inner]);
        for chunk in 1..chunks {
            let add = &partial[(o * chunks + chunk) * inner..][..inner];
            simd(
                #[inline(always)]
                || {
                    for (a, b) in out.iter_mut().zip(add) {
                        *a += *b;
                    }
                },
            );
        }
    }
}

#[inline(always)]
fn sum_rows<T: Float>(data: &[T], sum: &mut [T]) {
    sum.fill(T::ZERO);
    for row in data.chunks_exact(sum.len()) {
        for (s, x) in sum.iter_mut().zip(row) {
            *s += *x;
        }
    }
}

/// The sum of a slice over sixteen lanes.
#[inline(always)]
pub(crate) fn sum_row<T: Float>(data: &[T]) -> T {
    let mut lanes = [T::ZERO; 16];
    let (blocks, rest) = data.as_chunks::<16>();
    let tail: T = rest.iter().copied().sum();
    for block in blocks {
        for (l, lane) in lanes.iter_mut().enumerate() {
            *lane += block[l];
        }
    }
    lanes.iter().copied().sum::<T>() + tail
}
