//! Every parameter drawn on its own, evenly over its domain (over its logarithm where the domain is logarithmic).

use super::{History, Sampler, Suggestion};
use crate::rng::Rng;
use crate::space::{Distribution, Point, Space};

/// Draws at random.
#[derive(Clone, Copy, Debug, Default)]
pub struct Random;

impl Sampler for Random {
    fn suggest(&mut self, _: &History, space: &Space, fixed: &Point, rng: &mut Rng) -> Suggestion {
        Suggestion::from(space.walk(|parameter| {
            super::fixed_value(parameter, fixed).unwrap_or_else(|| at(&parameter.distribution, rng.uniform()))
        }))
    }
}

/// The value at a share `u` of the domain, 0 ≤ u < 1; steps and choices have equal shares.
pub(crate) fn at(distribution: &Distribution, u: f64) -> f64 {
    let (low, high) = distribution.bounds();
    if distribution.is_single() {
        return low;
    }
    let half = distribution.step().unwrap_or(0.0) / 2.0;
    let (log, step) = (distribution.is_log(), distribution.step());
    match distribution {
        Distribution::Categorical { choices } => (u * choices.len() as f64).floor().min(high),
        _ if log => {
            let (from, to) = ((low - half).ln(), (high + half).ln());
            let value = (from + u * (to - from)).exp();
            if step.is_some() { value.round().clamp(low, high) } else { value.clamp(low, high.next_down()) }
        }
        _ => match step {
            Some(step) => {
                let value = (low - half) + u * (high - low + step);
                (((value - low) / step).round() * step + low).clamp(low, high)
            }
            None => (low + u * (high - low)).min(high.next_down()),
        },
    }
}

/// Where a value lies in its domain, 0 to 1: the inverse of [`at`], at the middle of a step's share.
pub(crate) fn share_of(distribution: &Distribution, internal: f64) -> f64 {
    if distribution.is_single() {
        return 0.5;
    }
    let (low, high) = distribution.bounds();
    if let Distribution::Categorical { choices } = distribution {
        return (internal + 0.5) / choices.len() as f64;
    }
    let half = distribution.step().unwrap_or(0.0) / 2.0;
    let (from, to) = (low - half, high + half);
    if distribution.is_log() { (internal / from).ln() / (to / from).ln() } else { (internal - from) / (to - from) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    #[test]
    fn every_step_and_choice_is_drawn_equally_often() {
        let steps = Distribution::int_steps(3, 15, 4).unwrap();
        let mut counts = std::collections::BTreeMap::<i64, usize>::new();
        let mut rng = Rng::new(1);
        (0..40_000).for_each(|_| *counts.entry(at(&steps, rng.uniform()) as i64).or_default() += 1);
        assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [3, 7, 11, 15]);
        assert!(counts.values().all(|count| count.abs_diff(10_000) < 400), "{counts:?}");
    }

    proptest! {
        #[test]
        fn a_share_and_its_value_are_inverse(u in 0.0..1.0f64) {
            let domains = [
                Distribution::float(-3.0, 5.0).unwrap(),
                Distribution::log_float(1e-6, 1e-1).unwrap(),
                Distribution::float_steps(0.5, 4.0, 0.25).unwrap(),
                Distribution::log_int(1, 4096).unwrap(),
                Distribution::categorical(vec![1i64.into(), 2i64.into(), 3i64.into()]).unwrap(),
            ];
            for domain in &domains {
                let value = at(domain, u);
                prop_assert!(domain.contains(value), "{} is not in {}", value, domain);
                let again = at(domain, share_of(domain, value));
                prop_assert!((again - value).abs() <= 1e-9 * value.abs().max(1e-9), "{} became {}", value, again);
            }
        }
    }
}
