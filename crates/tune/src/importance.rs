//! How much each parameter decides whether a trial is good: PED-ANOVA (Watanabe et al., 2023). The settings of the best
//! trials are compared with those of all: where a parameter's two densities differ much, it matters.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::order;
use crate::samplers::random;
use crate::space::Distribution;
use crate::trial::{Direction, Param, State, Trial};

/// The share of trials that counts as good.
const GOOD: f64 = 0.1;
/// Ranges are looked at in so many places.
const PLACES: usize = 50;

/// Importances that add up to 1, of the parameters that all complete trials have in common; empty while there are too
/// few trials to tell. `objective` says which of several objectives is meant.
pub(crate) fn importances(trials: &[Arc<Trial>], directions: &[Direction], objective: usize) -> BTreeMap<String, f64> {
    let mut ranked: Vec<(f64, &Arc<Trial>)> =
        trials.iter().filter_map(|trial| ranked(trial, directions, objective)).collect();
    order::sort_by(&mut ranked, |a, b| a.0.total_cmp(&b.0));
    let good = ((GOOD * ranked.len() as f64).ceil() as usize).max(2);
    if ranked.len() < 2 * good {
        return BTreeMap::new();
    }
    let trials: Vec<&Trial> = ranked.iter().map(|(_, trial)| trial.as_ref()).collect();
    let shared =
        trials[0].params.iter().filter(|(name, _)| trials.iter().all(|trial| trial.params.contains_key(*name)));
    let importance = |(name, param): (&String, &Param)| {
        (name.clone(), divergence(name, &param.distribution, &trials[..good], &trials))
    };
    normalized(order::map(shared.map(importance)))
}

fn ranked<'a>(trial: &'a Arc<Trial>, directions: &[Direction], objective: usize) -> Option<(f64, &'a Arc<Trial>)> {
    let value = trial.values.as_ref()?.get(objective)?;
    (trial.state == State::Complete && trial.is_feasible()).then_some((directions.get(objective)?.loss(*value), trial))
}

fn normalized(raw: BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let sum: f64 = raw.values().sum();
    let even = 1.0 / raw.len().max(1) as f64;
    order::map(raw.into_iter().map(|(name, value)| (name, if sum > 0.0 { value / sum } else { even })))
}

/// The Pearson divergence of the good trials' density from that of all.
fn divergence(name: &str, distribution: &Distribution, good: &[&Trial], all: &[&Trial]) -> f64 {
    let (good, all) = (density(name, distribution, good), density(name, distribution, all));
    good.iter().zip(&all).map(|(good, all)| all * (good / all - 1.0).powi(2)).sum()
}

/// A density over places: choices are counted, numbers smoothed with Scott's bandwidth; both with one trial's worth of
/// evenness, so that no place is impossible.
fn density(name: &str, distribution: &Distribution, trials: &[&Trial]) -> Vec<f64> {
    let shares: Vec<f64> = trials
        .iter()
        .filter_map(|trial| trial.params.get(name))
        .map(|param| random::share_of(distribution, param.internal))
        .collect();
    let places = match distribution {
        Distribution::Categorical { choices } => choices.len(),
        _ => PLACES,
    };
    let smooth = !matches!(distribution, Distribution::Categorical { .. });
    let width = if smooth { bandwidth(&shares) } else { 0.0 };
    let mut counts = vec![1.0 / places as f64; places];
    for share in &shares {
        spread(&mut counts, *share, width);
    }
    let sum: f64 = counts.iter().sum();
    counts.into_iter().map(|count| count / sum).collect()
}

/// Adds one trial: a bell around its place, or all of it at the place.
fn spread(counts: &mut [f64], share: f64, width: f64) {
    let places = counts.len();
    if width == 0.0 {
        counts[((share * places as f64) as usize).min(places - 1)] += 1.0;
        return;
    }
    let bell = |place: usize| (-0.5 * (((place as f64 + 0.5) / places as f64 - share) / width).powi(2)).exp();
    let total: f64 = (0..places).map(bell).sum();
    (0..places).for_each(|place| counts[place] += bell(place) / total);
}

/// Scott's rule, no narrower than half a place.
fn bandwidth(shares: &[f64]) -> f64 {
    let count = shares.len() as f64;
    let mean = shares.iter().sum::<f64>() / count;
    let spread = (shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0)).sqrt();
    (1.059 * spread * count.powf(-0.2)).max(0.5 / PLACES as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::trial::Param;

    #[test]
    fn the_parameter_that_decides_is_found_and_one_without_effect_is_not() {
        let domains = [
            ("deciding", Distribution::log_float(1e-6, 1e-1).unwrap()),
            ("slight", Distribution::int(0, 20).unwrap()),
            ("idle", Distribution::categorical(vec![1i64.into(), 2i64.into(), 3i64.into()]).unwrap()),
        ];
        let domains = domains.map(|(name, distribution)| (name, Arc::new(distribution)));
        let mut rng = Rng::new(6);
        let trials: Vec<Arc<Trial>> = (0..300)
            .map(|number| {
                let mut trial = Trial::new(number, number as u64, State::Complete);
                let shares: Vec<f64> = domains.iter().map(|_| rng.uniform()).collect();
                for ((name, distribution), share) in domains.iter().zip(&shares) {
                    let param =
                        Param { internal: random::at(distribution, *share), distribution: distribution.clone() };
                    trial.params.insert(name.to_string(), param);
                }
                trial.values = Some(vec![-((shares[0] - 0.3).powi(2) + 0.02 * shares[1])]);
                Arc::new(trial)
            })
            .collect();
        let found = importances(&trials, &[Direction::Maximize], 0);
        assert!((found.values().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(found["deciding"] > 0.6 && found["deciding"] > found["slight"], "{found:?}");
        assert!(found["idle"] < 0.1, "{found:?}");
    }
}
