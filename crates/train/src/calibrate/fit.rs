//! Rates from observations: for each class, the seconds per amount, none of them negative, that come nearest to what was
//! measured.

use plimsoll_core::graph::Class;
use plimsoll_core::plan::{AMOUNTS, Amounts, Work};
use std::collections::BTreeMap;

/// One node of a model's step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    pub work: Work,
    /// Of one run.
    pub seconds: f64,
    /// How often it runs in a step.
    pub runs: f64,
    /// Seconds of the whole step.
    pub step: f64,
}

impl Observation {
    /// Distances count relative to what lies between the node and its step: neither the many small nodes nor the few
    /// large ones may decide alone.
    fn weight(&self) -> f64 {
        self.runs / (self.seconds.max(1e-7) * self.step.max(1e-7))
    }
}

/// The rates of each class that was seen, and the weighted squares left over. `before` has those of amounts that no node
/// of a class had.
pub fn by_class(observations: &[Observation], before: &BTreeMap<Class, Amounts>) -> (BTreeMap<Class, Amounts>, f64) {
    let (mut rates, mut left_over) = (BTreeMap::new(), 0.0);
    for class in Class::ALL.into_iter().filter(|&class| class != Class::View) {
        let own: Vec<&Observation> = observations.iter().filter(|seen| seen.work.class == class).collect();
        if own.is_empty() {
            continue;
        }
        let fitted = with_unseen(robust(&own), &own, before.get(&class));
        let square = |seen: &&Observation| seen.weight() * (fitted.dot(&seen.work.amounts) - seen.seconds).powi(2);
        left_over += own.iter().map(square).sum::<f64>();
        rates.insert(class, fitted);
    }
    (rates, left_over)
}

/// An amount that no node of the class had keeps the rate it had before.
fn with_unseen(fitted: Amounts, observations: &[&Observation], before: Option<&Amounts>) -> Amounts {
    let seen = |i: usize| observations.iter().any(|seen| seen.work.amounts.0[i] > 0.0);
    let rate = |i: usize| if seen(i) { fitted.0[i] } else { before.map_or(0.0, |before| before.0[i]) };
    Amounts(std::array::from_fn(rate))
}

/// Fits again and again, each time with less weight on what lies far off: a node that the machine was taken away from.
fn robust(observations: &[&Observation]) -> Amounts {
    let mut weights: Vec<f64> = observations.iter().map(|seen| seen.weight()).collect();
    let mut fitted = least_squares(observations, &weights);
    for _ in 0..ROUNDS {
        for (weight, seen) in weights.iter_mut().zip(observations) {
            let off = (fitted.dot(&seen.work.amounts) - seen.seconds).abs() / seen.seconds.max(1e-9);
            *weight = seen.weight() / (off / TOLERATED).max(1.0);
        }
        fitted = least_squares(observations, &weights);
    }
    fitted
}

const ROUNDS: usize = 6;
/// Distances up to this are the model's own.
const TOLERATED: f64 = 0.2;
/// More than enough for ten unknowns.
const SWEEPS: usize = 500;
/// The most seconds that one of each amount can take on any machine that trains: without limits, a class that was seen
/// at few sizes is explained by whatever its nodes happen to have in common.
const LIMITS: [f64; AMOUNTS] = [50e-6, 1e-9, 2e-10, 5e-10, 20e-6, 2e-9, 2e-9, 2e-9, 2e-9, 50e-9];

/// Least squares without negative answers, one unknown after the other until nothing moves.
fn least_squares(observations: &[&Observation], weights: &[f64]) -> Amounts {
    let mut products = [[0.0; AMOUNTS]; AMOUNTS];
    let mut targets = [0.0; AMOUNTS];
    let scales = scales(observations);
    for (seen, weight) in observations.iter().zip(weights) {
        let amounts = seen.work.amounts.0;
        for i in 0..AMOUNTS {
            targets[i] += weight * amounts[i] * scales[i] * seen.seconds;
            for j in 0..AMOUNTS {
                products[i][j] += weight * amounts[i] * scales[i] * amounts[j] * scales[j];
            }
        }
    }
    let mut answer = [0.0; AMOUNTS];
    for _ in 0..SWEEPS {
        for i in (0..AMOUNTS).filter(|&i| products[i][i] > 0.0) {
            let others: f64 = (0..AMOUNTS).filter(|&j| j != i).map(|j| products[i][j] * answer[j]).sum();
            answer[i] = ((targets[i] - others) / products[i][i]).clamp(0.0, LIMITS[i] / scales[i]);
        }
    }
    Amounts(std::array::from_fn(|i| answer[i] * scales[i]))
}

