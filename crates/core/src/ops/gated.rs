//! Gated activation: one half of each row, through a function, times the other half.

use super::activation::{define_activation, value_and_slope};
use super::cuda::{define_index, put, refuse_f64, source, typed, width};
use super::*;
use crate::graph::{Aliases, InputGrads};
use crate::kernels::cpu::Element;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::{parallel, parallel_chunks};
use crate::kernels::cpu::rows::{self, InPlace};
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Arg, Grid};
use crate::types::Results;
use plimsoll_base::simd::simd;
use smallvec::smallvec;

/// Input: (…, 2F), the gate's half first. Output: act(gate) · linear, (…, F).
#[derive(Debug, Clone, PartialEq)]
pub struct Gated(pub Activation);

/// Runs `$body` with `$a` a constant, so that the loops in it are compiled for one function.
macro_rules! with_activation {
    ($act:expr, $a:ident => $body:expr) => {
        with_activation!(@arms $act, $a, $body, None Relu Gelu GeluTanh Tanh Sigmoid Silu QuickGelu)
    };
    (@arms $act:expr, $a:ident, $body:expr, $($kind:ident)*) => {
        match $act {
            $(Activation::$kind => {
                const $a: Activation = Activation::$kind;
                $body
            })*
        }
    };
}

pub(super) use with_activation;

impl Gated {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let kinds = [Activation::Relu, Activation::Gelu, Activation::GeluTanh, Activation::Silu];
        let mut sample = |kind| {
            let shape = [rng.size(1, 9), 2 * rng.size(1, 40)];
            Sample::new(Gated(kind), vec![SampleInput::float(&shape, Fill::AwayFromZero)])
        };
        kinds.map(&mut sample).into()
    }
}

impl Op for Gated {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let mut shape = inputs[0].shape.clone();
        match shape.last_mut() {
            Some(width) if width.is_multiple_of(2) => *width /= 2,
            _ => return OpError::new(format!("{} has no two halves", inputs[0])),
        }
        Ok(smallvec![inputs[0].with_shape(&shape)])
    }
    fn class(&self) -> Class {
        Class::Function
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, self.0.flops() + 1.0)
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => with_activation!(self.0, ACT => {
            forward::<T>(io, #[inline(always)] |gate, linear| value_and_slope(ACT, gate).0 * linear)
        }))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        launch_halves(launch, "gated", self.0)
    }
}

impl Differentiable for Gated {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let inputs = [cx.input(0), cx.grad0()];
        Ok(smallvec![Some(cx.add1(GatedGrad(self.0), &inputs)?)])
    }
}

/// Inputs: x (…, 2F) and dy (…, F). Output: dx, over x if nothing else reads it.
#[derive(Debug, Clone, PartialEq)]
struct GatedGrad(Activation);

impl Op for GatedGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[0].contiguous()])
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::may(0, 0)]
    }
    fn class(&self) -> Class {
        Class::Function
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        // The output holds two elements for each that goes through the function.
        Cost::elementwise(inputs, outputs, 0.5 * (self.0.flops() + activation::SLOPE_FLOPS))
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => with_activation!(self.0, ACT => {
            backward::<T>(io, #[inline(always)] |gate| value_and_slope(ACT, gate))
        }))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        launch_halves(launch, "gated_grad", self.0)
    }
}

/// A kernel whose arguments are the inputs, the output, the elements of one half of all rows and those of half a row.
fn launch_halves(launch: &mut Launch<'_>, entry: &'static str, activation: Activation) -> Result<(), CudaError> {
    let tensors: Vec<_> = launch.inputs.iter().chain(&launch.outputs[..1]).collect();
    let x = &launch.inputs[0];
    let (row, elements) = (half(&x.ty), x.ty.elements() / 2);
    let width = width(&tensors, row);
    let kernel = typed(source!("gated", "map", "activation"), entry, &[("T", x)]).define("WIDTH", width);
    let args: Vec<Arg> = tensors.into_iter().map(Arg::from).chain([elements.into(), row.into()]).collect();
    let kernel = define_index(define_activation(kernel, activation), elements);
    put(launch, &kernel, Grid::over(elements, width), elements, &args)
}

fn forward<T: Float + Element>(io: &CpuIo<'_>, f: impl Fn(T, T) -> T + Sync) {
    let (x, width) = (io.input::<T>(0), half(io.input_type(0)));
    let step = rows::rows_per_task(width);
    parallel_chunks(io.output::<T>(0), step * width, |task, piece| {
        simd(
            #[inline(always)]
            || {
                let x = &x[2 * task * step * width..];
                for (y, x) in piece.chunks_exact_mut(width).zip(x.chunks_exact(2 * width)) {
                    let (gate, linear) = x.split_at(width);
                    for ((y, gate), linear) in y.iter_mut().zip(gate).zip(linear) {
                        *y = f(*gate, *linear);
                    }
                }
            },
        )
    });
}

fn backward<T: Float + Element>(io: &CpuIo<'_>, f: impl Fn(T) -> (T, T) + Sync) {
    let (dy, width) = (io.input::<T>(1), half(io.input_type(0)));
    let (dx, step, count) = (InPlace::<T>::new(io, 0, 0), rows::rows_per_task(width), dy.len() / width);
    parallel(count.div_ceil(step), |task| {
        simd(
            #[inline(always)]
            || {
                for row in task * step..((task + 1) * step).min(count) {
                    // SAFETY: a row belongs to one task.
                    let (gate, linear) = unsafe { dx.load(2 * row * width, 2 * width) }.split_at_mut(width);
                    for ((gate, linear), dy) in gate.iter_mut().zip(linear).zip(&dy[row * width..][..width]) {
                        let (value, slope) = f(*gate);
                        *gate = slope * *linear * *dy;
                        *linear = value * *dy;
                    }
                }
            },
        )
    });
}

/// F of (…, 2F); at least 1.
fn half(ty: &Type) -> usize {
    (ty.shape.last().copied().unwrap_or(0) / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::testing::{f32s, run};
    use super::*;

    #[test]
    fn the_first_half_is_the_gate() {
        let x = || f32s(&[2, 4], &[1.0, -1.0, 10.0, 20.0, -2.0, 3.0, 30.0, 40.0]);
        assert_eq!(run(&Gated(Activation::Relu), &[x()]), [10.0, 0.0, 0.0, 120.0]);
        let grad = run(&GatedGrad(Activation::Relu), &[x(), f32s(&[2, 2], &[1.0, 1.0, 1.0, 2.0])]);
        assert_eq!(grad, [10.0, 0.0, 1.0, 0.0, 0.0, 80.0, 0.0, 6.0]);
        assert!(Gated(Activation::Relu).outputs(&[Type::new(crate::types::DType::F32, &[2, 3])]).is_err());
    }
}
