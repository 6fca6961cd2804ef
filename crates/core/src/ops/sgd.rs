//! Stochastic gradient descent with momentum and coupled weight decay, as PyTorch computes it.

use super::cuda::{refuse_f64, source, sweep_with, typed};
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

/// Inputs: w, the momentum's buffer (absent if `momentum` is 0), g, learning rate, clip factor, and `rng` for
/// stochastic rounding. Overwrites w and the buffer, which starts at zero; g too, with zeros, if it is an accumulator that
/// the next step starts from. A clip factor that is not finite skips the step: w and the buffer stay as they are.
#[derive(Debug, Clone, PartialEq)]
pub struct Sgd {
    pub momentum: f64,
    pub weight_decay: f64,
    pub zero_gradient: bool,
    pub rounding: Option<Rounding>,
}

impl Sgd {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let shape = [rng.size(1, 20), rng.size(1, 20)];
        let sample = |momentum: f64, zero_gradient: bool| {
            let op = Sgd { momentum, weight_decay: 0.1, zero_gradient, rounding: None };
            let tensors = op.gradient() + 1;
            let tensors = (0..tensors).map(|_| SampleInput::constant(&shape, Fill::Normal));
            let scalars = [0.1, 0.5].map(|x| SampleInput::constant(&[1], Fill::Value(x)));
            Sample::plain(op, tensors.chain(scalars).collect())
        };
        vec![sample(0.9, true), sample(0.9, false), sample(0.0, true)]
    }

    fn has_buffer(&self) -> bool {
        self.momentum != 0.0
    }

    /// The index of the gradient among the inputs.
    fn gradient(&self) -> usize {
        1 + self.has_buffer() as usize
    }

    /// How many leading inputs are overwritten.
    fn overwritten(&self) -> usize {
        self.gradient() + self.zero_gradient as usize
    }
}

impl Op for Sgd {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let gradient = self.gradient();
        let Some((tensors, [_, _, more @ ..])) = inputs.split_at_checked(gradient + 1) else {
            return OpError::new("needs w, the momentum if there is one, g, learning rate and clip factor");
        };
        if tensors.iter().any(|tensor| tensor.shape != tensors[0].shape) {
            return OpError::new("w, the momentum and g differ in shape");
        }
        Rounding::check(self.rounding, more)?;
        Ok(Results::from(&inputs[..self.overwritten()]))
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        (0..self.overwritten()).map(|i| Alias::must(i, i)).collect()
    }
    fn class(&self) -> Class {
        Class::Update
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: 6.0 * inputs[0].elements() as f64, bytes: Cost::traffic(inputs, outputs) }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => self.run::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let (inputs, gradient) = (launch.inputs, self.gradient());
        let (w, g, lr, clip) = (&inputs[0], &inputs[gradient], &inputs[gradient + 1], &inputs[gradient + 2]);
        let buffer = if self.has_buffer() { &inputs[1] } else { w };
        let types = [("T", w), ("M", buffer), ("G", g), ("S", lr), ("C", clip)];
        let kernel = Rounding::define(self.rounding, typed(source!("sgd", "map", "sweep", "rounding"), "sgd", &types))
            .define("MOMENTUM", u32::from(self.has_buffer()))
            .define("ZERO_GRADIENT", u32::from(self.zero_gradient));
        let constants = [self.momentum, self.weight_decay].map(|x| Arg::F32(x as f32));
        let (words, rng) = Rounding::in_sweep(self.rounding, inputs.get(gradient + 3));
        let more: Vec<Arg> = [lr, clip].into_iter().map(Arg::from).chain(constants).chain([rng]).collect();
        sweep_with(launch, kernel, &[w, buffer, g], words, &more)
    }
}

impl Sgd {
    fn run<T: Float + Element>(&self, io: &CpuIo<'_>) {
        let pointer = |i: usize| SharedMut::new(io.input_ptr(i) as *mut T);
        let (w, buffer, g) = (pointer(0), self.has_buffer().then(|| pointer(1)), pointer(self.gradient()));
        let [lr, clip] = [1, 2].map(|i| io.scalar::<T>(self.gradient() + i));
        if !clip.to_f64().is_finite() {
            return if self.zero_gradient {
                clear(g, io.output_type(0).elements())
            };
        }
        let (momentum, decay) = (T::of(self.momentum), T::of(self.weight_decay));
        ranges(io.output_type(0).elements(), |range| {
            // SAFETY: ranges are disjoint and inside all tensors.
            let [w, g] = [w, g].map(|p| unsafe { p.slice(range.start, range.len()) });
            // SAFETY: as above: the buffer is as long as w.
            let buffer = buffer.map(|p| unsafe { p.slice(range.start, range.len()) });
            simd(
                #[inline(always)]
                || {
                    match buffer {
                        Some(buffer) => {
                            for ((w, b), g) in w.iter_mut().zip(buffer).zip(&*g) {
                                *b = momentum.mul_add(*b, slope(*w, *g, clip, decay));
                                *w -= lr * *b;
                            }
                        }
                        None => {
                            for (w, g) in w.iter_mut().zip(&*g) {
                                *w -= lr * slope(*w, *g, clip, decay);
                            }
                        }
                    }
                    if self.zero_gradient {
                        g.fill(T::ZERO);
                    }
                },
            );
        });
    }
}

/// The clipped gradient plus that of the decay.
#[inline(always)]
fn slope<T: Float>(w: T, g: T, clip: T, decay: T) -> T {
    decay.mul_add(w, g * clip)
}
