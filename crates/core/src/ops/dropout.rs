//! Dropout without a stored mask: whether an element is dropped follows from where it is.

use super::cuda::{define_index, put, refuse_f64, source, typed, width};
use super::*;
use crate::graph::{Aliases, InputGrads};
use crate::kernels::cpu::Element;
use crate::kernels::cpu::elementwise::ranges;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::rows::InPlace;
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Arg, Grid};
use crate::types::{DType, Results};
use plimsoll_base::random::{Dropping, Stream};
use plimsoll_base::simd::simd;
use smallvec::smallvec;

/// Inputs: x, and `rng` i64[3] = (seed, step, index of the first sample of x in the effective batch). Drops each
/// element with probability `p` and divides the others by 1 − p.
///
/// The mask of element `e` of a sample depends on (seed, step, sample's index, site, e) alone, never on how many
/// samples are computed together. The gradient is the same op applied to dy.
#[derive(Debug, Clone, PartialEq)]
pub struct Dropout {
    pub p: f64,
    /// The hash of the layer path.
    pub site: u64,
    /// How many samples x holds, one after the other; 0: it belongs to all samples, which see it dropped alike.
    pub samples: usize,
}

impl Dropout {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let mut samples = Vec::new();
        for p in [0.0, 0.1, 0.5] {
            let (count, shape) = (rng.size(1, 4), [rng.size(1, 9), rng.size(1, 90)]);
            let op = Dropout { p, site: 77, samples: count };
            let x = SampleInput::float(&[&[count], &shape[..]].concat(), Fill::Normal);
            samples.push(Sample::new(op, vec![x, SampleInput::new(Type::new(DType::I64, &[3]), Fill::Ids(1000))]));
        }
        samples
    }
}

impl Op for Dropout {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let [x, rng] = inputs else { return OpError::new("needs x and rng") };
        if !(0.0..1.0).contains(&self.p) {
            return OpError::new(format!("cannot drop with probability {}: it must lie in [0, 1)", self.p));
        }
        if !x.elements().is_multiple_of(self.samples.max(1)) {
            return OpError::new(format!("{x} does not hold {} equal samples", self.samples));
        }
        match rng.dtype == DType::I64 && rng.shape[..] == [3] {
            true => Ok(smallvec![x.contiguous()]),
            false => OpError::new(format!("{rng} is not (seed, step, first sample) as i64[3]")),
        }
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::may(0, 0)]
    }
    fn class(&self) -> Class {
        Class::Random
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, 25.0)
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => self.run::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let (x, rng, y) = (&launch.inputs[0], &launch.inputs[1], &launch.outputs[0]);
        if self.p == 0.0 {
            return if launch.is_in_place(0, 0) { Ok(()) } else { copy::copy_strided(launch, x, y) };
        }
        let samples = self.samples.max(1);
        let per_sample = x.ty.elements() / samples;
        let width = width(&[x, y], per_sample);
        let threads = samples * per_sample.div_ceil(EIGHT);
        let sizes: [Arg; 3] = [threads.into(), per_sample.div_ceil(EIGHT).into(), per_sample.into()];
        let constants = self.constants();
        let args: Vec<Arg> = [x, y, rng].into_iter().map(Arg::from).chain(sizes).chain(constants).collect();
        let kernel = typed(source!("dropout", "map"), "dropout", &[("T", x)]).define("WIDTH", width);
        let kernel = define_index(kernel, threads);
        put(launch, &kernel, Grid::over(threads, 1), threads, &args)
    }
}

impl Differentiable for Dropout {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let (rng, dy) = (cx.input(1), cx.grad0());
        let dx = match self.p == 0.0 {
            true => dy,
            false => match norm_grad::drop_within(cx.graph, dy, self, rng) {
                Some(dropped) => dropped,
                None => cx.add1(self.clone(), &[dy, rng])?,
            },
        };
        Ok(smallvec![Some(dx), None])
    }
}

/// Neighbours that one draw is for.
const EIGHT: usize = 8;
/// Draws that are made together, lane by lane.
const LANES: usize = 16;
/// Elements whose random words are made together.
const BLOCK: usize = EIGHT * LANES;
/// Elements in a row of the generator's coordinates; a multiple of [`BLOCK`].
const ROW: usize = 1 << 16;

impl Dropout {
    /// What kernels know beside sizes: the site, which bits fall, what is left is multiplied by, whether samples differ.
    pub(super) fn constants(&self) -> [Arg; 4] {
        let Dropping { threshold, keep } = Dropping::new(self.p);
        [self.site.into(), threshold.into(), (keep as f32).into(), u32::from(self.samples != 0).into()]
    }

    /// What falls of `len` elements, by the state that is input `rng`.
    pub(super) fn mask(&self, io: &CpuIo<'_>, rng: usize, len: usize) -> Mask {
        let state = io.input::<i64>(rng);
        Mask {
            stream: Stream::new(state[0] as u64, self.site, state[1] as u64),
            dropping: Dropping::new(self.p),
            first: if self.samples == 0 { 0 } else { state[2] as u32 },
            per_sample: len / self.samples.max(1),
        }
    }

    fn run<T: Float + Element>(&self, io: &CpuIo<'_>) {
        let len = io.output_type(0).elements();
        let (data, mask) = (InPlace::<T>::new(io, 0, 0), self.mask(io, 1, len));
        ranges(len, |range| {
            // SAFETY: ranges are disjoint and inside the tensor.
            let piece = unsafe { data.load(range.start, range.len()) };
            if self.p > 0.0 {
                simd(
                    #[inline(always)]
                    || mask.apply(range.start, piece),
                );
            }
        });
    }
}

