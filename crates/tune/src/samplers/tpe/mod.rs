//! The tree-structured Parzen estimator of Optuna 5.0: one density of the settings of good trials, one of all others,
//! and of a handful of points drawn from the first the one where their ratio is largest.

mod argsort;
mod parzen;
mod split;
mod truncnorm;

use std::sync::Arc;

pub use parzen::Parzen;
pub use split::Split;
use split::split;

use super::{History, Sampler, Suggestion, random};
use crate::groups;
use crate::rng::Rng;
use crate::space::{Distribution, Domain, Point, Space, Value};
use crate::trial::{State, Trial};

/// How the estimator is used. The defaults are Optuna's.
#[derive(Clone, Debug)]
pub struct Tpe {
    /// So many trials are drawn at random before the estimator is asked.
    pub startup_trials: usize,
    /// So many points are drawn from the density of good trials, of which the best is suggested.
    pub candidates: usize,
    /// Parameters are drawn together; none: for one objective yes, for several no.
    pub multivariate: Option<bool>,
    /// Joint drawing goes by groups of parameters that appear together, for conditional spaces.
    pub group: bool,
    /// Running trials count as not good, so that parallel workers spread out.
    pub constant_liar: bool,
}

impl Default for Tpe {
    fn default() -> Self {
        Self { startup_trials: 10, candidates: 24, multivariate: None, group: false, constant_liar: true }
    }
}

impl Tpe {
    /// The usual settings for a space: groups where it has conditions.
    pub(crate) fn for_space(space: &Space) -> Self {
        Self { group: space.is_conditional(), ..Self::default() }
    }

    fn is_multivariate(&self, objectives: usize) -> bool {
        self.multivariate.unwrap_or(self.group || objectives <= 1)
    }

    /// The parts of the space that are drawn jointly.
    pub fn joint_domains(&self, history: &History) -> Vec<Domain> {
        if !self.is_multivariate(history.directions.len()) {
            return Vec::new();
        }
        let mut domains =
            if self.group { groups::groups(history.trials) } else { vec![groups::intersection(history.trials)] };
        domains.iter_mut().for_each(|domain| domain.retain(|_, distribution| !distribution.is_single()));
        domains.retain(|domain| !domain.is_empty());
        domains
    }

    /// Good and other trials among those that count.
    pub fn split(&self, history: &History) -> Split {
        let counts = |state: State| match state {
            State::Complete | State::Pruned => true,
            State::Running => self.constant_liar,
            State::Failed | State::Waiting => false,
        };
        if history.trials.iter().all(|trial| counts(trial.state)) {
            return split(history.trials, history.directions);
        }
        let known: Vec<Arc<Trial>> = history.trials.iter().filter(|trial| counts(trial.state)).cloned().collect();
        split(&known, history.directions)
    }

    fn draw(&self, densities: &Densities, rng: &mut Rng) -> Vec<f64> {
        let points = densities.below.sample(rng, self.candidates.max(1));
        let ratios = densities.log_ratio(&points);
        let best = (0..points.len()).fold(0, |best, index| if ratios[index] > ratios[best] { index } else { best });
        points.into_iter().nth(best).unwrap_or_default()
    }
}

impl Sampler for Tpe {
    fn suggest(&mut self, history: &History, space: &Space, fixed: &Point, rng: &mut Rng) -> Suggestion {
        let finished = history.trials.iter().filter(|trial| matches!(trial.state, State::Complete | State::Pruned));
        if finished.count() < self.startup_trials {
            return random::Random.suggest(history, space, fixed, rng);
        }
        let split = self.split(history);
        let multivariate = self.is_multivariate(history.directions.len());
        let mut joint = Point::new();
        for domain in self.joint_domains(history) {
            let densities = Densities::new(&split, &domain, history.directions.len(), multivariate);
            joint.extend(domain.keys().cloned().zip(self.draw(&densities, rng)));
        }
        let point = space.walk(|parameter| {
            let known = fixed.get(&parameter.name).or_else(|| joint.get(&parameter.name));
            if let Some(internal) = known.filter(|internal| parameter.distribution.contains(**internal)) {
                return *internal;
            }
            let alone = Domain::from([(parameter.name.clone(), parameter.distribution.clone())]);
            let densities = Densities::new(&split, &alone, history.directions.len(), multivariate);
            self.draw(&densities, rng)[0]
        });
        Suggestion::from(point)
    }
}

/// The two densities over one part of the space.
pub struct Densities {
    pub below: Parzen,
    pub above: Parzen,
}

impl Densities {
    /// `announced` says whether running trials of Optuna workers announce their settings (joint drawing).
    pub fn new(split: &Split, domain: &Domain, objectives: usize, announced: bool) -> Self {
        let distributions: Vec<&Distribution> = domain.values().map(Arc::as_ref).collect();
        let good = observations(&split.below, domain, announced);
        let weights = (objectives > 1).then(|| vec![1.0; good.first().map_or(0, Vec::len)]);
        let other = observations(&split.above, domain, announced);
        Self { below: Parzen::new(&distributions, &good, weights), above: Parzen::new(&distributions, &other, None) }
    }

    /// How much likelier each point is among the good trials than among the others.
    pub fn log_ratio(&self, points: &[Vec<f64>]) -> Vec<f64> {
        let (below, above) = (self.below.log_pdf(points), self.above.log_pdf(points));
        below.into_iter().zip(above).map(|(below, above)| below - above).collect()
    }
}

/// The settings of the trials that have all parameters of the domain: a column per parameter.
fn observations(trials: &[Arc<Trial>], domain: &Domain, announced: bool) -> Vec<Vec<f64>> {
    let mut columns = vec![Vec::with_capacity(trials.len()); domain.len()];
    for trial in trials {
        if groups::has_just(trial, domain) {
            columns.iter_mut().zip(trial.params.values()).for_each(|(column, param)| column.push(param.internal));
        } else if let Some(row) = settings(trial, domain, announced) {
            columns.iter_mut().zip(row).for_each(|(column, internal)| column.push(internal));
        }
    }
    columns
}

fn settings(trial: &Trial, domain: &Domain, announced: bool) -> Option<Vec<f64>> {
    let announced = (announced && !trial.state.is_finished()).then(|| trial.announced()).flatten();
    let of = |name: &str, distribution: &Arc<Distribution>| match trial.params.get(name) {
        // Trials share their domains, so that mostly no translation between two of them is needed.
        Some(param) if Arc::ptr_eq(&param.distribution, distribution) => Some(param.internal),
        Some(param) => distribution.internal(&param.value()).ok(),
        None => distribution.internal(&Value::from_json(announced.as_ref().and_then(|all| all.get(name))?)).ok(),
    };
    domain.iter().map(|(name, distribution)| of(name, distribution)).collect()
}
