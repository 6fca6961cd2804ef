//! The same numbers in another element type: compute copies of master weights.

use super::cuda::{refuse_f64, source, sweep, typed};
use super::*;
use crate::graph::InputGrads;
use crate::kernels::cpu::parallel::{SharedMut, parallel};
use crate::types::{DType, Results};
use half::{bf16, f16};
use smallvec::smallvec;

/// Rounds to nearest, ties to even.
#[derive(Debug, Clone, PartialEq)]
pub struct Cast(pub DType);

impl Cast {
    /// Not differentiated: finite differences of what is rounded say nothing. On the CPU there is f32 alone to cast
    /// to; the tests below have the other types.
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let input = SampleInput::constant(&[rng.size(1, 20), rng.size(1, 200)], Fill::Normal);
        vec![Sample::plain(Cast(DType::F32), vec![input])]
    }
}

impl Op for Cast {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        match inputs[0].dtype.is_float() && self.0.is_float() {
            true => Ok(smallvec![Type::new(self.0, &inputs[0].shape)]),
            false => OpError::new(format!("{} is not cast to {}", inputs[0], self.0.name())),
        }
    }
    fn class(&self) -> Class {
        Class::Move
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let (from, to) = (io.input_type(0).dtype, io.output_type(0).dtype);
        let (read, write) = (SharedMut::new(io.input_ptr(0).cast_mut()), SharedMut::new(io.output_ptr(0)));
        let count = io.input_type(0).elements();
        parallel(count.div_ceil(BLOCK), |task| {
            for i in task * BLOCK..((task + 1) * BLOCK).min(count) {
                // SAFETY: element `i` of both sides exists and belongs to this task.
                unsafe {
                    store(
                        to,
                        write.slice(i * to.bytes(), to.bytes()),
                        load(from, read.slice(i * from.bytes(), from.bytes())),
                    )
                }
            }
        });
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let (x, y) = (&launch.inputs[0], &launch.outputs[0]);
        sweep(launch, typed(source!("cast", "map", "sweep"), "cast", &[("X", x), ("Y", y)]), &[x, y], &[])
    }
}

/// Elements per task.
const BLOCK: usize = 16 << 10;

fn load(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::F32 => f32::from_ne_bytes(array(bytes)).into(),
        DType::F64 => f64::from_ne_bytes(array(bytes)),
        DType::Bf16 => bf16::from_ne_bytes(array(bytes)).into(),
        DType::F16 => f16::from_ne_bytes(array(bytes)).into(),
        other => unreachable!("{} is not cast", other.name()),
    }
}

fn store(dtype: DType, bytes: &mut [u8], x: f64) {
    match dtype {
        DType::F32 => bytes.copy_from_slice(&(x as f32).to_ne_bytes()),
        DType::F64 => bytes.copy_from_slice(&x.to_ne_bytes()),
        DType::Bf16 => bytes.copy_from_slice(&bf16::from_f64(x).to_ne_bytes()),
        DType::F16 => bytes.copy_from_slice(&f16::from_f64(x).to_ne_bytes()),
        other => unreachable!("{} is not cast", other.name()),
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

impl Differentiable for Cast {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let (dtype, dy) = (cx.ty(cx.input(0)).dtype, cx.grad0());
        Ok(smallvec![Some(cx.add1(Cast(dtype), &[dy])?)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_rounded_to_nearest() {
        for (dtype, x, expected) in [
            (DType::Bf16, 1.003_906_25, 1.0),
            (DType::Bf16, 1.01, 1.0078125),
            (DType::F16, 65520.0, f64::INFINITY),
            (DType::F16, 0.1, 0.0999755859375),
            (DType::F64, 0.1, 0.1),
        ] {
            let mut bytes = vec![0; dtype.bytes()];
            store(dtype, &mut bytes, x);
            assert_eq!(load(dtype, &bytes), expected, "{} {x}", dtype.name());
        }
    }
}