/// Bytes and operations are counted in millions: brings every unknown to about the same size.
fn scales(observations: &[&Observation]) -> [f64; AMOUNTS] {
    std::array::from_fn(|i| {
        let largest = observations.iter().map(|seen| seen.work.amounts.0[i]).fold(0.0, f64::max);
        if largest > 0.0 { 1.0 / largest } else { 1.0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::plan::Amount;
    use plimsoll_core::types::DType;

    fn seen(class: Class, amounts: Amounts, rates: &Amounts) -> Observation {
        let work = Work { class, dtype: DType::F32, amounts };
        Observation { work, seconds: rates.dot(&amounts), runs: 1.0, step: 1e-2 }
    }

    #[test]
    fn rates_that_made_the_times_are_found_again() {
        let rates =
            Amounts::default().with(Amount::Node, 5e-6).with(Amount::Flops, 4e-12).with(Amount::FarBytes, 1e-10);
        let case = |i: usize| {
            let amounts = Amounts::default()
                .with(Amount::Node, 1.0)
                .with(Amount::Flops, 1e5 * (i * i + 1) as f64)
                .with(Amount::NearBytes, 3e4 * (i % 4) as f64)
                .with(Amount::FarBytes, 2e4 * (i % 3) as f64);
            seen(Class::Norm, amounts, &rates)
        };
        let cases: Vec<Observation> = (0..20).map(case).collect();
        let (found, left_over) = by_class(&cases, &BTreeMap::new());
        let found = found[&Class::Norm];
        for (found, made) in found.0.iter().zip(rates.0) {
            assert!((found - made).abs() <= 0.01 * made.max(1e-13), "{found} instead of {made}");
        }
        assert!(left_over < 1e-6, "{left_over}");
    }

    #[test]
    fn a_node_that_was_interrupted_does_not_spoil_the_rates() {
        let rates = Amounts::default().with(Amount::Node, 5e-6).with(Amount::Flops, 4e-12);
        let case = |i: usize| {
            let flops = Amounts::default().with(Amount::Node, 1.0).with(Amount::Flops, 1e6 * (i + 1) as f64);
            let seen = seen(Class::Norm, flops, &rates);
            Observation { seconds: if i == 7 { 20.0 * seen.seconds } else { seen.seconds }, ..seen }
        };
        let cases: Vec<Observation> = (0..20).map(case).collect();
        let found = by_class(&cases, &BTreeMap::new()).0[&Class::Norm];
        assert!((found.of(Amount::Flops) / 4e-12 - 1.0).abs() < 0.1, "{found:?}");
    }

    #[test]
    fn what_was_not_seen_keeps_its_rates_and_nothing_is_negative() {
        let known = Amounts::default().with(Amount::Node, 1.0);
        let before =
            BTreeMap::from([(Class::Loss, known), (Class::Norm, Amounts::default().with(Amount::HostBytes, 3.0))]);
        // Less time for more operations: the best non-negative rate per operation is none.
        let odd = |flops: f64, seconds: f64| Observation {
            seconds,
            ..seen(Class::Norm, Amounts::default().with(Amount::Node, 1.0).with(Amount::Flops, flops), &known)
        };
        let (rates, _) = by_class(&[odd(1e6, 3e-6), odd(2e6, 2e-6)], &before);
        assert_eq!(rates[&Class::Norm].of(Amount::HostBytes), 3.0);
        assert!(!rates.contains_key(&Class::Loss));
        assert!(rates[&Class::Norm].0.iter().all(|&rate| rate >= 0.0));
        assert_eq!(rates[&Class::Norm].of(Amount::Flops), 0.0);
    }
}
