//! A copy from host memory to the device: what was put there by `ToHost`, or a stretch of a resident.

use super::*;
use crate::kernels::cpu::strided;
use crate::types::Results;
use smallvec::smallvec;

/// Inputs (whole) or (whole, gate): `shape` elements of a host value, from element `first` on. What stands behind a gate is
/// fetched ahead of its use, though not before the gate's value is there: nothing else says how far ahead.
#[derive(Debug, Clone, PartialEq)]
pub struct FromHost {
    pub first: usize,
    pub shape: Vec<usize>,
}

/// Of the time of a fetch ahead of its use this much remains: it goes on while what was fetched before is stored, and both
/// ways at once each is slower (50 GB/s instead of 55 on an H200).
const LEFT_OF_AHEAD: f64 = 0.1;

impl FromHost {
    /// All of a value of this type.
    pub fn whole(ty: &Type) -> FromHost {
        FromHost { first: 0, shape: ty.shape.to_vec() }
    }

    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let (rows, width) = (rng.size(2, 9), rng.size(1, 9));
        let input = || vec![SampleInput::constant(&[rows, width], Fill::Normal)];
        let part = FromHost { first: width, shape: vec![(rows - 1) * width] };
        let gated = [input(), vec![SampleInput::constant(&[3], Fill::Normal)]].concat();
        vec![
            Sample::plain(FromHost { first: 0, shape: vec![rows, width] }, input()),
            Sample::plain(part.clone(), input()),
            Sample::plain(part, gated),
        ]
    }
}

impl Op for FromHost {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let part = inputs[0].with_shape(&self.shape);
        let end = part.checked_bytes().and_then(|_| self.first.checked_add(part.elements()));
        match end.is_some_and(|end| end <= inputs[0].elements()) {
            true => Ok(smallvec![part]),
            false => OpError::new(format!("{self:?} is outside {}", inputs[0])),
        }
    }
    fn input_space(&self, input: usize) -> Space {
        if input == 0 { Space::Host } else { Space::Device }
    }
    fn cost(&self, _: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: 0.0, bytes: Cost::traffic(outputs, outputs) }
    }
    fn class(&self) -> Class {
        Class::Move
    }
    fn host_bytes(&self, inputs: &[Type], outputs: &[Type]) -> f64 {
        let is_ahead = inputs.len() > 1;
        Cost::traffic(&[], outputs) * if is_ahead { LEFT_OF_AHEAD } else { 1.0 }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let ty = io.output_type(0);
        let from = io.input_ptr(0).wrapping_add(self.first * ty.dtype.bytes());
        // SAFETY: the part lies inside the host's value, and the two memories are disjoint.
        unsafe { strided::copy(ty, from, ty, io.output_ptr(0)) }
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (from, to) = (&launch.inputs[0], &launch.outputs[0]);
        let skipped = (self.first * to.ty.dtype.bytes()) as u64;
        launch.queue.copy(to.address, from.address + skipped, to.ty.span_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::DType;

    #[test]
    fn what_comes_ahead_of_its_use_takes_a_tenth_of_the_time() {
        let (whole, gate) = (Type::new(DType::F32, &[4, 8]), Type::new(DType::F32, &[1]));
        let (op, part) = (FromHost { first: 8, shape: vec![16] }, Type::new(DType::F32, &[16]));
        let bytes = |inputs: &[Type]| op.host_bytes(inputs, std::slice::from_ref(&part));
        assert_eq!(bytes(std::slice::from_ref(&whole)), 64.0);
        assert_eq!(bytes(&[whole, gate]), 0.1 * 64.0);
    }
}
