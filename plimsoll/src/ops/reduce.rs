//! Sums over one dimension, in an order that depends on the shape alone.

use super::*;
use crate::exec::cpu::Element;
use crate::exec::cpu::float::Float;
use crate::exec::cpu::parallel::{SharedMut, parallel};
use crate::exec::cpu::simd::simd;
use crate::with_float;

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
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        if self.axis >= inputs[0].rank() {
            return OpError::new(format!("{} has no dimension {}", inputs[0], self.axis));
        }
        let mut shape = inputs[0].shape.clone();
        shape.remove(self.axis);
        if shape.is_empty() {
            shape.push(1);
        }
        Ok(vec![inputs[0].with_shape(&shape)])
    }
    fn workspace(&self, inputs: &[Type], _: &Target) -> usize {
        let (outer, n, inner) = self.extents(&inputs[0]);
        outer * row_chunks(n) * inner * inputs[0].dtype.bytes()
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
}

impl Differentiable for Sum {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<Vec<Option<ValueId>>, GraphError> {
        let (dy, shape) = (cx.grad0(), cx.graph.shape(cx.input(0)).to_vec());
        Ok(vec![Some(cx.add1(Repeat { axis: self.axis, shape }, &[dy])?)])
    }
}

/// The gradient of a sum: dimension `axis` put back by repeating.
#[derive(Debug, Clone, PartialEq)]
pub struct Repeat {
    pub axis: usize,
    pub shape: Vec<usize>,
}

impl Op for Repeat {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        Ok(vec![inputs[0].with_shape(&self.shape)])
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
            crate::exec::cpu::parallel::parallel_chunks(io.output::<T>(0), n * inner.max(1), |outer, piece| {
                let row = &x[outer * inner..][..inner];
                piece.chunks_mut(inner.max(1)).for_each(|to| to.copy_from_slice(row));
            })
        })
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
    let blocks = data.chunks_exact(16);
    let tail: T = blocks.remainder().iter().copied().sum();
    for block in blocks {
        for (lane, x) in lanes.iter_mut().zip(block) {
            *lane += *x;
        }
    }
    lanes.iter().copied().sum::<T>() + tail
}
