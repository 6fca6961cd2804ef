//! Data made by code from a seed, honestly learnable, with the best possible result known.

mod cooking;
mod grammar;
mod regimes;
mod sentiment;
mod shapes;
mod words;

pub use cooking::recipes;
pub use grammar::{GrammarOptions, grammar};
pub use regimes::{REGIMES, RegimesOptions, regimes};
pub use sentiment::sentiment;
pub use shapes::{SHAPES_END, SHAPES_VOCABULARY, Shapes, ShapesData, ShapesOptions, shapes, shapes_tokenizer};
pub use words::WordStyle;
pub(crate) use words::word_tokenizer;

use plimsoll_base::random::{Stream, site};

/// A sequence of random numbers.
struct Noise {
    stream: Stream,
    drawn: u64,
}

impl Noise {
    /// Different names give independent sequences of one seed.
    fn new(seed: u64, name: &str) -> Self {
        Noise { stream: Stream::new(seed, site(name), 0), drawn: 0 }
    }

    /// Sample `index` of a set has a sequence of its own.
    fn at(seed: u64, name: &str, index: u64) -> Self {
        Noise { stream: Stream::new(seed, site(name), index), drawn: 0 }
    }

    /// Two uniform numbers in (0, 1).
    fn pair(&mut self) -> [f64; 2] {
        let words = self.stream.quad((self.drawn >> 32) as u32, self.drawn as u32, 0);
        self.drawn += 1;
        [[words[0], words[1]], [words[2], words[3]]].map(|[high, low]| {
            let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
            (bits as f64 + 0.5) / (1u64 << 53) as f64
        })
    }

    fn uniform(&mut self) -> f64 {
        self.pair()[0]
    }

    /// One of several, each as likely.
    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[((self.uniform() * of.len() as f64) as usize).min(of.len() - 1)]
    }

    /// A standard normal number (Box–Muller).
    fn normal(&mut self) -> f64 {
        let [radius, angle] = self.pair();
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_numbers_have_the_moments_of_a_normal() {
        let mut noise = Noise::new(3, "test");
        let draws: Vec<f64> = (0..100_000).map(|_| noise.normal()).collect();
        let moment = |power| draws.iter().map(|x| x.powi(power)).sum::<f64>() / draws.len() as f64;
        assert!(moment(1).abs() < 0.01 && (moment(2) - 1.0).abs() < 0.02 && (moment(4) - 3.0).abs() < 0.15);
        assert_ne!(Noise::new(3, "a").uniform(), Noise::new(3, "b").uniform());
        assert_ne!(Noise::new(3, "a").uniform(), Noise::new(4, "a").uniform());
    }
}
