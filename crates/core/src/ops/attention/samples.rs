//! Every combination of what attention can do, at random sizes.

use super::*;

const RELATIVE: Bias = Bias::Relative { bidirectional: true, max_distance: 16 };
const PAST: Bias = Bias::Relative { bidirectional: false, max_distance: 16 };
const FAR: Bias = Bias::Relative { bidirectional: true, max_distance: 128 };
const FAR_PAST: Bias = Bias::Relative { bidirectional: false, max_distance: 128 };
const BUCKETS: Bias = Bias::Disentangled { buckets: 6, max_distance: 14 };
const CLAMPED: Bias = Bias::Disentangled { buckets: 0, max_distance: 5 };

impl Attention {
    /// Half of all combinations of packing, bias and flags, the other half at another draw; wide heads; and decoding.
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let (mut samples, half) = (Vec::new(), rng.size(0, 1) as u32);
        for flags in 0..8u32 {
            let (causal, key_mask, drop) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
            let dropout = drop.then_some((0.3, 7));
            let kinds = [
                (Packing::Qkv, Bias::None),
                (Packing::QKv, Bias::None),
                (Packing::Qkv, if causal { PAST } else { RELATIVE }),
                (Packing::QKv, if drop { PAST } else { RELATIVE }),
                (Packing::Qkv, if key_mask { BUCKETS } else { CLAMPED }),
                (Packing::QKv, if key_mask { CLAMPED } else { BUCKETS }),
            ];
            for (_, (packing, bias)) in (flags.count_ones() + half..).zip(kinds).filter(|(n, _)| n % 2 == 0) {
                let op = Attention { causal, key_mask, dropout, packing, bias, ..Attention::plain(1.0) };
                samples.push(op.sample(rng));
            }
            let packing = if flags.count_ones() % 2 == half { Packing::Qkv } else { Packing::QKv };
            let wide = Attention { causal, key_mask, dropout, packing, ..Attention::plain(1.0) };
            if packing == Packing::QKv || causal {
                let bias = if causal { FAR_PAST } else { FAR };
                samples.push(Attention { bias, ..wide.clone() }.wide_sample(rng));
            }
            samples.push(wide.wide_sample(rng));
        }
        for bias in [Bias::None, PAST] {
            let (packing, key_mask, offset) = (Packing::QKv, bias == PAST, true);
            samples.push(Attention { packing, key_mask, bias, offset, ..Attention::plain(1.0) }.sample(rng));
        }
        samples.extend([BUCKETS, CLAMPED].map(|bias| Attention::long_sample(bias, rng)));
        samples.extend([(3, 36, 144), (8, 34, 97)].map(|sizes| Attention::many_sample(sizes, rng)));
        samples
    }

    /// As many heads as a card takes one after the other, or side by side, whose keys are two tiles or a few more.
    fn many_sample((batch, heads, shortest): (usize, usize, usize), rng: &mut SampleRng) -> Sample {
        let mut is = || rng.size(0, 1) == 1;
        let (key_mask, dropout) = (is(), is().then_some((0.3, 7)));
        let lengths = [rng.size(shortest, shortest + 12); 2];
        Attention { key_mask, dropout, ..Attention::plain(1.0) }.sized_sample(rng, lengths, [batch, heads, 64])
    }

    /// Several tiles of tensor cores on each side, in a width that they take.
    fn long_sample(bias: Bias, rng: &mut SampleRng) -> Sample {
        let mut is = || rng.size(0, 1) == 1;
        let (causal, key_mask, dropout) = (is(), is(), is().then_some((0.3, 7)));
        let packing = if is() { Packing::Qkv } else { Packing::QKv };
        let (lengths, width) = ([rng.size(50, 140), rng.size(50, 140)], [16, 24, 64][rng.size(0, 2)]);
        let sizes = [rng.size(1, 3), rng.size(1, 3), width];
        Attention { causal, key_mask, dropout, packing, bias, ..Attention::plain(1.0) }
            .sized_sample(rng, lengths, sizes)
    }

    /// This op on inputs of random sizes.
    fn sample(self, rng: &mut SampleRng) -> Sample {
        let lengths = [rng.size(1, 40), rng.size(1, 40)];
        let width = [2, 3, 8, 16, 20, 33][rng.size(0, 5)];
        let sizes = [rng.size(1, 3), rng.size(1, 3), width];
        self.sized_sample(rng, lengths, sizes)
    }

    /// Heads and lengths of which tensor cores take large pieces.
    fn wide_sample(self, rng: &mut SampleRng) -> Sample {
        let lengths = [(); 2].map(|()| 128 * rng.size(1, 2) - rng.size(0, 20));
        let sizes = [rng.size(1, 3), rng.size(1, 2), 64 * rng.size(1, 2)];
        self.sized_sample(rng, lengths, sizes)
    }

    /// This op on so many queries and keys, of a batch of so many heads so wide, with the usual scale.
    fn sized_sample(mut self, rng: &mut SampleRng, [time, keys]: [usize; 2], sizes: [usize; 3]) -> Sample {
        let [batch, heads, width] = sizes;
        let keys = if self.packing == Packing::Qkv { time } else { keys };
        self.scale = (width as f64).powf(-0.5);
        let normal = |shape: &[usize]| SampleInput::float(shape, Fill::Normal);
        let mut inputs = match self.packing {
            Packing::Qkv => vec![normal(&[batch, time, 3, heads, width])],
            Packing::QKv => vec![normal(&[batch, time, heads, width]), normal(&[batch, keys, 2, heads, width])],
        };
        match self.bias {
            Bias::None => {}
            Bias::Relative { .. } => inputs.push(normal(&[rng.size(4, 13), heads])),
            Bias::Disentangled { buckets, max_distance } => {
                let rows = 2 * if buckets == 0 { max_distance } else { buckets };
                inputs.extend([(); 2].map(|()| normal(&[rows, heads, width])));
            }
        }
        if self.key_mask {
            inputs.push(SampleInput::new(Type::new(DType::I32, &[batch, keys]), Fill::Mask));
        }
        if self.offset {
            inputs.push(SampleInput::new(Type::new(DType::I64, &[1]), Fill::Ids(keys)));
        }
        if self.dropout.is_some() {
            inputs.push(SampleInput::new(Type::new(DType::I64, &[3]), Fill::Ids(100)));
        }
        match self.offset {
            true => Sample::plain(self, inputs),
            false => Sample::new(self, inputs).first_output(),
        }
    }
}
