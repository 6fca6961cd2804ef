//! The Parzen estimator: past trials as a mixture of kernels, one per trial and one for the whole space, each a product
//! over the parameters of truncated normals (numbers) and categorical distributions (choices).

use std::collections::HashMap;

use super::argsort::argsort;
use super::truncnorm;
use crate::rng::Rng;
use crate::space::Distribution;

/// A density over some parameters.
pub struct Parzen {
    weights: Vec<f64>,
    log_weights: Vec<f64>,
    dimensions: Vec<Dimension>,
}

/// One parameter's kernels.
enum Dimension {
    Numeric(Numeric),
    /// A row of probabilities per kernel.
    Categorical(Vec<Vec<f64>>),
}

struct Numeric {
    mus: Vec<f64>,
    sigmas: Vec<f64>,
    /// ln of what a kernel loses outside the range.
    log_norms: Vec<f64>,
    /// What is the same for every point of a continuous parameter: 1/σ, and ln of what the density is divided by.
    inverses: Vec<f64>,
    constants: Vec<f64>,
    /// Bounds in the space of the kernels: logarithms for a logarithmic range, half a step wider for steps.
    inner: (f64, f64),
    /// Bounds of the values themselves.
    outer: (f64, f64),
    log: bool,
    step: Option<f64>,
}

impl Parzen {
    /// `observations[i]` holds the internal numbers of parameter `i`, oldest trial first; `weights` those of the
    /// trials, or none for the usual ones by age.
    pub(crate) fn new(distributions: &[&Distribution], observations: &[Vec<f64>], weights: Option<Vec<f64>>) -> Self {
        let count = observations.first().map_or(0, Vec::len);
        let mut weights = weights.unwrap_or_else(|| weights_by_age(count));
        weights.push(1.0);
        let sum: f64 = pairwise_sum(&weights);
        weights.iter_mut().for_each(|weight| *weight /= sum);
        let log_weights = weights.iter().map(|weight| weight.ln()).collect();
        let dimensions = distributions.iter().zip(observations).map(|(of, seen)| Dimension::new(of, seen)).collect();
        Self { weights, log_weights, dimensions }
    }

    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Centres and widths of a numeric parameter's kernels, the prior's last.
    pub fn kernels(&self, dimension: usize) -> Option<(&[f64], &[f64])> {
        match &self.dimensions[dimension] {
            Dimension::Numeric(numeric) => Some((&numeric.mus, &numeric.sigmas)),
            Dimension::Categorical(_) => None,
        }
    }

    /// Probabilities of a categorical parameter's choices, a row per kernel, the prior's last.
    pub fn choice_rows(&self, dimension: usize) -> Option<&[Vec<f64>]> {
        match &self.dimensions[dimension] {
            Dimension::Categorical(rows) => Some(rows),
            Dimension::Numeric(_) => None,
        }
    }

    /// Draws `count` points, each a row of internal numbers.
    pub(crate) fn sample(&self, rng: &mut Rng, count: usize) -> Vec<Vec<f64>> {
        (0..count)
            .map(|_| {
                let kernel = rng.weighted(&self.weights);
                self.dimensions.iter().map(|dimension| dimension.draw(kernel, rng)).collect()
            })
            .collect()
    }

    /// ln of the density at each point.
    pub(crate) fn log_pdf(&self, points: &[Vec<f64>]) -> Vec<f64> {
        let mut known = vec![Masses::new(); self.dimensions.len()];
        let mut row = vec![0.0; self.weights.len()];
        let mut at = |point: &Vec<f64>| {
            row.copy_from_slice(&self.log_weights);
            for ((dimension, value), known) in self.dimensions.iter().zip(point).zip(&mut known) {
                dimension.add_log_pdf(*value, known, &mut row);
            }
            log_of_sum(&row)
        };
        points.iter().map(&mut at).collect()
    }
}

/// ln of the sum of what `row` has the logarithms of.
fn log_of_sum(row: &[f64]) -> f64 {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let shift = if largest == f64::NEG_INFINITY { 0.0 } else { largest };
    // What lies so far below the largest adds less than its last digit, thousands of times over.
    let near = row.iter().map(|log| log - shift).filter(|log| *log > FAR_BELOW);
    near.map(f64::exp).sum::<f64>().ln() + shift
}

/// ln of the mass of a kernel around a value, by value, centre and width: those of discrete parameters repeat.
type Masses = HashMap<(u64, u64, u64), f64>;

/// e to this is 4e-18.
const FAR_BELOW: f64 = -40.0;

/// 1 for each trial while there are few; later the 25 newest count fully and older ones less the older they are.
fn weights_by_age(count: usize) -> Vec<f64> {
    if count < 25 {
        return vec![1.0; count];
    }
    let old = count - 25;
    let first = 1.0 / count as f64;
    let step = (1.0 - first) / (old.max(2) - 1) as f64;
    let ramp = (0..old).map(|age| if age + 1 == old && old > 1 { 1.0 } else { first + step * age as f64 });
    ramp.chain(std::iter::repeat_n(1.0, 25)).collect()
}

