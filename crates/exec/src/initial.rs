//! Initial values: a function of the seed, the parameter's name and the place in it alone, so that every piece of a tensor
//! can be drawn by itself, by any thread.

use crate::Executor;
use half::{bf16, f16};
use plimsoll_base::random::{Stream, site};
use plimsoll_core::graph::Init;
use plimsoll_core::plan::{LANDING, Program, Resident};
use plimsoll_core::types::DType;

/// Sets every resident to its initial value.
pub fn initialize(program: &Program, executor: &mut dyn Executor, seed: u64) {
    initialize_some(program, executor, seed, |_| true);
}

/// Sets the residents that are `wanted` to their initial values, drawn where the executor takes them from. The place where
/// inputs land is the executor's own.
pub fn initialize_some(program: &Program, executor: &mut dyn Executor, seed: u64, wanted: impl Fn(&Resident) -> bool) {
    for resident in program.residents.iter().filter(|r| r.name != LANDING && wanted(r)) {
        let (name, bytes, draw) = (&resident.name, resident.ty.span_bytes(), Draw::new(resident, seed));
        let written = match (&resident.init, resident.ty.dtype) {
            (Init::Zeros, _) => executor.clear_resident(name),
            (_, DType::F32) => executor.fill_resident(name, bytes, &|at, to| draw.fill(at, to, f32::to_ne_bytes)),
            (_, DType::Bf16) => {
                executor.fill_resident(name, bytes, &|at, to| draw.fill(at, to, |x| bf16::from_f32(x).to_ne_bytes()))
            }
            (_, DType::F16) => {
                executor.fill_resident(name, bytes, &|at, to| draw.fill(at, to, |x| f16::from_f32(x).to_ne_bytes()))
            }
            _ => executor.clear_resident(name),
        };
        debug_assert!(written, "{name} is not in the arena");
    }
}

/// The values of one parameter.
struct Draw<'a> {
    init: &'a Init,
    stream: Stream,
    elements: usize,
}

impl<'a> Draw<'a> {
    fn new(resident: &'a Resident, seed: u64) -> Draw<'a> {
        let stream = Stream::new(seed, site(&resident.name), 0);
        Draw { init: &resident.init, stream, elements: resident.ty.elements() }
    }

    /// Writes the elements that begin `at` bytes into the tensor.
    fn fill<const N: usize>(&self, at: usize, to: &mut [u8], encode: impl Fn(f32) -> [u8; N]) {
        for (quad, group) in to.chunks_mut(4 * N).enumerate() {
            let values = self.quad(at / N + 4 * quad);
            group.chunks_exact_mut(N).zip(values).for_each(|(to, x)| to.copy_from_slice(&encode(x)));
        }
    }

    /// Four elements from `first` on, a multiple of 4: random words come four at a time.
    fn quad(&self, first: usize) -> [f32; 4] {
        match *self.init {
            Init::Zeros => [0.0; 4],
            Init::Ones => [1.0; 4],
            Init::Constant(value) => [value as f32; 4],
            Init::Uniform(bound) => self.units(first, 0).map(|unit| ((2.0 * unit - 1.0) * bound) as f32),
            Init::Normal(deviation) => self.normals(first).map(|normal| (normal * deviation) as f32),
            Init::NormalThirds(deviations) => {
                let (normals, third) = (self.normals(first), |i: usize| (3 * i / self.elements).min(2));
                std::array::from_fn(|i| (normals[i] * deviations[third(first + i)]) as f32)
            }
        }
    }

    /// Uniform in (0, 1).
    fn units(&self, first: usize, draw: u32) -> [f64; 4] {
        let words = self.stream.quad(draw, (first >> 20) as u32, (first & 0xF_FFFF) as u32 / 4);
        words.map(|word| (f64::from(word) + 0.5) / 4294967296.0)
    }

    /// Box–Muller.
    fn normals(&self, first: usize) -> [f64; 4] {
        let (a, b) = (self.units(first, 0), self.units(first, 1));
        std::array::from_fn(|i| (-2.0 * a[i].ln()).sqrt() * (std::f64::consts::TAU * b[i]).cos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::CpuExecutor;
    use plimsoll_core::graph::Target;
    use plimsoll_core::graph::{Component, Graph, Space};
    use plimsoll_core::plan::{LayoutOptions, Phase, add_landing, lay_out};
    use plimsoll_core::types::Type;

    fn weight(shape: &[usize], init: Init) -> Resident {
        let (ty, component, space) = (Type::new(DType::F32, shape), Component::Weights, Space::Device);
        Resident { name: "w".into(), ty, component, init, is_parameter: true, space }
    }

    /// All values, drawn in pieces of `piece` bytes.
    fn values(resident: &Resident, piece: usize) -> Vec<f32> {
        let mut bytes = vec![0u8; resident.ty.span_bytes()];
        let draw = Draw::new(resident, 1);
        bytes.chunks_mut(piece).enumerate().for_each(|(i, to)| draw.fill(i * piece, to, f32::to_ne_bytes));
        bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect()
    }

    /// On a card the first inputs may be there before the initial values are.
    #[test]
    fn what_has_landed_stays() {
        let mut graph = Graph::new("step", DType::F32);
        graph.data("ids", Type::new(DType::I32, &[16])).unwrap();
        graph.resident("m", Type::new(DType::F32, &[4]), Component::Optimizer, Init::Zeros).unwrap();
        let mut phases = vec![Phase { name: "step".into(), graph, repeat: 1 }];
        add_landing(&mut phases).unwrap();
        let program = Program::new(phases).unwrap();
        let layout = lay_out(&program, LayoutOptions { target: Target::cpu(1), sharing: true }).unwrap();
        let mut executor = CpuExecutor::new(&program, &layout, 1).unwrap();
        assert!(executor.write_resident(LANDING, &[7; 64]) && executor.write_resident("m", &[7; 16]));
        initialize(&program, &mut executor, 1);
        assert_eq!(executor.read_resident(LANDING).unwrap(), &[7; 64][..]);
        assert_eq!(executor.read_resident("m").unwrap(), &[0; 16][..]);
    }

    #[test]
    fn thirds_have_their_own_spread() {
        let weight = weight(&[3000, 3], Init::NormalThirds([1.0, 0.1, 10.0]));
        for (third, deviation) in values(&weight, 64).chunks(3000).zip([1.0, 0.1, 10.0]) {
            let measured = (third.iter().map(|x| (x * x) as f64).sum::<f64>() / 3000.0).sqrt();
            assert!((measured / deviation - 1.0).abs() < 0.06, "{measured} instead of {deviation}");
        }
    }

    /// Checkpoints and goldens of earlier versions start from these numbers: word `index` of the stream, alone.
    #[test]
    fn a_value_depends_on_its_place_alone() {
        let weight = weight(&[(1 << 20) + 7], Init::Normal(0.5));
        let stream = Stream::new(1, site("w"), 0);
        let unit = |index: usize, draw: u32| {
            (stream.word(draw, (index >> 20) as u32, (index & 0xF_FFFF) as u32) as f64 + 0.5) / 4294967296.0
        };
        let normal = |i: usize| (-2.0 * unit(i, 0).ln()).sqrt() * (std::f64::consts::TAU * unit(i, 1)).cos();
        let (whole, pieces) = (values(&weight, usize::MAX), values(&weight, 4096));
        assert!(whole.iter().zip(&pieces).all(|(a, b)| a.to_bits() == b.to_bits()));
        for index in [0, 1, 6, 4095, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 6] {
            assert_eq!(whole[index].to_bits(), ((normal(index) * 0.5) as f32).to_bits(), "element {index}");
        }
    }
}
