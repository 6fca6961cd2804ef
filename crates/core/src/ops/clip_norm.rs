//! The global norm of all gradients and the factor that clips it.

use super::cuda::{refuse_f64, source, typed, width};
use super::*;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::with_float;
use crate::kernels::cpu::{Element, elementwise};
use crate::kernels::cuda::{Arg, DeviceTensor, Grid, Kernel, Set, Source, Sweep};
use crate::types::{DType, Results};
use plimsoll_base::simd::simd;
use smallvec::smallvec;

/// Inputs: every gradient. Outputs: their joint 2-norm, and `min(1, max_norm / (norm + 1e-6))`, or 1 without a limit.
#[derive(Debug, Clone, PartialEq)]
pub struct ClipNorm {
    pub max_norm: Option<f64>,
}

impl ClipNorm {
    /// A norm above the limit, one below it, and one without a limit.
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let shapes = [vec![rng.size(1, 40), rng.size(1, 40)], vec![rng.size(1, 9)], vec![1]];
        let sample = |max_norm: Option<f64>| {
            let gradients = shapes.iter().map(|shape| SampleInput::constant(shape, Fill::Normal));
            Sample::plain(ClipNorm { max_norm }, gradients.collect())
        };
        vec![sample(Some(0.01)), sample(Some(1e6)), sample(None)]
    }
}

impl Op for ClipNorm {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        match inputs.first() {
            Some(first) => Ok(smallvec![first.wide_shape(&[1]); 2]),
            None => OpError::new("there are no gradients to clip"),
        }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        let sums = inputs.iter().map(Type::elements);
        match target.backend {
            Backend::Cpu => 8 * sums.map(elementwise::partial_sums).max().unwrap_or(0),
            Backend::Cuda => 8 * sums.map(device_sums).sum::<usize>(),
        }
    }
    fn class(&self) -> Class {
        Class::Reduction
    }
    fn cost(&self, inputs: &[Type], _: &[Type]) -> Cost {
        Cost::elementwise(&[], inputs, 2.0)
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => {
            let total: f64 = (0..io.inputs()).map(|i| sum_of_squares(io.input::<T>(i), io.workspace())).sum();
            let norm = total.sqrt();
            let factor = self.max_norm.map_or(1.0, |limit| (limit / (norm + 1e-6)).min(1.0));
            io.output::<T>(0)[0] = T::of(norm);
            // A norm that is not a number must not be hidden by `min`.
            io.output::<T>(1)[0] = T::of(if norm.is_nan() { norm } else { factor });
        })
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let (parts, mut count) = (launch.workspace, 0);
        let alike = |a: &DeviceTensor, b: &DeviceTensor| a.ty.dtype == b.ty.dtype && width(&[a], 0) == width(&[b], 0);
        for gradients in launch.inputs.chunk_by(alike).flat_map(|alike| alike.chunks(Sweep::most_sets_of(1))) {
            count += put_squares(launch, gradients, parts + 8 * count as u64)?;
        }
        let limit = self.max_norm.unwrap_or(0.0) as f32;
        let limited = u32::from(self.max_norm.is_some());
        let kernel = Kernel::new(SOURCE, "clip").dtype("T", DType::F32).define("WIDTH", 4).define("SHARE", SHARE);
        let kernel = kernel.define("SETS", 1).define("TENSORS", 1).define("OWN_WORDS", 0);
        let [norm, factor] = [0, 1].map(|i| Arg::from(&launch.outputs[i]));
        let args: [Arg; 6] = [Arg::Address(parts), count.into(), norm, factor, limited.into(), limit.into()];
        launch.kernel(&kernel, Grid::new(1, 1024), &args)
    }
}

const SOURCE: Source = source!("clip_norm", "map", "sweep");

/// Elements whose squares a block adds up, and a thread of it.
const SHARE: usize = 16 << 10;
const PER_THREAD: usize = SHARE / 256;

/// Sums of squares of gradients of one type to `parts`; how many.
fn put_squares(launch: &mut Launch<'_>, gradients: &[DeviceTensor], parts: u64) -> Result<usize, CudaError> {
    let width = width(&gradients.iter().collect::<Vec<_>>(), 0);
    let kernel = typed(SOURCE, "squares", &[("T", &gradients[0])]).define("WIDTH", width).define("SHARE", SHARE);
    let set = |g: &DeviceTensor| Set { addresses: vec![g.address], words: Vec::new(), elements: g.ty.elements() };
    let sets: Vec<Set> = gradients.iter().map(set).filter(|set| set.elements > 0).collect();
    let count = sets.iter().map(|set| device_sums(set.elements)).sum();
    match sets.is_empty() {
        true => Ok(0),
        false => {
            launch.queue.sweep(Sweep { kernel, width: PER_THREAD, sets, shared: vec![Arg::Address(parts)] })?;
            Ok(count)
        }
    }
}

/// Blocks that add up the squares of a gradient; none for an empty one.
fn device_sums(elements: usize) -> usize {
    elements.div_ceil(SHARE)
}

fn sum_of_squares<T: Float + Element>(data: &[T], partials: &mut [f64]) -> f64 {
    elementwise::sum(data.len(), partials, |range| {
        simd(
            #[inline(always)]
            || {
                let mut lanes = [0f64; 8];
                let (blocks, rest) = data[range].as_chunks::<8>();
                let tail: f64 = rest.iter().map(|x| x.to_f64() * x.to_f64()).sum();
                for block in blocks {
                    for (l, lane) in lanes.iter_mut().enumerate() {
                        *lane += block[l].to_f64() * block[l].to_f64();
                    }
                }
                lanes.iter().sum::<f64>() + tail
            },
        )
    })
}
