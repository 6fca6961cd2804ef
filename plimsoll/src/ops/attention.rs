//! Fused self-attention over a packed qkv: the scores are never stored, in either direction.

use super::*;
use crate::exec::cpu::Element;
use crate::exec::cpu::float::Float;
use crate::exec::cpu::kernels::attention::{self as kernel, Options, Shape, View, ViewMut};
use crate::exec::cpu::random::Stream;
use crate::graph::DType;
use crate::with_float;

/// Inputs: qkv (B, T, 3, H, D); then a key mask i32 (B, T), 0 for padding, if there is one; then the random state if
/// weights are dropped. Outputs: (B, T, H, D), and log Σ exp of each row of scores (B, H, T).
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    pub scale: f64,
    /// A position sees itself and what lies before it.
    pub causal: bool,
    pub key_mask: bool,
    /// Dropout of the attention weights: probability and site.
    pub dropout: Option<(f32, u64)>,
}

impl Attention {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let mut samples = Vec::new();
        for (causal, key_mask, dropout) in
            [(false, false, None), (true, false, None), (false, true, None), (true, true, Some((0.3, 7)))]
        {
            let (batch, time, heads) = (rng.size(1, 3), rng.size(1, 40), rng.size(1, 3));
            let width = [2, 3, 8, 16, 20, 33][rng.size(0, 5)];
            let op = Attention { scale: (width as f64).powf(-0.5), causal, key_mask, dropout };
            let mut inputs = vec![SampleInput::float(&[batch, time, 3, heads, width], Fill::Normal)];
            if key_mask {
                inputs.push(SampleInput::new(Type::new(DType::I32, &[batch, time]), Fill::Mask));
            }
            if dropout.is_some() {
                inputs.push(SampleInput::new(Type::new(DType::I64, &[3]), Fill::Ids(100)));
            }
            samples.push(Sample::new(op, inputs).first_output());
        }
        samples
    }

    fn shape(qkv: &Type) -> Shape {
        let d = &qkv.shape;
        Shape { batch: d[0], q_len: d[1], k_len: d[1], heads: d[3], head_dim: d[4] }
    }

    fn extra_inputs(&self) -> usize {
        self.key_mask as usize + self.dropout.is_some() as usize
    }

    /// Masks and dropout; `first` is the index of the first input after the tensors.
    fn options<T: Float>(&self, io: &CpuIo<'_>, first: usize) -> Options<T> {
        let key_mask = self.key_mask.then(|| io.input::<i32>(first).as_ptr());
        let dropout = self.dropout.map(|(p, site)| {
            let state = io.input::<i64>(first + self.key_mask as usize);
            let stream = Stream::new(state[0] as u64, site, state[1] as u64);
            kernel::Dropout { stream, p, first_sample: state[2] as u32 }
        });
        Options { scale: T::of(self.scale), causal: self.causal, key_mask, dropout }
    }
}

impl Op for Attention {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        let [batch, time, 3, heads, width] = inputs[0].shape[..] else {
            return OpError::new(format!("{} is not a packed qkv (batch, time, 3, heads, width)", inputs[0]));
        };
        if inputs.len() != 1 + self.extra_inputs() || (self.key_mask && inputs[1].shape[..] != [batch, time]) {
            return OpError::new("the key mask has another shape than (batch, time)");
        }
        if self.dropout.is_some() && (time > kernel::LIMIT || heads > kernel::LIMIT) {
            return OpError::new(format!("attention dropout counts up to {} positions and heads", kernel::LIMIT));
        }
        Ok(vec![inputs[0].with_shape(&[batch, time, heads, width]), inputs[0].with_shape(&[batch, heads, time])])
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        let s = Attention::shape(&inputs[0]);
        let seen = if self.causal { 0.5 } else { 1.0 } * (s.batch * s.heads * s.q_len) as f64 * s.k_len as f64;
        Cost { flops: seen * (4.0 * s.head_dim as f64 + 12.0), bytes: Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        kernel::forward_scratch(Attention::shape(&inputs[0]), target.threads) * inputs[0].dtype.bytes()
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => self.forward::<T>(io))
    }
}

impl Attention {
    fn forward<T: Float + Element>(&self, io: &CpuIo<'_>) {
        let [q, k, v] = thirds(io.input_type(0), io.input_ptr(0).cast::<T>());
        let out = ViewMut { ptr: io.output_ptr(0).cast(), strides: rows(io.output_type(0)) };
        let lse = io.output::<T>(1).as_mut_ptr();
        // SAFETY: the views cover the tensors, whose slots are apart.
        unsafe {
            kernel::forward(Attention::shape(io.input_type(0)), q, k, v, self.options(io, 1), out, lse, io.workspace())
        }
    }
}

impl Differentiable for Attention {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<Vec<Option<ValueId>>, GraphError> {
        let mut inputs = vec![cx.input(0), cx.output(0), cx.output(1), cx.grad0()];
        inputs.extend(&cx.inputs()[1..]);
        let mut grads = vec![None; cx.inputs().len()];
        grads[0] = Some(cx.add1(AttentionGrad(self.clone()), &inputs)?);
        Ok(grads)
    }
}

/// Inputs: qkv, out, lse, dout, then the mask and random state. Output: the gradient of qkv, packed alike.
#[derive(Debug, Clone, PartialEq)]
struct AttentionGrad(Attention);

impl Op for AttentionGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        Ok(vec![inputs[0].clone()])
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        let forward = self.0.cost(&inputs[..1], &[]);
        Cost { flops: 2.5 * forward.flops, bytes: Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        kernel::backward_scratch(Attention::shape(&inputs[0]), target.threads) * inputs[0].dtype.bytes()
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => self.backward::<T>(io))
    }
}

impl AttentionGrad {
    fn backward<T: Float + Element>(&self, io: &CpuIo<'_>) {
        let [q, k, v] = thirds(io.input_type(0), io.input_ptr(0).cast::<T>());
        let grads = thirds(io.output_type(0), io.output_ptr(0).cast::<T>());
        let [dq, dk, dv] = grads.map(|g| ViewMut { ptr: g.ptr.cast_mut(), strides: g.strides });
        let view = |i: usize| View { ptr: io.input_ptr(i).cast::<T>(), strides: rows(io.input_type(i)) };
        let (shape, lse) = (Attention::shape(io.input_type(0)), io.input::<T>(2).as_ptr());
        let options = self.0.options(io, 4);
        // SAFETY: the views cover the tensors, whose slots are apart; the thirds interleave without overlap.
        unsafe { kernel::backward(shape, q, k, v, view(1), lse, view(3), options, dq, dk, dv, io.workspace()) }
    }
}

/// q, k and v inside a packed qkv, indexed (batch, time, head, dim).
fn thirds<T>(ty: &Type, ptr: *const T) -> [View<T>; 3] {
    let s = &ty.strides;
    [0, 1, 2].map(|i| View { ptr: ptr.wrapping_add(i * s[2]), strides: [s[0], s[1], s[3], s[4]] })
}

fn rows(ty: &Type) -> [usize; 4] {
    [ty.strides[0], ty.strides[1], ty.strides[2], ty.strides[3]]
}