pub(super) struct Mask {
    stream: Stream,
    dropping: Dropping,
    /// Index of the first sample in the effective batch.
    first: u32,
    per_sample: usize,
}

impl Mask {
    /// Drops from `piece`, which starts at element `start` of all samples.
    #[inline(always)]
    pub(super) fn apply<T: Float>(&self, start: usize, piece: &mut [T]) {
        let keep = T::of(self.dropping.keep);
        let (mut at, mut rest) = (start, piece);
        while !rest.is_empty() {
            let (sample, element) = (at / self.per_sample, at % self.per_sample);
            let skip = element % BLOCK;
            let len = (BLOCK - skip).min(self.per_sample - element).min(rest.len());
            let words = self.words(self.first.wrapping_add(sample as u32), element - skip);
            let (now, later) = rest.split_at_mut(len);
            match <&mut [T; BLOCK]>::try_from(&mut *now) {
                Ok(now) => self.drop(now, &words, keep),
                Err(_) => self.drop_from(skip, now, &words, keep),
            }
            (at, rest) = (at + len, later);
        }
    }

    /// A whole block.
    #[inline(always)]
    fn drop<T: Float>(&self, data: &mut [T; BLOCK], words: &[u32; BLOCK / 2], keep: T) {
        for (at, pair) in data.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let word = words[at];
            pair[0] = if self.dropping.drops_lower(word) { T::ZERO } else { pair[0] * keep };
            pair[1] = if self.dropping.drops_upper(word) { T::ZERO } else { pair[1] * keep };
        }
    }

    /// What begins inside a block, or ends there.
    #[inline(always)]
    fn drop_from<T: Float>(&self, skip: usize, data: &mut [T], words: &[u32; BLOCK / 2], keep: T) {
        for (x, e) in data.iter_mut().zip(skip..) {
            let word = words[e / 2] << if e % 2 == 0 { 16 } else { 0 };
            *x = if self.dropping.drops_upper(word) { T::ZERO } else { *x * keep };
        }
    }

    /// The words of the block that starts at `element`, one for every two neighbours.
    #[inline(always)]
    fn words(&self, sample: u32, element: usize) -> [u32; BLOCK / 2] {
        let (row, group) = ((element / ROW) as u32, (element % ROW / EIGHT) as u32);
        let mut parts = [[0; LANES]; 4];
        for lane in 0..LANES {
            let made = self.stream.eight(sample, row, group + lane as u32);
            parts.iter_mut().enumerate().for_each(|(w, part)| part[lane] = made[w]);
        }
        let mut words = [0; BLOCK / 2];
        for (lane, words) in words.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            words.iter_mut().enumerate().for_each(|(w, word)| *word = parts[w][lane]);
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{f32s, i64s, run};
    use super::*;

    /// Dropout of ones over `samples` samples, the first of which is number `first`.
    fn dropped(p: f64, samples: usize, per_sample: usize, first: i64) -> Vec<f32> {
        let op = Dropout { p, site: 5, samples };
        let ones = f32s(&[samples, per_sample], &vec![1.0; samples * per_sample]);
        run(&op, &[ones, i64s(&[3], &[9, 4, first])])
    }

    #[test]
    fn a_sample_is_dropped_alike_in_any_micro_batch_and_padding() {
        let per_sample = 70_001; // crosses tasks, blocks and a row of coordinates
        let together = dropped(0.3, 3, per_sample, 10);
        for sample in 0..3 {
            let alone = dropped(0.3, 1, per_sample, 10 + sample as i64);
            assert_eq!(alone, &together[sample * per_sample..][..per_sample]);
        }
        let padded = dropped(0.3, 1, per_sample + 77, 10);
        assert_eq!(padded[..per_sample], together[..per_sample]);
        assert_ne!(together[..per_sample], together[per_sample..2 * per_sample]);
    }

    #[test]
    fn what_all_samples_share_is_dropped_alike_for_each() {
        let shared = |first: i64| {
            let op = Dropout { p: 0.3, site: 5, samples: 0 };
            run(&op, &[f32s(&[90], &[1.0; 90]), i64s(&[3], &[9, 4, first])])
        };
        assert_eq!(shared(0), shared(10));
        assert!(shared(0).contains(&0.0));
    }

    #[test]
    fn words_are_those_of_the_stream() {
        let (stream, dropping) = (Stream::new(9, 5, 4), Dropping::new(0.3));
        let kept = |e: usize| {
            let word = stream.eight(10, (e / ROW) as u32, (e % ROW / 8) as u32)[e % 8 / 2];
            !if e.is_multiple_of(2) { dropping.drops_lower(word) } else { dropping.drops_upper(word) }
        };
        let result = dropped(0.3, 1, 70_000, 10);
        assert!(result.iter().enumerate().all(|(e, &y)| y == if kept(e) { dropping.keep as f32 } else { 0.0 }));
    }

    #[test]
    fn it_drops_as_often_as_asked_and_never_at_zero() {
        let n = 100_000;
        let zeros = dropped(0.1, 1, n, 0).iter().filter(|&&y| y == 0.0).count();
        assert!((9_600..10_400).contains(&zeros), "{zeros} of {n} dropped at p = 0.1");
        assert!(dropped(0.0, 2, 50, 0).iter().all(|&y| y == 1.0));
        let op = |p| Dropout { p, site: 0, samples: 1 };
        let types = [Type::new(DType::F32, &[4]), Type::new(DType::I64, &[3])];
        assert!([1.0, -0.1, f64::NAN].iter().all(|&p| op(p).outputs(&types).is_err()));
    }
}
