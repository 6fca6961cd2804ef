//! Activation functions: ReLU, GELU (exact, tanh and quick), tanh, sigmoid, SiLU.

use super::cuda::{map, refuse_f64, source, typed};
use super::*;
use crate::graph::{Aliases, InputGrads};
use crate::kernels::cpu::Element;
use crate::kernels::cpu::elementwise::{map1, map2};
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::gemm::QUICK;
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Kernel, Source};
use crate::types::Results;
use smallvec::smallvec;

#[derive(Debug, Clone, PartialEq)]
pub struct Activate(pub Activation);

/// Operations of a slope besides those of the function itself.
pub(super) const SLOPE_FLOPS: f64 = 8.0;

impl Activation {
    /// Operations per element.
    pub(super) fn flops(self) -> f64 {
        match self {
            Activation::None => 0.0,
            Activation::Relu => 1.0,
            Activation::Tanh | Activation::Sigmoid | Activation::Silu | Activation::QuickGelu => 18.0,
            Activation::GeluTanh => 24.0,
            Activation::Gelu => 30.0,
        }
    }
}

impl Activate {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let kinds = [
            Activation::Relu,
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Tanh,
            Activation::Sigmoid,
            Activation::Silu,
            Activation::QuickGelu,
        ];
        let shape = [rng.size(1, 9), rng.size(1, 70)];
        kinds.map(|kind| Sample::new(Activate(kind), vec![SampleInput::float(&shape, Fill::AwayFromZero)])).into()
    }
}

impl Op for Activate {
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
        Cost::elementwise(inputs, outputs, self.0.flops())
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => match self.0 {
            Activation::None => map1::<T>(io, 0, #[inline(always)] |x| x),
            Activation::Relu => map1::<T>(io, 0, relu),
            Activation::Gelu => map1::<T>(io, 0, gelu),
            Activation::GeluTanh => map1::<T>(io, 0, gelu_tanh),
            Activation::Tanh => map1::<T>(io, 0, T::tanh),
            Activation::Sigmoid => map1::<T>(io, 0, T::sigmoid),
            Activation::Silu => map1::<T>(io, 0, silu),
            Activation::QuickGelu => map1::<T>(io, 0, quick_gelu),
        })
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let (x, y) = (&launch.inputs[0], &launch.outputs[0]);
        map(launch, define_activation(typed(SOURCE, "activate", &[("T", x)]), self.0), &[x, y], &[])
    }
}

impl Differentiable for Activate {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let (x, dy) = (cx.input(0), cx.grad0());
        Ok(smallvec![Some(cx.add1(ActivateGrad(self.0), &[x, dy])?)])
    }
}

/// `dx = act'(x) · dy`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ActivateGrad(pub Activation);

impl Op for ActivateGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[0].contiguous()])
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::may(0, 1), Alias::may(0, 0)]
    }
    fn class(&self) -> Class {
        Class::Function
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, self.0.flops() + SLOPE_FLOPS)
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => match self.0 {
            Activation::None => slope_map::<T>(io, #[inline(always)] |_| T::ONE),
            Activation::Relu => slope_map::<T>(io, relu_slope),
            Activation::Gelu => slope_map::<T>(io, gelu_slope),
            Activation::GeluTanh => slope_map::<T>(io, gelu_tanh_slope),
            Activation::Tanh => slope_map::<T>(io, tanh_slope),
            Activation::Sigmoid => slope_map::<T>(io, sigmoid_slope),
            Activation::Silu => slope_map::<T>(io, silu_slope),
            Activation::QuickGelu => slope_map::<T>(io, quick_gelu_slope),
        })
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let (x, dy, dx) = (&launch.inputs[0], &launch.inputs[1], &launch.outputs[0]);
        map(launch, define_activation(typed(SOURCE, "activate_grad", &[("T", x)]), self.0), &[x, dy, dx], &[])
    }
}

const SOURCE: Source = source!("activation", "map", "activation");

/// The function and its slope as macros, by their names in activation.cuh.
pub(super) fn define_activation(kernel: Kernel, activation: Activation) -> Kernel {
    let (value, slope) = match activation {
        Activation::None => ("identity", "identity_slope"),
        Activation::Relu => ("relu", "relu_slope"),
        Activation::Gelu => ("gelu", "gelu_slope"),
        Activation::GeluTanh => ("gelu_tanh", "gelu_tanh_slope"),
        Activation::Tanh => ("tanhf", "tanh_slope"),
        Activation::Sigmoid => ("sigmoid", "sigmoid_slope"),
        Activation::Silu => ("silu", "silu_slope"),
        Activation::QuickGelu => ("quick_gelu", "quick_gelu_slope"),
    };
    kernel.define("ACT", value).define("SLOPE", slope)
}