/// Sums halves recursively: many weights are added without their errors adding up.
fn pairwise_sum(numbers: &[f64]) -> f64 {
    if numbers.len() <= 8 {
        return numbers.iter().sum();
    }
    let (left, right) = numbers.split_at(numbers.len() / 2);
    pairwise_sum(left) + pairwise_sum(right)
}

impl Dimension {
    fn new(distribution: &Distribution, observations: &[f64]) -> Self {
        match distribution {
            Distribution::Categorical { choices } => Self::Categorical(choice_rows(choices.len(), observations)),
            _ => Self::Numeric(Numeric::new(distribution, observations)),
        }
    }

    fn draw(&self, kernel: usize, rng: &mut Rng) -> f64 {
        match self {
            Self::Numeric(numeric) => numeric.draw(kernel, rng),
            Self::Categorical(rows) => rng.weighted(&rows[kernel]) as f64,
        }
    }

    /// Adds each kernel's ln density at a value to `row`.
    fn add_log_pdf(&self, value: f64, known: &mut Masses, row: &mut [f64]) {
        match self {
            Self::Numeric(numeric) if numeric.step.is_some() => numeric.add_log_mass(value, known, row),
            Self::Numeric(numeric) => numeric.add_log_density(value, row),
            Self::Categorical(rows) => {
                row.iter_mut().zip(rows).for_each(|(log, choices)| *log += choices[value as usize].ln());
            }
        }
    }
}

fn choice_rows(choices: usize, observations: &[f64]) -> Vec<Vec<f64>> {
    if observations.is_empty() {
        return vec![vec![1.0 / choices as f64; choices]];
    }
    let kernels = observations.len() + 1;
    let mut rows = vec![vec![1.0 / kernels as f64; choices]; kernels];
    for (row, observed) in rows.iter_mut().zip(observations) {
        row[*observed as usize] += 1.0;
    }
    for row in &mut rows {
        let sum = pairwise_sum(row);
        row.iter_mut().for_each(|weight| *weight /= sum);
    }
    rows
}

impl Numeric {
    fn new(distribution: &Distribution, observations: &[f64]) -> Self {
        let (log, step, outer) = (distribution.is_log(), distribution.step(), distribution.bounds());
        let scale = |number: f64| if log { number.ln() } else { number };
        let half = step.unwrap_or(0.0) / 2.0;
        let inner = (scale(outer.0 - half), scale(outer.1 + half));
        let mut mus: Vec<f64> = observations.iter().copied().map(scale).collect();
        let mut sigmas = widths(&mus, inner);
        mus.push(0.5 * (inner.0 + inner.1));
        sigmas.push(inner.1 - inner.0);
        let none = Vec::new;
        let mut numeric =
            Self { mus, sigmas, log_norms: none(), inverses: none(), constants: none(), inner, outer, log, step };
        numeric.log_norms = numeric.norms();
        if step.is_none() {
            numeric.inverses = numeric.sigmas.iter().map(|sigma| 1.0 / sigma).collect();
            numeric.constants = constants(&numeric.sigmas, &numeric.log_norms);
        }
        numeric
    }

    /// ln of what each kernel is divided by. Kernels of discrete parameters repeat, so equal ones are computed once.
    fn norms(&self) -> Vec<f64> {
        let norm =
            |mu: f64, sigma: f64| truncnorm::log_gauss_mass((self.inner.0 - mu) / sigma, (self.inner.1 - mu) / sigma);
        let kernels = self.mus.iter().copied().zip(self.sigmas.iter().copied());
        if self.step.is_none() {
            return kernels.map(|(mu, sigma)| norm(mu, sigma)).collect();
        }
        let mut known: HashMap<(u64, u64), f64> = HashMap::new();
        kernels
            .map(|(mu, sigma)| *known.entry((mu.to_bits(), sigma.to_bits())).or_insert_with(|| norm(mu, sigma)))
            .collect()
    }

    fn draw(&self, kernel: usize, rng: &mut Rng) -> f64 {
        let (mu, sigma) = (self.mus[kernel], self.sigmas[kernel]);
        let (a, b) = ((self.inner.0 - mu) / sigma, (self.inner.1 - mu) / sigma);
        let drawn = truncnorm::quantile(rng.uniform(), a, b) * sigma + mu;
        let value = if self.log { drawn.exp() } else { drawn };
        let (low, high) = self.outer;
        match self.step {
            Some(step) => (low + ((value - low) / step).round_ties_even() * step).clamp(low, high),
            None => value.clamp(low, high),
        }
    }

    fn add_log_density(&self, value: f64, row: &mut [f64]) {
        let value = if self.log { value.ln() } else { value };
        let of_kernels = self.mus.iter().zip(&self.inverses).zip(&self.constants);
        for (log, ((mu, inverse), constant)) in row.iter_mut().zip(of_kernels) {
            let distance = (value - mu) * inverse;
            *log -= 0.5 * distance * distance + constant;
        }
    }

