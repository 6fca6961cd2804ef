//! Random numbers. A stream is named by a seed and a few counters, so that a study that is stopped and continued draws
//! what it would have drawn without the stop, and workers draw different numbers from one seed.

/// xoshiro256++, seeded through SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
    spare_normal: Option<f64>,
}

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self::stream(&[seed])
    }

    /// The stream that belongs to these numbers, different for any others.
    pub fn stream(key: &[u64]) -> Self {
        let mut mixed = 0x9e37_79b9_7f4a_7c15;
        for part in key {
            mixed = split_mix(&mut (mixed ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93)));
        }
        Self { state: std::array::from_fn(|_| split_mix(&mut mixed)), spare_normal: None }
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// Uniform from 0 (included) to 1 (excluded).
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    pub fn uniform_in(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// An index below `count`, all equally likely.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.next_u64()) * count as u128) >> 64) as usize
    }

    /// Standard normal, by the polar method.
    pub(crate) fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare_normal.take() {
            return spare;
        }
        loop {
            let (u, v) = (self.uniform_in(-1.0, 1.0), self.uniform_in(-1.0, 1.0));
            let square = u * u + v * v;
            if square > 0.0 && square < 1.0 {
                let scale = (-2.0 * square.ln() / square).sqrt();
                self.spare_normal = Some(v * scale);
                return u * scale;
            }
        }
    }

    /// An index with probability in proportion to its weight.
    pub(crate) fn weighted(&mut self, weights: &[f64]) -> usize {
        let mut left = self.uniform() * weights.iter().sum::<f64>();
        for (index, weight) in weights.iter().enumerate() {
            left -= weight;
            if left < 0.0 {
                return index;
            }
        }
        weights.len() - 1
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A number that follows from a text and hardly ever from another (FNV-1a).
pub(crate) fn mixed(start: u64, text: &str) -> u64 {
    text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_gives_the_published_numbers() {
        let mut rng = Rng { state: [1, 2, 3, 4], spare_normal: None };
        let first: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        assert_eq!(first, [41943041, 58720359, 3588806011781223, 3591011842654386]);
    }

    #[test]
    fn uniform_and_normal_numbers_have_their_mean_and_spread() {
        let mut rng = Rng::new(7);
        let draws = 100_000;
        let uniforms: Vec<f64> = (0..draws).map(|_| rng.uniform()).collect();
        let normals: Vec<f64> = (0..draws).map(|_| rng.normal()).collect();
        let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / draws as f64;
        let square = |numbers: &[f64]| numbers.iter().map(|x| x * x).sum::<f64>() / draws as f64;
        assert!((mean(&uniforms) - 0.5).abs() < 0.005 && (square(&uniforms) - 1.0 / 3.0).abs() < 0.005);
        assert!(mean(&normals).abs() < 0.015 && (square(&normals) - 1.0).abs() < 0.02);
    }

    #[test]
    fn neighbouring_streams_share_no_number() {
        let draw = |key: &[u64]| Rng::stream(key).next_u64();
        let all: std::collections::HashSet<u64> = (0..50).flat_map(|a| (0..50).map(move |b| draw(&[a, b]))).collect();
        assert_eq!(all.len(), 2500);
        assert_ne!(draw(&[1]), draw(&[1, 0]));
    }
}
