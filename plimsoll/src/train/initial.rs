//! Initial values: a function of the seed and the parameter's name alone.

use crate::exec::Executor;
use crate::exec::cpu::random::{Stream, site};
use crate::graph::{DType, Init};
use crate::plan::{Program, Resident};
use half::bf16;

/// Sets every resident to its initial value.
pub fn initialize(program: &Program, executor: &mut dyn Executor, seed: u64) {
    initialize_some(program, executor, seed, |_| true);
}

/// Sets the residents that are `wanted` to their initial values. One tensor is in host memory at a time.
pub fn initialize_some(program: &Program, executor: &mut dyn Executor, seed: u64, wanted: impl Fn(&Resident) -> bool) {
    for resident in program.residents.iter().filter(|r| wanted(r)) {
        let written = match resident.ty.dtype {
            DType::F32 => executor.write_resident(&resident.name, bytemuck::cast_slice(&floats(resident, seed))),
            DType::Bf16 => {
                let halves: Vec<bf16> = floats(resident, seed).into_iter().map(bf16::from_f32).collect();
                executor.write_resident(&resident.name, bytemuck::cast_slice(&halves))
            }
            dtype => executor.write_resident(&resident.name, &vec![0u8; resident.ty.elements() * dtype.bytes()]),
        };
        debug_assert!(written, "{} is not in the arena", resident.name);
    }
}

fn floats(resident: &Resident, seed: u64) -> Vec<f32> {
    let n = resident.ty.elements();
    let stream = Stream::new(seed, site(&resident.name), 0);
    match resident.init {
        Init::Zeros => vec![0.0; n],
        Init::Ones => vec![1.0; n],
        Init::Constant(value) => vec![value as f32; n],
        Init::Uniform(bound) => (0..n).map(|i| ((2.0 * unit(&stream, i, 0) - 1.0) * bound) as f32).collect(),
        Init::Normal(deviation) => (0..n).map(|i| (normal(&stream, i) * deviation) as f32).collect(),
        Init::NormalThirds(deviations) => {
            let deviation = |i: usize| deviations[(3 * i / n).min(2)];
            (0..n).map(|i| (normal(&stream, i) * deviation(i)) as f32).collect()
        }
    }
}

/// Uniform in (0, 1).
fn unit(stream: &Stream, index: usize, draw: u32) -> f64 {
    (stream.word(draw, (index >> 20) as u32, (index & 0xF_FFFF) as u32) as f64 + 0.5) / 4294967296.0
}

/// Box–Muller.
fn normal(stream: &Stream, index: usize) -> f64 {
    (-2.0 * unit(stream, index, 0).ln()).sqrt() * (std::f64::consts::TAU * unit(stream, index, 1)).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Component, Space, Type};

    #[test]
    fn thirds_have_their_own_spread() {
        let (ty, init) = (Type::new(DType::F32, &[3000, 3]), Init::NormalThirds([1.0, 0.1, 10.0]));
        let (name, component, space) = ("w".into(), Component::Weights, Space::Device);
        let weight = Resident { name, ty, component, init, is_parameter: true, space };
        let values = floats(&weight, 1);
        for (third, deviation) in values.chunks(3000).zip([1.0, 0.1, 10.0]) {
            let measured = (third.iter().map(|x| (x * x) as f64).sum::<f64>() / 3000.0).sqrt();
            assert!((measured / deviation - 1.0).abs() < 0.06, "{measured} instead of {deviation}");
        }
    }
}
