//! Many small linear layers side by side: each group of columns has its own weights.

use super::*;
use crate::exec::cpu::kernels::grouped_linear::{self as kernel, Shape};
use crate::with_float;

/// Inputs: x (M, G·I) (rows may lie apart), weight (G, P·O, I), bias (G, P·O). Output: (M, P, G, O): with three parts,
/// a packed qkv over all groups' heads.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupedLinear {
    pub parts: usize,
}

impl GroupedLinear {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let mut samples = Vec::new();
        for parts in [3, 1] {
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

    fn shape(&self, x: &Type, weight: &Type) -> Shape {
        Shape {
            rows: x.shape[0],
            groups: weight.shape[0],
            parts: self.parts,
            inputs: weight.shape[2],
            outputs: weight.shape[1] / self.parts.max(1),
            row_stride: if x.shape[0] > 1 { x.strides[0] } else { x.shape[1] },
        }
    }
}

fn flops(shape: &Shape) -> f64 {
    2.0 * shape.rows as f64 * (shape.groups * shape.parts * shape.outputs * shape.inputs) as f64
}

impl Op for GroupedLinear {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
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
        Ok(vec![x.with_shape(&[shape.rows, shape.parts, shape.groups, shape.outputs])])
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
        kernel::forward_scratch(self.shape(&inputs[0], &inputs[1]), target.threads) * inputs[0].dtype.bytes()
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let shape = self.shape(io.input_type(0), io.input_type(1));
        with_float!(io.output_type(0).dtype, T => {
            let (x, w, b) = (io.input_ptr(0).cast::<T>(), io.input::<T>(1), io.input::<T>(2));
            // SAFETY: the types were checked and the slots are apart.
            unsafe { kernel::forward(shape, x, w.as_ptr(), b.as_ptr(), io.output_ptr(0).cast(), io.workspace()) }
        })
    }
}

impl Differentiable for GroupedLinear {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<Vec<Option<ValueId>>, GraphError> {
        let (x, w, dy) = (cx.input(0), cx.input(1), cx.grad0());
        let shape = cx.graph.shape(w).to_vec();
        let dx = if cx.wants(0) { Some(cx.add1(GroupedInputGrad(self.clone()), &[dy, w])?) } else { None };
        let weights = cx.add(GroupedWeightGrad { op: self.clone(), shape }, &[x, dy])?;
        Ok(vec![dx, Some(weights[0]), Some(weights[1])])
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
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        Ok(vec![GroupedInputGrad::dx(&inputs[0], &inputs[1])])
    }
    fn class(&self) -> Class {
        Class::Grouped
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: flops(&self.0.shape(&outputs[0], &inputs[1])), bytes: Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        let shape = self.0.shape(&GroupedInputGrad::dx(&inputs[0], &inputs[1]), &inputs[1]);
        kernel::backward_input_scratch(shape, target.threads) * inputs[0].dtype.bytes()
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let shape = self.0.shape(io.output_type(0), io.input_type(1));
        with_float!(io.output_type(0).dtype, T => {
            let (dy, w) = (io.input::<T>(0), io.input::<T>(1));
            // SAFETY: the types were checked and the slots are apart.
            unsafe { kernel::backward_input(shape, dy.as_ptr(), w.as_ptr(), io.output_ptr(0).cast(), io.workspace()) }
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
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        Ok(vec![inputs[0].with_shape(&self.shape), inputs[0].with_shape(&self.shape[..2])])
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
        kernel::backward_weights_scratch(shape, target.threads) * inputs[0].dtype.bytes()
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
}
