//! Every point of a countable space once, conditions included, in random order.

use std::collections::HashSet;

use super::{History, Sampler, Suggestion, random};
use crate::rng::Rng;
use crate::space::{Point, Space};
use crate::trial::{State, Trial};

/// Tries all there is. A trial that failed may be tried again.
#[derive(Clone, Copy, Debug, Default)]
pub struct BruteForce;

/// So often a random point is drawn before the free ones are counted out.
const ATTEMPTS: usize = 64;

impl Sampler for BruteForce {
    fn suggest(&mut self, history: &History, space: &Space, fixed: &Point, rng: &mut Rng) -> Suggestion {
        let tried = history.trials.iter().filter(|trial| trial.state != State::Failed);
        let tried: HashSet<String> = tried.map(|trial| key(&trial_point(trial))).collect();
        let is_free = |point: &Point| !tried.contains(&key(point));
        for _ in 0..ATTEMPTS {
            let point = random::Random.suggest(history, space, fixed, rng).point;
            if is_free(&point) {
                return Suggestion::from(point);
            }
        }
        // Almost all is tried: the rest is found by going through the space from a random place on.
        let total = space.cardinality().unwrap_or(0);
        let mut free = Vec::new();
        collect(space, 0, &mut Point::new(), &mut |point| {
            if is_free(point) {
                free.push(point.clone());
            }
        });
        match free.len() {
            0 => Suggestion { exhausted: total > 0, ..random::Random.suggest(history, space, fixed, rng) },
            count => Suggestion::from(free.swap_remove(rng.below(count))),
        }
    }
}

fn trial_point(trial: &Trial) -> Point {
    trial.point()
}

fn key(point: &Point) -> String {
    format!("{point:?}")
}

/// Goes through all points of a countable space.
fn collect(space: &Space, index: usize, point: &mut Point, visit: &mut impl FnMut(&Point)) {
    let Some(parameter) = space.parameters().get(index) else { return visit(point) };
    if !space.matters(parameter, point) {
        return collect(space, index + 1, point, visit);
    }
    for nth in 0..parameter.distribution.cardinality().unwrap_or(0) {
        point.insert(parameter.name.clone(), parameter.distribution.nth(nth));
        collect(space, index + 1, point, visit);
    }
    point.remove(&parameter.name);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::{Condition, Distribution};
    use crate::trial::{Direction, Param};
    use std::sync::Arc;

    #[test]
    fn a_conditional_space_is_gone_through_without_repetition() {
        let mut space = Space::new();
        space.add("kind", Distribution::int(0, 1).unwrap()).unwrap();
        let when = Condition { parameter: "kind".into(), any_of: vec![1i64.into()] };
        space.add_when("size", Distribution::int(0, 6).unwrap(), vec![when]).unwrap();
        let mut trials: Vec<Arc<Trial>> = Vec::new();
        let mut rng = Rng::new(2);
        for number in 0..8 {
            let history = History { directions: &[Direction::Minimize], trials: &trials };
            let suggestion = BruteForce.suggest(&history, &space, &Point::new(), &mut rng);
            assert!(!suggestion.exhausted);
            let mut trial = Trial::new(number, number as u64, State::Complete);
            for (name, internal) in suggestion.point {
                let distribution = space.get(&name).unwrap().distribution.clone();
                trial.params.insert(name, Param { internal, distribution });
            }
            assert!(trials.iter().all(|other| other.point() != trial.point()));
            trials.push(Arc::new(trial));
        }
        let history = History { directions: &[Direction::Minimize], trials: &trials };
        assert!(BruteForce.suggest(&history, &space, &Point::new(), &mut rng).exhausted);
    }
}