/// `dx = slope(x) · dy`
fn slope_map<T: Float + Element>(io: &CpuIo<'_>, slope: impl Fn(T) -> T + Sync) {
    map2::<T>(
        io,
        0,
        1,
        #[inline(always)]
        |x, dy| dy * slope(x),
    );
}

/// act(x) and act'(x), for an `act` known where this is inlined.
#[inline(always)]
pub(super) fn value_and_slope<T: Float>(act: Activation, x: T) -> (T, T) {
    match act {
        Activation::None => (x, T::ONE),
        Activation::Relu => (relu(x), relu_slope(x)),
        Activation::Gelu => (gelu(x), gelu_slope(x)),
        Activation::GeluTanh => (gelu_tanh(x), gelu_tanh_slope(x)),
        Activation::Tanh => (x.tanh(), tanh_slope(x)),
        Activation::Sigmoid => (x.sigmoid(), sigmoid_slope(x)),
        Activation::Silu => (silu(x), silu_slope(x)),
        Activation::QuickGelu => (quick_gelu(x), quick_gelu_slope(x)),
    }
}

#[inline(always)]
fn relu_slope<T: Float>(x: T) -> T {
    if x > T::ZERO { T::ONE } else { T::ZERO }
}

#[inline(always)]
fn tanh_slope<T: Float>(x: T) -> T {
    let y = x.tanh();
    T::ONE - y * y
}

#[inline(always)]
fn sigmoid_slope<T: Float>(x: T) -> T {
    let y = x.sigmoid();
    y * (T::ONE - y)
}

#[inline(always)]
fn silu<T: Float>(x: T) -> T {
    x * x.sigmoid()
}

#[inline(always)]
fn silu_slope<T: Float>(x: T) -> T {
    let s = x.sigmoid();
    s * (T::ONE + x * (T::ONE - s))
}

#[inline(always)]
fn quick_gelu<T: Float>(x: T) -> T {
    x * (T::of(QUICK) * x).sigmoid()
}

#[inline(always)]
fn quick_gelu_slope<T: Float>(x: T) -> T {
    let s = (T::of(QUICK) * x).sigmoid();
    s * (T::ONE + T::of(QUICK) * x * (T::ONE - s))
}

#[inline(always)]
fn relu<T: Float>(x: T) -> T {
    // Not `max`: NaN must stay NaN.
    if x < T::ZERO { T::ZERO } else { x }
}

#[inline(always)]
fn gelu<T: Float>(x: T) -> T {
    T::of(0.5) * x * (T::ONE + (x * T::of(std::f64::consts::FRAC_1_SQRT_2)).erf())
}

/// Φ(x) + x·φ(x)
#[inline(always)]
fn gelu_slope<T: Float>(x: T) -> T {
    let cdf = T::of(0.5) * (T::ONE + (x * T::of(std::f64::consts::FRAC_1_SQRT_2)).erf());
    let pdf = T::of(0.398_942_280_401_432_7) * (T::of(-0.5) * x * x).exp();
    cdf + x * pdf
}

const TANH_SCALE: f64 = 0.797_884_560_802_865_4; // √(2/π)
const TANH_CUBE: f64 = 0.044715;

/// √(2/π) · (x + 0.044715 x³)
#[inline(always)]
fn gelu_inner<T: Float>(x: T) -> T {
    T::of(TANH_SCALE) * (x + T::of(TANH_CUBE) * x * x * x)
}

#[inline(always)]
fn gelu_tanh<T: Float>(x: T) -> T {
    T::of(0.5) * x * (T::ONE + gelu_inner(x).tanh())
}

#[inline(always)]
fn gelu_tanh_slope<T: Float>(x: T) -> T {
    let t = gelu_inner(x).tanh();
    let inner_slope = T::of(TANH_SCALE) * (T::ONE + T::of(3.0 * TANH_CUBE) * x * x);
    T::of(0.5) * (T::ONE + t) + T::of(0.5) * x * (T::ONE - t * t) * inner_slope
}
