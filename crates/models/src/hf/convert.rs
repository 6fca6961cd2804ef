//! Numbers from one element type into another, by way of f32 and rounded to nearest, as PyTorch does.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use plimsoll_core::types::DType;

/// The element type of a file's tensor, if it holds floating-point numbers.
pub fn float_of(name: &str) -> Option<DType> {
    match name {
        "F64" => Some(DType::F64),
        "F32" => Some(DType::F32),
        "F16" => Some(DType::F16),
        "BF16" => Some(DType::Bf16),
        _ => None,
    }
}

/// An element type in the words of safetensors and of config.json.
pub fn names_of(dtype: DType) -> (&'static str, &'static str) {
    match dtype {
        DType::F64 => ("F64", "float64"),
        DType::F32 => ("F32", "float32"),
        DType::F16 => ("F16", "float16"),
        DType::Bf16 => ("BF16", "bfloat16"),
        DType::I32 => ("I32", "int32"),
        DType::I64 => ("I64", "int64"),
        DType::Bool => ("BOOL", "bool"),
    }
}

trait Float: bytemuck::Pod {
    fn to_f32(self) -> f32;
    fn of_f32(x: f32) -> Self;
}

macro_rules! float {
    ($t:ty, $to:expr, $of:expr) => {
        impl Float for $t {
            #[inline(always)]
            fn to_f32(self) -> f32 {
                $to(self)
            }
            #[inline(always)]
            fn of_f32(x: f32) -> Self {
                $of(x)
            }
        }
    };
}

float!(f64, |x| x as f32, f64::from);
float!(f32, |x| x, |x| x);
float!(f16, f16::to_f32, f16::from_f32);
float!(bf16, bf16::to_f32, bf16::from_f32);

/// Converts `input`, which holds `from`s, into other `to`s in `output`; both have room for the same number of elements.
pub fn convert(from: DType, to: DType, input: &[u8], output: &mut [u8]) {
    if (from, to) == (DType::F16, DType::F32)
        && let (Ok(halves), Ok(floats)) =
            (bytemuck::try_cast_slice::<u8, f16>(input), bytemuck::try_cast_slice_mut::<u8, f32>(output))
    {
        // The usual case, which CPUs have an instruction for.
        return halves.convert_to_f32_slice(floats);
    }
    match from {
        DType::F64 => convert_from::<f64>(to, input, output),
        DType::F16 => convert_from::<f16>(to, input, output),
        DType::Bf16 => convert_from::<bf16>(to, input, output),
        _ => convert_from::<f32>(to, input, output),
    }
}

fn convert_from<A: Float>(to: DType, input: &[u8], output: &mut [u8]) {
    match to {
        DType::F64 => convert_each::<A, f64>(input, output),
        DType::F16 => convert_each::<A, f16>(input, output),
        DType::Bf16 => convert_each::<A, bf16>(input, output),
        _ => convert_each::<A, f32>(input, output),
    }
}

fn convert_each<A: Float, B: Float>(input: &[u8], output: &mut [u8]) {
    let (a, b) = (size_of::<A>(), size_of::<B>());
    for (to, from) in output.chunks_exact_mut(b).zip(input.chunks_exact(a)) {
        let x: A = bytemuck::pod_read_unaligned(from);
        to.copy_from_slice(bytemuck::bytes_of(&B::of_f32(x.to_f32())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted<A: bytemuck::Pod, B: bytemuck::Pod>(from: DType, to: DType, values: &[A]) -> Vec<B> {
        let mut output = vec![0u8; values.len() * to.bytes()];
        convert(from, to, bytemuck::cast_slice(values), &mut output);
        output.chunks_exact(size_of::<B>()).map(bytemuck::pod_read_unaligned).collect()
    }

    #[test]
    fn every_half_survives_the_way_through_f32() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        for (from, is_nan) in [
            (DType::F16, (|bits| f16::from_bits(bits).is_nan()) as fn(u16) -> bool),
            (DType::Bf16, |bits| bf16::from_bits(bits).is_nan()),
        ] {
            let wide: Vec<f32> = converted(from, DType::F32, &all);
            let back: Vec<u16> = converted(DType::F32, from, &wide);
            assert!(all.iter().zip(&back).all(|(a, b)| a == b || is_nan(*a) && is_nan(*b)));
        }
    }

    #[test]
    fn wider_numbers_are_rounded_to_nearest_even() {
        let bits = |x: f32| -> u16 { converted::<f32, u16>(DType::F32, DType::Bf16, &[x])[0] };
        assert_eq!(bf16::from_bits(bits(1.0 + 2f32.powi(-8))).to_f32(), 1.0);
        assert_eq!(bf16::from_bits(bits(1.0 + 3.0 * 2f32.powi(-8))).to_f32(), 1.0 + 2f32.powi(-6));
        let floats: Vec<f32> = converted(DType::F64, DType::F32, &[0.1f64, -3.5, f64::INFINITY]);
        assert_eq!(floats, [0.1f32, -3.5, f32::INFINITY]);
    }
}
