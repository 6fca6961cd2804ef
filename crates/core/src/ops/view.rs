//! Views: reshape, permute, slice and split see their input's memory differently and compute nothing.

use super::concat::Concat;
use super::*;
use crate::graph::{Aliases, InputGrads};
use crate::types::{Dims, Results};
use smallvec::smallvec;

/// The same elements in another shape. Where strides do not allow it without moving data, the input is copied first.
#[derive(Debug, Clone, PartialEq)]
pub struct Reshape {
    pub shape: Vec<usize>,
}

impl Reshape {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let [a, b, c] = sizes(rng);
        vec![Sample::new(Reshape { shape: vec![a * b, c] }, vec![SampleInput::float(&[a, b, c], Fill::Normal)])]
    }
}

/// Sizes of a sample.
fn sizes(rng: &mut SampleRng) -> [usize; 3] {
    [0; 3].map(|_| rng.size(2, 7))
}

impl Op for Reshape {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let elements = self.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        match elements == Some(inputs[0].elements()) {
            true => Ok(smallvec![inputs[0].with_shape(&self.shape)]),
            false => OpError::new(format!("cannot reshape {} to {:?}", inputs[0], self.shape)),
        }
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::view(0, 0, 0)]
    }
    fn class(&self) -> Class {
        Class::View
    }
    fn cost(&self, _: &[Type], _: &[Type]) -> Cost {
        Cost::default()
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn cpu(&self, _: &CpuIo<'_>) {}
    fn cuda(&self, _: &mut Launch<'_>) -> Result<(), CudaError> {
        Ok(())
    }
}

impl Differentiable for Reshape {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let (dy, shape) = (cx.grad0(), cx.graph.shape(cx.input(0)).to_vec());
        Ok(smallvec![Some(cx.add1(Reshape { shape }, &[dy])?)])
    }
}

/// Dimensions in another order: output dimension `i` is input dimension `order[i]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Permute {
    pub order: Vec<usize>,
}

impl Permute {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let input = SampleInput::float(&sizes(rng), Fill::Normal);
        vec![
            Sample::new(Permute { order: vec![2, 0, 1] }, vec![input.clone()]),
            Sample::new(Permute::transpose(3), vec![input]),
        ]
    }

    /// Swaps the last two dimensions of a value of this rank.
    pub(crate) fn transpose(rank: usize) -> Permute {
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(rank - 1, rank - 2);
        Permute { order }
    }
}

impl Op for Permute {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let mut sorted = self.order.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..inputs[0].rank()) {
            return OpError::new(format!("{:?} does not order the dimensions of {}", self.order, inputs[0]));
        }
        let pick = |dims: &Dims| self.order.iter().map(|&i| dims[i]).collect();
        Ok(smallvec![Type { dtype: inputs[0].dtype, shape: pick(&inputs[0].shape), strides: pick(&inputs[0].strides) }])
    }
    fn accepts(&self, _: usize, _: &Type) -> bool {
        true
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::view(0, 0, 0)]
    }
    fn class(&self) -> Class {
        Class::View
    }
    fn cost(&self, _: &[Type], _: &[Type]) -> Cost {
        Cost::default()
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn cpu(&self, _: &CpuIo<'_>) {}
    fn cuda(&self, _: &mut Launch<'_>) -> Result<(), CudaError> {
        Ok(())
    }
}

impl Differentiable for Permute {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let mut order = vec![0; self.order.len()];
        self.order.iter().enumerate().for_each(|(to, &from)| order[from] = to);
        let dy = cx.grad0();
        Ok(smallvec![Some(cx.add1(Permute { order }, &[dy])?)])
    }
}

/// `start..start + len` of one dimension.
#[derive(Debug, Clone, PartialEq)]
pub struct Slice {
    pub axis: usize,
    pub start: usize,
    pub len: usize,
}

impl Slice {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let shape = sizes(rng);
        let slice = |axis: usize| Slice { axis, start: 1, len: shape[axis] - 1 };
        (0..3).map(|axis| Sample::new(slice(axis), vec![SampleInput::float(&shape, Fill::Normal)])).collect()
    }
}

impl Op for Slice {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let end = self.start.checked_add(self.len);
        if self.axis >= inputs[0].rank() || end.is_none_or(|end| end > inputs[0].shape[self.axis]) {
            return OpError::new(format!("{self:?} is outside {}", inputs[0]));
        }
        let mut ty = inputs[0].clone();
        ty.shape[self.axis] = self.len;
        Ok(smallvec![ty])
    }
    fn accepts(&self, _: usize, _: &Type) -> bool {
        true
    }
    fn aliases(&self, inputs: &[Type]) -> Aliases {
        smallvec![Alias::view(0, 0, self.start * inputs[0].strides[self.axis])]
    }
    fn class(&self) -> Class {
        Class::View
    }
    fn cost(&self, _: &[Type], _: &[Type]) -> Cost {
        Cost::default()
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn cpu(&self, _: &CpuIo<'_>) {}
    fn cuda(&self, _: &mut Launch<'_>) -> Result<(), CudaError> {
        Ok(())
    }
}

impl Differentiable for Slice {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let (dy, whole) = (cx.grad0(), cx.graph.shape(cx.input(0))[self.axis]);
        Ok(smallvec![Some(cx.add1(Concat::padding(self, whole), &[dy])?)])
    }
}

/// One dimension cut into consecutive parts of these lengths, each an output.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    pub axis: usize,
    pub lens: Vec<usize>,
}

impl Split {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let shape = sizes(rng);
        let split = |axis: usize| Split { axis, lens: vec![1, shape[axis] - 1] };
        (0..3).map(|axis| Sample::new(split(axis), vec![SampleInput::float(&shape, Fill::Normal)])).collect()
    }

    pub fn even(axis: usize, whole: usize, parts: usize) -> Split {
        Split { axis, lens: vec![whole / parts; parts] }
    }
}

impl Op for Split {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        if self.axis >= inputs[0].rank() || self.lens.iter().sum::<usize>() != inputs[0].shape[self.axis] {
            return OpError::new(format!("{self:?} does not cover {}", inputs[0]));
        }
        let part = |&len: &usize| {
            let mut ty = inputs[0].clone();
            ty.shape[self.axis] = len;
            ty
        };
        Ok(self.lens.iter().map(part).collect())
    }
    fn accepts(&self, _: usize, _: &Type) -> bool {
        true
    }
    fn aliases(&self, inputs: &[Type]) -> Aliases {
        let step = inputs[0].strides[self.axis];
        let starts = self.lens.iter().scan(0, |next, len| Some(std::mem::replace(next, *next + len)));
        starts.enumerate().map(|(output, start)| Alias::view(output, 0, start * step)).collect()
    }
    fn class(&self) -> Class {
        Class::View
    }
    fn cost(&self, _: &[Type], _: &[Type]) -> Cost {
        Cost::default()
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn cpu(&self, _: &CpuIo<'_>) {}
    fn cuda(&self, _: &mut Launch<'_>) -> Result<(), CudaError> {
        Ok(())
    }
}

impl Differentiable for Split {
    /// The parts' gradients side by side; a part without a gradient counts as zero.
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let present: Vec<bool> = (0..self.lens.len()).map(|i| cx.grad(i).is_some()).collect();
        let grads: Vec<ValueId> = (0..self.lens.len()).filter_map(|i| cx.grad(i)).collect();
        let op = Concat { axis: self.axis, lens: self.lens.clone(), present };
        Ok(smallvec![Some(cx.add1(op, &grads)?)])
    }
}
