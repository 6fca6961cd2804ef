//! Counter-based random numbers (Philox 4×32-10): a mask is a pure function of where it is used, so it is never
//! stored and comes out the same in the backward pass, in a recompute, and under any micro-batch or grouping.

/// The stream of one dropout site in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    key: [u32; 2],
    step: u32,
}

impl Stream {
    /// `site` is the hash of the layer path (see [`site`]).
    #[inline(always)]
    pub fn new(seed: u64, site: u64, step: u64) -> Self {
        let mixed = mix(seed ^ mix(site) ^ (step >> 32).rotate_left(17));
        Stream { key: [mixed as u32, (mixed >> 32) as u32], step: step as u32 }
    }

    /// Four random words for the coordinates `(row, 4 * quad .. 4 * quad + 4)` inside sample `sample`.
    #[inline(always)]
    pub fn quad(&self, sample: u32, row: u32, quad: u32) -> [u32; 4] {
        philox([self.step, sample, row, quad], self.key)
    }

    /// The random word of one coordinate; `quad` gives the same words four at a time.
    #[inline(always)]
    pub fn word(&self, sample: u32, row: u32, column: u32) -> u32 {
        self.quad(sample, row, column / 4)[(column % 4) as usize]
    }
}

/// Words below this threshold are dropped: the smallest t with t / 2^32 ≥ p.
#[inline(always)]
pub fn drop_threshold(p: f32) -> u32 {
    (p as f64 * 4294967296.0).ceil().min(u32::MAX as f64) as u32
}

/// A stable 64-bit hash of a layer path (FNV-1a, finished by a mixer): the same in every version and on every machine.
pub fn site(path: &str) -> u64 {
    mix(path.bytes().fold(0xcbf29ce484222325, |h, b| (h ^ b as u64).wrapping_mul(0x100000001b3)))
}

#[inline(always)]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d049bb133111eb);
    x ^ (x >> 31)
}

#[inline(always)]
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let a = counter[0] as u64 * 0xD2511F53;
        let b = counter[2] as u64 * 0xCD9E8D57;
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9E3779B9), key[1].wrapping_add(0xBB67AE85)];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of the Random123 test vectors.
    #[test]
    fn philox_matches_the_published_vectors() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
        assert_eq!(
            philox([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]),
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
        );
    }

    #[test]
    fn words_are_uniform_enough_for_dropout() {
        let stream = Stream::new(7, site("ffn.drop"), 3);
        let dropped = (0..100_000u32).filter(|&i| stream.word(i / 1000, 0, i % 1000) < drop_threshold(0.1)).count();
        assert!((9_600..10_400).contains(&dropped), "{dropped} of 100000 dropped at p = 0.1");
    }
}
