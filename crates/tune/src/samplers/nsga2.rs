//! NSGA-II (Deb et al., 2002): generations for several objectives. Parents are the best of the last generation and its
//! parents, front by front, and within a front those with the emptiest surroundings; children mix two of them.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{History, Sampler, Suggestion, random};
use crate::json::Json;
use crate::order;
use crate::pareto;
use crate::rng::Rng;
use crate::space::{Point, Space};
use crate::trial::{Direction, State, Trial};

/// Settings with Optuna's defaults.
#[derive(Clone, Debug)]
pub struct Nsga2 {
    pub population: usize,
    /// How often a child has two parents instead of one.
    pub crossover: f64,
    /// How often a parameter comes from the second parent.
    pub swapping: f64,
    /// How often a parameter is drawn anew; none: once per child on average.
    pub mutation: Option<f64>,
    parents: BTreeMap<i64, Vec<Arc<Trial>>>,
}

impl Default for Nsga2 {
    fn default() -> Self {
        Self { population: 50, crossover: 0.9, swapping: 0.5, mutation: None, parents: BTreeMap::new() }
    }
}

/// The generation of a trial; those without one (enqueued ones) count for none.
const GENERATION: &str = "plimsoll:nsga2:generation";

impl Sampler for Nsga2 {
    fn suggest(&mut self, history: &History, space: &Space, fixed: &Point, rng: &mut Rng) -> Suggestion {
        let generation = self.generation(history);
        let mut suggestion = match generation {
            0 => random::Random.suggest(history, space, fixed, rng),
            _ => {
                let parents = self.parents_of(generation, history);
                Suggestion::from(self.child(&parents, history.directions, space, fixed, rng))
            }
        };
        suggestion.system_attrs.push((GENERATION.into(), Json::Int(generation)));
        suggestion
    }
}

impl Nsga2 {
    /// The first generation that does not yet have its number of complete trials.
    fn generation(&self, history: &History) -> i64 {
        (0..).find(|generation| members(*generation, history).len() < self.population).unwrap_or(0)
    }

    /// Remembered: what a full generation passes on does not change any more.
    fn parents_of(&mut self, generation: i64, history: &History) -> Vec<Arc<Trial>> {
        if generation == 0 {
            return Vec::new();
        }
        if let Some(known) = self.parents.get(&generation) {
            return known.clone();
        }
        let mut candidates = self.parents_of(generation - 1, history);
        candidates.extend(members(generation - 1, history));
        let chosen = elite(candidates, history.directions, self.population);
        self.parents.insert(generation, chosen.clone());
        chosen
    }

    fn child(
        &self,
        parents: &[Arc<Trial>],
        directions: &[Direction],
        space: &Space,
        fixed: &Point,
        rng: &mut Rng,
    ) -> Point {
        let first = tournament(parents, directions, rng);
        let second = if rng.uniform() < self.crossover { tournament(parents, directions, rng) } else { first };
        let mutation = self.mutation.unwrap_or(1.0 / space.parameters().len().max(1) as f64);
        space.walk(|parameter| {
            let from = if rng.uniform() < self.swapping { second } else { first };
            let inherited = from.params.get(&parameter.name).map(|param| param.internal);
            let inherited = inherited.filter(|internal| parameter.distribution.contains(*internal));
            let mutates = rng.uniform() < mutation;
            let anew = rng.uniform();
            super::fixed_value(parameter, fixed)
                .or(inherited.filter(|_| !mutates))
                .unwrap_or_else(|| random::at(&parameter.distribution, anew))
        })
    }
}

fn members(generation: i64, history: &History) -> Vec<Arc<Trial>> {
    let is_member = |trial: &Trial| {
        let own = trial.system_attrs.get(GENERATION).and_then(Json::as_i64) == Some(generation);
        own && trial.state == State::Complete
    };
    history.trials.iter().filter(|trial| is_member(trial)).cloned().collect()
}

/// The better of two at random: a feasible one before one that is not, then by dominance, then by lot.
fn tournament<'a>(parents: &'a [Arc<Trial>], directions: &[Direction], rng: &mut Rng) -> &'a Trial {
    let (a, b) = (&parents[rng.below(parents.len())], &parents[rng.below(parents.len())]);
    let by_lot = if rng.uniform() < 0.5 { a } else { b };
    match a.violation().total_cmp(&b.violation()) {
        Ordering::Less => a,
        Ordering::Greater => b,
        Ordering::Equal => match (beats(a, b, directions), beats(b, a, directions)) {
            (true, false) => a,
            (false, true) => b,
            _ => by_lot,
        },
    }
}

