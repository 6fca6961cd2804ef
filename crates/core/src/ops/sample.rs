//! Example uses of an op, which drive the conformance tests.

use super::*;
use crate::graph::OpRef;
use crate::types::DType;
use plimsoll_base::random::{Stream, site};
use std::sync::Arc;

/// How a test input is filled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    Normal,
    /// Normal, but not so near to zero that a kink there would spoil a finite difference.
    AwayFromZero,
    Uniform(f64, f64),
    /// Integers below this.
    Ids(usize),
    /// Zeros and ones, at least one of them a one.
    Mask,
    Value(f64),
    /// Plus or minus this.
    Sign(f64),
}

#[derive(Clone, Debug)]
pub struct SampleInput {
    pub ty: Type,
    pub fill: Fill,
    /// Whether the gradient with respect to it is checked.
    pub checked: bool,
}

impl SampleInput {
    /// A float input; conformance tests run it in f32 and in f64.
    pub fn float(shape: &[usize], fill: Fill) -> SampleInput {
        SampleInput { ty: Type::new(DType::F32, shape), fill, checked: true }
    }

    /// A float input that no gradient flows to.
    pub(crate) fn constant(shape: &[usize], fill: Fill) -> SampleInput {
        SampleInput { checked: false, ..SampleInput::float(shape, fill) }
    }

    pub fn new(ty: Type, fill: Fill) -> SampleInput {
        SampleInput { checked: ty.dtype.is_float(), ty, fill }
    }
}

/// One use of an op with inputs of given types.
#[derive(Clone, Debug)]
pub struct Sample {
    pub op: OpRef,
    pub inputs: Vec<SampleInput>,
    /// Differentiate output 0 as it is, instead of a random combination of all outputs.
    pub scalar_loss: bool,
    /// Differentiate a random combination of output 0 alone.
    pub first_output: bool,
}

impl Sample {
    pub fn new(op: impl Differentiable + 'static, inputs: Vec<SampleInput>) -> Sample {
        Sample { op: OpRef::Forward(Arc::new(op)), inputs, scalar_loss: false, first_output: false }
    }

    /// A sample of an op that is not differentiated.
    pub fn plain(op: impl Op + 'static, inputs: Vec<SampleInput>) -> Sample {
        Sample { op: OpRef::Plain(Arc::new(op)), inputs, scalar_loss: false, first_output: false }
    }

    /// For ops whose other outputs are by-products (log-sum-exp, statistics) that take no gradient.
    pub(crate) fn scalar_loss(self) -> Sample {
        Sample { scalar_loss: true, ..self }
    }

    /// The same where output 0 is not a scalar.
    pub(crate) fn first_output(self) -> Sample {
        Sample { first_output: true, ..self }
    }
}

/// Random sizes and values from a printed seed.
pub struct SampleRng {
    stream: Stream,
    next: u32,
}

impl SampleRng {
    pub fn new(seed: u64) -> SampleRng {
        SampleRng { stream: Stream::new(seed, site("samples"), 0), next: 0 }
    }

    pub fn word(&mut self) -> u32 {
        self.next += 1;
        self.stream.word(0, self.next / 4, self.next % 4)
    }

    /// A size in `low..=high`.
    pub fn size(&mut self, low: usize, high: usize) -> usize {
        low + self.word() as usize % (high - low + 1)
    }

    pub fn uniform(&mut self) -> f64 {
        (self.word() as f64 + 0.5) / 4294967296.0
    }

    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Values for one input.
    pub fn values(&mut self, input: &SampleInput) -> Vec<f64> {
        let mut values: Vec<f64> = (0..input.ty.elements()).map(|_| self.value(input.fill)).collect();
        if let (Fill::Mask, Some(first)) = (input.fill, values.first_mut()) {
            *first = 1.0;
        }
        values
    }

    fn value(&mut self, fill: Fill) -> f64 {
        match fill {
            Fill::Normal => self.normal(),
            Fill::AwayFromZero => {
                let x = self.normal();
                x + 0.05f64.copysign(x)
            }
            Fill::Uniform(low, high) => low + (high - low) * self.uniform(),
            Fill::Ids(n) => (self.word() as usize % n.max(1)) as f64,
            Fill::Mask => (!self.word().is_multiple_of(4)) as u32 as f64,
            Fill::Value(x) => x,
            Fill::Sign(x) => {
                if self.word() & 1 == 0 {
                    x
                } else {
                    -x
                }
            }
        }
    }
}
