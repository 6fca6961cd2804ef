//! Counter-based random numbers (Philox 4×32): a mask is a pure function of where it is used, so it is never
//! stored and comes out the same in the backward pass, in a recompute, and under any micro-batch or grouping.
//!
//! Numbers are drawn by ten rounds. Masks are by far the most that is drawn, and want sixteen bits each: seven rounds,
//! the fewest that pass every test of BigCrush, give them eight at a time.

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
        philox::<10>([self.step, sample, row, quad], self.key)
    }

    /// Sixteen random bits for each of eight neighbours, the two of a word in its lower and its upper half.
    #[inline(always)]
    pub fn eight(&self, sample: u32, row: u32, group: u32) -> [u32; 4] {
        philox::<7>([self.step, sample, row, group], self.key)
    }

    /// The random word of one coordinate; `quad` gives the same words four at a time.
    #[inline(always)]
    pub fn word(&self, sample: u32, row: u32, column: u32) -> u32 {
        self.quad(sample, row, column / 4)[(column % 4) as usize]
    }
}

/// Dropout with some probability, as far as sixteen bits tell it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropping {
    /// An element falls if its sixteen bits, as the upper half of a word, are below this: their number is the smallest
    /// of which 2¹⁶ has a share of p or more.
    pub threshold: u32,
    /// What the others are multiplied by: the mean stays, to the bit of what is dropped in fact.
    pub keep: f64,
}

impl Dropping {
    /// `p` lies in [0, 1).
    #[inline(always)]
    pub fn new(p: f64) -> Dropping {
        let fallen = (p * 65536.0).ceil().clamp(0.0, 65535.0);
        Dropping { threshold: (fallen as u32) << 16, keep: 65536.0 / (65536.0 - fallen) }
    }

    /// Whether the neighbour with the lower half of a word falls.
    #[inline(always)]
    pub fn drops_lower(&self, word: u32) -> bool {
        word << 16 < self.threshold
    }

    /// Whether the neighbour with the upper half does: what is below it changes nothing.
    #[inline(always)]
    pub fn drops_upper(&self, word: u32) -> bool {
        word < self.threshold
    }
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
fn philox<const ROUNDS: usize>(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
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
        assert_eq!(philox::<10>([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
        assert_eq!(philox::<10>([u32::MAX; 4], [u32::MAX; 2]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
        assert_eq!(
            philox::<10>([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]),
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
        );
    }

    /// Known answers of the same vectors for seven rounds.
    #[test]
    fn masks_are_drawn_by_seven_rounds() {
        assert_eq!(philox::<7>([0; 4], [0; 2]), [0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48]);
        assert_eq!(philox::<7>([u32::MAX; 4], [u32::MAX; 2]), [0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662]);
        let stream = Stream::new(7, 8, 3);
        assert_eq!(stream.eight(1, 2, 3), philox::<7>([stream.step, 1, 2, 3], stream.key));
    }

    /// How many of `n` elements fall, and how many pairs of neighbours do.
    fn fallen(p: f64, n: u32) -> (f64, f64) {
        let (stream, dropping) = (Stream::new(7, site("ffn.drop"), 3), Dropping::new(p));
        let (mut alone, mut both) = (0, 0);
        for group in 0..n / 8 {
            for word in stream.eight(group / 1000, 0, group % 1000) {
                let (lower, upper) = (dropping.drops_lower(word), dropping.drops_upper(word));
                alone += u32::from(lower) + u32::from(upper);
                both += u32::from(lower && upper);
            }
        }
        (f64::from(alone), f64::from(both))
    }

    #[test]
    fn as_many_fall_as_asked_and_neighbours_independently() {
        let n = 4_000_000;
        for p in [0.001, 0.1, 0.25, 0.5, 0.9] {
            let (alone, both) = fallen(p, n);
            let share = f64::from(Dropping::new(p).threshold >> 16) / 65536.0;
            let off = |count: f64, n: f64, p: f64| (count - n * p).abs() / (n * p * (1.0 - p)).sqrt();
            assert!(off(alone, f64::from(n), share) < 4.5, "{alone} of {n} at {p}");
            assert!(off(both, f64::from(n / 2), share * share) < 4.5, "{both} pairs of {n} at {p}");
        }
    }

    #[test]
    fn the_mean_stays_and_no_probability_is_lost() {
        for p in [0.0, 1e-9, 0.1, 0.1f32 as f64, 0.5, 0.999_999] {
            let Dropping { threshold, keep } = Dropping::new(p);
            let share = f64::from(threshold >> 16) / 65536.0;
            assert!((keep * (1.0 - share) - 1.0).abs() < 1e-12 && (share - p).abs() <= 1.0 / 65536.0, "{p}: {share}");
            assert_eq!(threshold == 0, p == 0.0);
        }
    }
}