fn beats(a: &Trial, b: &Trial, directions: &[Direction]) -> bool {
    let losses = |trial: &Trial| -> Vec<f64> {
        let values = trial.values.iter().flatten();
        directions.iter().zip(values).map(|(direction, value)| direction.loss(*value)).collect()
    };
    let (a, b) = (losses(a), losses(b));
    a != b && a.iter().zip(&b).all(|(a, b)| a <= b)
}

/// The best `count`: feasible ones front by front, then the others by how little they break.
fn elite(mut candidates: Vec<Arc<Trial>>, directions: &[Direction], count: usize) -> Vec<Arc<Trial>> {
    candidates.dedup_by_key(|trial| trial.id);
    let (feasible, mut broken): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|trial| trial.is_feasible());
    let losses = pareto::losses(&feasible, directions);
    let ranks = pareto::ranks(&losses, feasible.len());
    let mut chosen = Vec::new();
    for rank in 0..=ranks.iter().copied().max().unwrap_or(0) {
        let front: Vec<usize> = (0..feasible.len()).filter(|index| ranks[*index] == rank).collect();
        let ordered = if chosen.len() + front.len() > count { by_crowding(front, &losses) } else { front };
        chosen.extend(ordered.into_iter().take(count - chosen.len()).map(|index| feasible[index].clone()));
    }
    order::sort_by(&mut broken, |a, b| a.violation().total_cmp(&b.violation()));
    chosen.extend(broken.into_iter().take(count - chosen.len()));
    chosen
}

/// A front with its loneliest points first.
fn by_crowding(mut front: Vec<usize>, losses: &[Vec<f64>]) -> Vec<usize> {
    let objectives = front.first().map_or(0, |index| losses[*index].len());
    let mut room: BTreeMap<usize, f64> = order::map(front.iter().map(|index| (*index, 0.0)));
    #[expect(clippy::needless_range_loop, reason = "it runs over columns, and each row is indexed by the front")]
    for objective in 0..objectives {
        order::sort_by(&mut front, |a, b| losses[*a][objective].total_cmp(&losses[*b][objective]));
        let values: Vec<f64> = front.iter().map(|index| losses[*index][objective]).collect();
        for (index, gap) in front.iter().zip(gaps(&values)) {
            *room.entry(*index).or_default() += gap;
        }
    }
    order::sort_by(&mut front, |a, b| room[b].total_cmp(&room[a]));
    front
}

/// The room around each of sorted values, as a share of all of it; the ends have all there is.
fn gaps(values: &[f64]) -> Vec<f64> {
    let mut gaps = vec![f64::INFINITY; values.len()];
    let width = values.last().zip(values.first()).map_or(0.0, |(last, first)| last - first);
    for (gap, around) in gaps.iter_mut().skip(1).zip(values.windows(3)) {
        let share = (around[2] - around[0]) / width;
        *gap = if share.is_nan() { 0.0 } else { share };
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervolume::hypervolume;
    use crate::space::Distribution;
    use crate::trial::Param;

    fn run(sampler: &mut dyn Sampler, trials_wanted: u64, seed: u64) -> f64 {
        let mut space = Space::new();
        for name in ["a", "b", "c", "d"] {
            space.add(name, Distribution::float(0.0, 1.0).unwrap()).unwrap();
        }
        let directions = [Direction::Minimize, Direction::Minimize];
        let (mut trials, mut rng): (Vec<Arc<Trial>>, Rng) = (Vec::new(), Rng::new(seed));
        for number in 0..trials_wanted {
            let suggestion =
                sampler.suggest(&History { directions: &directions, trials: &trials }, &space, &Point::new(), &mut rng);
            let x: Vec<f64> = suggestion.point.values().copied().collect();
            let g = 1.0 + 3.0 * x[1..].iter().sum::<f64>();
            let mut trial = Trial::new(number as i64, number, State::Complete);
            trial.values = Some(vec![x[0], g * (1.0 - (x[0] / g).sqrt())]);
            trial.system_attrs.extend(suggestion.system_attrs);
            for (name, internal) in suggestion.point {
                let distribution = space.get(&name).unwrap().distribution.clone();
                trial.params.insert(name, Param { internal, distribution });
            }
            trials.push(Arc::new(trial));
        }
        let front: Vec<Vec<f64>> =
            pareto::front(&trials, &directions).iter().map(|trial| trial.values.clone().unwrap()).collect();
        hypervolume(&front.into_iter().filter(|p| p[1] <= 5.0).collect::<Vec<_>>(), &[1.0, 5.0])
    }

    #[test]
    fn generations_cover_more_of_zdt1_than_chance_does() {
        for seed in 0..3 {
            let evolved = run(&mut Nsga2::default(), 600, seed);
            let random = run(&mut random::Random, 600, seed);
            assert!(evolved > random + 0.1, "seed {seed}: {evolved} against {random}");
        }
    }
}