    /// The probability of a step is the mass of its surroundings of half a step either way.
    fn add_log_mass(&self, value: f64, known: &mut Masses, row: &mut [f64]) {
        let half = self.step.unwrap_or(0.0) / 2.0;
        let scale = |number: f64| if self.log { number.ln() } else { number };
        let (left, right) = (scale(value - half), scale(value + half));
        for (kernel, log) in row.iter_mut().enumerate() {
            let (mu, sigma) = (self.mus[kernel], self.sigmas[kernel]);
            *log += *known
                .entry((value.to_bits(), mu.to_bits(), sigma.to_bits()))
                .or_insert_with(|| truncnorm::log_gauss_mass((left - mu) / sigma, (right - mu) / sigma));
            *log -= self.log_norms[kernel];
        }
    }
}

/// ln(σ √(2π)) and what is lost outside the range. Many kernels have the least width there is: its logarithm is taken once.
fn constants(sigmas: &[f64], log_norms: &[f64]) -> Vec<f64> {
    let mut last = (1.0, truncnorm::LN_SQRT_2PI);
    let of = |(sigma, norm): (&f64, &f64)| {
        if *sigma != last.0 {
            last = (*sigma, sigma.ln() + truncnorm::LN_SQRT_2PI);
        }
        norm + last.1
    };
    sigmas.iter().zip(log_norms).map(of).collect()
}

/// A kernel reaches to the farther of its two neighbours; the outermost to their one neighbour inside. No kernel is
/// wider than the range, and none narrower than a share of it that shrinks with their number.
fn widths(mus: &[f64], (low, high): (f64, f64)) -> Vec<f64> {
    let order = argsort(mus);
    let at = |rank: usize| if rank == 0 { low } else { order.get(rank - 1).map_or(high, |index| mus[*index]) };
    let narrowest = (high - low) / (2.0 + mus.len() as f64).min(100.0);
    let mut sigmas = vec![0.0; mus.len()];
    for rank in 1..=mus.len() {
        let (left, right) = (at(rank) - at(rank - 1), at(rank + 1) - at(rank));
        let reach = match rank {
            1 if mus.len() > 1 => right,
            last if last == mus.len() && mus.len() > 1 => left,
            _ => left.max(right),
        };
        sigmas[order[rank - 1]] = reach.max(narrowest).min(high - low);
    }
    sigmas
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    #[test]
    fn old_trials_count_less_and_the_newest_fully() {
        assert_eq!(weights_by_age(3), [1.0; 3]);
        assert_eq!(weights_by_age(25), [1.0; 25]);
        assert_eq!(weights_by_age(26)[0], 1.0 / 26.0);
        let weights = weights_by_age(100);
        assert_eq!((weights[0], weights[74], weights[99]), (0.01, 1.0, 1.0));
        assert!(weights.is_sorted());
    }

    #[test]
    fn without_trials_the_density_is_the_prior_alone() {
        let distribution = Distribution::float(0.0, 1.0).unwrap();
        let parzen = Parzen::new(&[&distribution], &[vec![]], None);
        assert_eq!(parzen.weights(), [1.0]);
        assert_eq!(parzen.kernels(0).unwrap(), (&[0.5][..], &[1.0][..]));
    }

    proptest! {
        /// The masses of all values of a discrete parameter add up to one, whatever was observed.
        #[test]
        fn a_discrete_density_adds_up_to_one(
            low in -20i64..20, count in 1i64..40, step in 1i64..7, picks in proptest::collection::vec(0.0..1.0f64, 0..60),
        ) {
            let distribution = Distribution::int_steps(low, low + count * step, step).unwrap();
            let values: Vec<f64> = (0..=count as u64).map(|index| distribution.nth(index)).collect();
            let seen: Vec<f64> = picks.iter().map(|pick| values[(pick * values.len() as f64) as usize]).collect();
            let parzen = Parzen::new(&[&distribution], &[seen], None);
            let points: Vec<Vec<f64>> = values.iter().map(|value| vec![*value]).collect();
            let total: f64 = parzen.log_pdf(&points).into_iter().map(f64::exp).sum();
            prop_assert!((total - 1.0).abs() < 1e-9, "adds up to {}", total);
        }

        #[test]
        fn what_is_drawn_lies_in_the_domain(seed in any::<u64>(), picks in proptest::collection::vec(0.0..1.0f64, 0..40)) {
            let domains = [
                Distribution::float(-3.0, 5.0).unwrap(),
                Distribution::log_float(1e-6, 1e-1).unwrap(),
                Distribution::float_steps(0.1, 0.9, 0.1).unwrap(),
                Distribution::log_int(1, 4096).unwrap(),
            ];
            let seen: Vec<Vec<f64>> = domains.iter().map(|domain| {
                let (low, high) = domain.bounds();
                picks.iter().map(|pick| (low + pick * (high - low)).clamp(low, high)).collect()
            }).collect();
            let parzen = Parzen::new(&domains.each_ref(), &seen, None);
            for point in parzen.sample(&mut Rng::new(seed), 24) {
                for (domain, internal) in domains.iter().zip(&point) {
                    prop_assert!(domain.contains(*internal), "{} is not in {}", internal, domain);
                }
            }
        }
    }
}
