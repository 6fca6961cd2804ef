//! Activation functions: ReLU, GELU (exact and tanh), tanh, sigmoid, SiLU.

use super::*;
use crate::exec::cpu::elementwise::{map1, map2};
use crate::exec::cpu::float::Float;
use crate::with_float;

#[derive(Debug, Clone, PartialEq)]
pub struct Activate(pub Activation);

impl Activate {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let kinds = [
            Activation::Relu,
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Tanh,
            Activation::Sigmoid,
            Activation::Silu,
        ];
        let shape = [rng.size(1, 9), rng.size(1, 70)];
        kinds.map(|kind| Sample::new(Activate(kind), vec![SampleInput::float(&shape, Fill::AwayFromZero)])).into()
    }
}

impl Op for Activate {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        Ok(vec![inputs[0].contiguous()])
    }
    fn aliases(&self, _: &[Type]) -> Vec<Alias> {
        vec![Alias::may(0, 0)]
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, 20.0)
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => match self.0 {
            Activation::None => map1::<T>(io, 0, |x| x),
            Activation::Relu => map1::<T>(io, 0, relu),
            Activation::Gelu => map1::<T>(io, 0, gelu),
            Activation::GeluTanh => map1::<T>(io, 0, gelu_tanh),
            Activation::Tanh => map1::<T>(io, 0, T::tanh),
            Activation::Sigmoid => map1::<T>(io, 0, T::sigmoid),
            Activation::Silu => map1::<T>(io, 0, |x| x * x.sigmoid()),
        })
    }
}

impl Differentiable for Activate {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<Vec<Option<ValueId>>, GraphError> {
        let (x, dy) = (cx.input(0), cx.grad0());
        Ok(vec![Some(cx.add1(ActivateGrad(self.0), &[x, dy])?)])
    }
}

/// `dx = act'(x) · dy`.
#[derive(Debug, Clone, PartialEq)]
pub struct ActivateGrad(pub Activation);

impl Op for ActivateGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        Ok(vec![inputs[0].contiguous()])
    }
    fn aliases(&self, _: &[Type]) -> Vec<Alias> {
        vec![Alias::may(0, 1), Alias::may(0, 0)]
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, 30.0)
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => match self.0 {
            Activation::None => map2::<T>(io, 0, 1, |_, dy| dy),
            Activation::Relu => map2::<T>(io, 0, 1, |x, dy| if x > T::ZERO { dy } else { T::ZERO }),
            Activation::Gelu => map2::<T>(io, 0, 1, |x, dy| dy * gelu_slope(x)),
            Activation::GeluTanh => map2::<T>(io, 0, 1, |x, dy| dy * gelu_tanh_slope(x)),
            Activation::Tanh => map2::<T>(io, 0, 1, |x, dy| {
                let y = x.tanh();
                dy * (T::ONE - y * y)
            }),
            Activation::Sigmoid => map2::<T>(io, 0, 1, |x, dy| {
                let y = x.sigmoid();
                dy * y * (T::ONE - y)
            }),
            Activation::Silu => map2::<T>(io, 0, 1, |x, dy| {
                let s = x.sigmoid();
                dy * s * (T::ONE + x * (T::ONE - s))
            }),
        })
    }
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

#[inline(always)]
fn gelu_tanh<T: Float>(x: T) -> T {
    let inner = T::of(TANH_SCALE) * (x + T::of(TANH_CUBE) * x * x * x);
    T::of(0.5) * x * (T::ONE + inner.tanh())
}

#[inline(always)]
fn gelu_tanh_slope<T: Float>(x: T) -> T {
    let t = (T::of(TANH_SCALE) * (x + T::of(TANH_CUBE) * x * x * x)).tanh();
    let inner_slope = T::of(TANH_SCALE) * (T::ONE + T::of(3.0 * TANH_CUBE) * x * x);
    T::of(0.5) * (T::ONE + t) + T::of(0.5) * x * (T::ONE - t * t) * inner_slope
}
