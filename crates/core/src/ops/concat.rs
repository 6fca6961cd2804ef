//! Values side by side along one dimension; parts that are absent are zero.

use super::copy::{copy_strided, zero_strided};
use super::*;
use crate::graph::InputGrads;
use crate::kernels::cpu::strided;
use crate::kernels::cuda::DeviceTensor;
use crate::types::Results;
use smallvec::{SmallVec, smallvec};

/// Part `i` covers `lens[i]` of the dimension; `present[i]` says whether it is an input or zeros.
#[derive(Debug, Clone, PartialEq)]
pub struct Concat {
    pub axis: usize,
    pub lens: Vec<usize>,
    pub present: Vec<bool>,
}

impl Concat {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let (a, b, c) = (rng.size(1, 5), rng.size(1, 5), rng.size(1, 5));
        let float = |shape: &[usize]| SampleInput::float(shape, Fill::Normal);
        let gap = Concat { axis: 0, lens: vec![a, 2, b], present: vec![true, false, true] };
        vec![
            Sample::new(Concat::of(1, vec![a, b]), vec![float(&[c, a, 3]), float(&[c, b, 3])]),
            Sample::new(gap, vec![float(&[a, c]), float(&[b, c])]),
        ]
    }

    pub fn of(axis: usize, lens: Vec<usize>) -> Concat {
        let present = vec![true; lens.len()];
        Concat { axis, lens, present }
    }

    /// Zeros of length `whole` around the slice.
    pub fn padding(slice: &Slice, whole: usize) -> Concat {
        let lens = vec![slice.start, slice.len, whole - slice.start - slice.len];
        Concat { axis: slice.axis, lens, present: vec![false, true, false] }
    }

    /// (start, len, index of the input if present) of each part.
    fn parts(&self) -> impl Iterator<Item = (usize, usize, Option<usize>)> + '_ {
        let (mut start, mut input) = (0, 0);
        self.lens.iter().zip(&self.present).map(move |(&len, &present)| {
            let part = (start, len, present.then_some(input));
            start += len;
            input += present as usize;
            part
        })
    }
}

impl Op for Concat {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let mut ty = match inputs.first() {
            Some(first) if self.axis < first.rank() => first.contiguous(),
            _ => return OpError::new("concat needs an input with the dimension it joins"),
        };
        let fits = |input: &Type, len: usize| {
            input.dtype == ty.dtype
                && input.rank() == ty.rank()
                && (0..ty.rank()).all(|i| input.shape[i] == if i == self.axis { len } else { ty.shape[i] })
        };
        let present = self.parts().filter_map(|(_, len, input)| input.map(|i| (i, len))).collect::<Vec<_>>();
        if present.len() != inputs.len() || !present.iter().all(|&(i, len)| fits(&inputs[i], len)) {
            return OpError::new(format!("cannot join {inputs:?} as {self:?}"));
        }
        ty.shape[self.axis] = self.lens.iter().sum();
        Ok(smallvec![ty.contiguous()])
    }
    fn accepts(&self, _: usize, _: &Type) -> bool {
        true
    }
    fn class(&self) -> Class {
        Class::Move
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        // Short pieces through two sets of strides.
        Cost::elementwise(inputs, outputs, 8.0)
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let whole = io.output_type(0);
        for (start, len, input) in self.parts() {
            let mut part = whole.clone();
            part.shape[self.axis] = len;
            let to = io.output_ptr(0).wrapping_add(start * whole.strides[self.axis] * whole.dtype.bytes());
            // SAFETY: `part` is a window of output 0, and inputs have its shape.
            unsafe {
                match input {
                    Some(i) => strided::copy(io.input_type(i), io.input_ptr(i), &part, to),
                    None => strided::zero(&part, to),
                }
            }
        }
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let whole = &launch.outputs[0];
        for (start, len, input) in self.parts() {
            let (mut ty, offset) = (whole.ty.clone(), start * whole.ty.strides[self.axis] * whole.ty.dtype.bytes());
            ty.shape[self.axis] = len;
            let part = DeviceTensor { address: whole.address + offset as u64, ty };
            match input {
                Some(i) => copy_strided(launch, &launch.inputs[i], &part)?,
                None => zero_strided(launch, &part)?,
            }
        }
        Ok(())
    }
}

impl Differentiable for Concat {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let (dy, parts) = (cx.grad0(), self.parts().collect::<Vec<_>>());
        let mut grads = SmallVec::new();
        for (start, len, input) in parts {
            if let Some(i) = input {
                let slice = Slice { axis: self.axis, start, len };
                grads.push(if cx.wants(i) { Some(cx.add1(slice, &[dy])?) } else { None });
            }
        }
        Ok(grads)
    }
}
