//! AdamW with decoupled weight decay, as PyTorch computes it, in one pass over (w, m, v, g).

use super::cuda::{mismatch, refuse_f64, source, sweep_with, typed};
use super::*;
use crate::graph::Aliases;
use crate::kernels::cpu::Element;
use crate::kernels::cpu::elementwise::{clear, ranges};
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::SharedMut;
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::Arg;
use crate::types::Results;
use plimsoll_base::simd::simd;

/// Inputs: w, m, v, g, learning rate, 1 − β₁ᵗ, 1 − β₂ᵗ, clip factor, and `rng` if it rounds stochastically. Overwrites w, m
/// and v; g too, with zeros, if it is an accumulator that the next step starts from. On a card g may be of another type
/// than w: in mixed precision it is as the backward pass computes it. A clip factor that is not finite skips the step: w,
/// m and v stay as they are.
#[derive(Debug, Clone, PartialEq)]
pub struct AdamW {
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    pub weight_decay: f64,
    pub zero_gradient: bool,
    pub rounding: Option<Rounding>,
}

impl AdamW {
    /// A step, one that leaves zeros for the next gradient, and one that is skipped.
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let shape = [rng.size(1, 20), rng.size(1, 20)];
        let sample = |zero_gradient: bool, clip: f64| {
            let op = AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.1, zero_gradient, rounding: None };
            // A second moment is a mean of squares.
            let fills = [Fill::Normal, Fill::Normal, Fill::Uniform(0.1, 2.0), Fill::Normal];
            let tensors = fills.map(|fill| SampleInput::constant(&shape, fill));
            let scalars = [0.1, 0.19, 0.002, clip].map(|x| SampleInput::constant(&[1], Fill::Value(x)));
            Sample::plain(op, tensors.into_iter().chain(scalars).collect())
        };
        vec![sample(false, 1.0), sample(true, 0.5), sample(true, f64::INFINITY)]
    }
}

impl Op for AdamW {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let [w, m, v, g, ..] = inputs else { return OpError::new("needs w, m, v, g and four scalars") };
        if inputs.len() < 8 || m != v || m.shape != w.shape || g.shape != w.shape {
            return OpError::new("w, m, v and g differ in shape, or m and v in type");
        }
        Rounding::check(self.rounding, &inputs[8..])?;
        Ok(Results::from(&inputs[..if self.zero_gradient { 4 } else { 3 }]))
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        (0..if self.zero_gradient { 4 } else { 3 }).map(|i| Alias::must(i, i)).collect()
    }
    fn class(&self) -> Class {
        Class::Update
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: 15.0 * inputs[0].elements() as f64, bytes: Cost::traffic(inputs, outputs) }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => self.run::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let [w, m, v, g, lr, correction1, correction2, clip, rng @ ..] = launch.inputs else {
            return Err(mismatch(self, launch, "w, m, v, g and four scalars"));
        };
        if rng.len() != usize::from(self.rounding.is_some()) {
            return Err(mismatch(self, launch, "words of chance where it rounds by them, and only there"));
        }
        let types = [("T", w), ("M", m), ("G", g), ("S", lr), ("C", clip)];
        let kernel = typed(source!("adamw", "map", "sweep", "rounding"), "adamw", &types);
        let constants = [1.0 - self.beta1, self.beta2, 1.0 - self.beta2, self.eps, self.weight_decay];
        let scalars = [lr, correction1, correction2, clip].map(Arg::from);
        let (words, rng) = Rounding::in_sweep(self.rounding, rng.first());
        let more = scalars.into_iter().chain(constants.map(|x| Arg::F32(x as f32))).chain([rng]);
        let more: Vec<Arg> = more.collect();
        let kernel = Rounding::define(self.rounding, kernel).define("ZERO_GRADIENT", u32::from(self.zero_gradient));
        sweep_with(launch, kernel, &[w, m, v, g], words, &more)
    }
}

impl AdamW {
    fn run<T: Float + Element>(&self, io: &CpuIo<'_>) {
        let [lr, correction1, correction2, clip] = [4, 5, 6, 7].map(|i| io.scalar::<T>(i));
        let pointer = |i: usize| SharedMut::new(io.output_ptr(i).cast::<T>());
        let (w, m, v, g) = (pointer(0), pointer(1), pointer(2), SharedMut::new(io.input_ptr(3) as *mut T));
        if !clip.to_f64().is_finite() {
            return if self.zero_gradient {
                clear(g, io.output_type(0).elements())
            };
        }
        let decay = T::ONE - lr * T::of(self.weight_decay);
        let (step, root) = (lr / correction1, correction2.sqrt());
        let (b1, b2, eps) = (T::of(1.0 - self.beta1), T::of(self.beta2), T::of(self.eps));
        let b2_rest = T::of(1.0 - self.beta2);
        ranges(io.output_type(0).elements(), |range| {
            // SAFETY: ranges are disjoint and inside all four tensors.
            let [w, m, v, g] = [w, m, v, g].map(|p| unsafe { p.slice(range.start, range.len()) });
            simd(
                #[inline(always)]
                || {
                    for i in 0..w.len() {
                        let grad = g[i] * clip;
                        m[i] = b1.mul_add(grad - m[i], m[i]);
                        v[i] = (b2_rest * grad).mul_add(grad, b2 * v[i]);
                        w[i] = w[i] * decay - step * m[i] / (v[i].sqrt() / root + eps);
                    }
                    if self.zero_gradient {
                        g.fill(T::ZERO);
                    }
                },
            );
        });
    }
}
