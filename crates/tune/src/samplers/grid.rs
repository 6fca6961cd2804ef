//! Every point of a grid once, in order. What ranges are continuous is cut into a given number of places.

use super::{History, Sampler, Suggestion, random};
use crate::rng::Rng;
use crate::space::{Distribution, Point, Space};
use crate::trial::State;

/// Walks through a grid.
#[derive(Clone, Debug)]
pub struct Grid {
    /// So many places of each continuous range.
    pub divisions: u64,
}

impl Default for Grid {
    fn default() -> Self {
        Self { divisions: 5 }
    }
}

/// Which point of the grid a trial is, counted in the order of the grid.
const PLACE: &str = "plimsoll:grid";

impl Sampler for Grid {
    fn suggest(&mut self, history: &History, space: &Space, fixed: &Point, _: &mut Rng) -> Suggestion {
        let place_of = |trial: &crate::trial::Trial| trial.system_attrs.get(PLACE).and_then(crate::json::Json::as_i64);
        let tried = history.trials.iter().filter(|trial| trial.state != State::Failed);
        let taken: std::collections::HashSet<i64> = tried.filter_map(|trial| place_of(trial)).collect();
        let total = self.size(space);
        let free = (0..total).find(|place| !taken.contains(&(*place as i64)));
        let place = free.unwrap_or(0);
        let point = self.point(space, fixed, place);
        let system_attrs = vec![(PLACE.to_string(), (place as i64).into())];
        Suggestion { point, system_attrs, exhausted: free.is_none() }
    }
}

impl Grid {
    /// Points of the grid; conditions are not looked at, so that some may come out equal.
    fn size(&self, space: &Space) -> u64 {
        space
            .parameters()
            .iter()
            .fold(1, |size: u64, parameter| size.saturating_mul(self.places(&parameter.distribution)))
    }

    fn places(&self, distribution: &Distribution) -> u64 {
        distribution.cardinality().unwrap_or(self.divisions.max(1))
    }

    fn point(&self, space: &Space, fixed: &Point, place: u64) -> Point {
        let mut left = place;
        let mut digits = Point::new();
        for parameter in space.parameters().iter().rev() {
            let places = self.places(&parameter.distribution);
            digits.insert(parameter.name.clone(), self.value(&parameter.distribution, left % places));
            left /= places;
        }
        space.walk(|parameter| super::fixed_value(parameter, fixed).unwrap_or(digits[&parameter.name]))
    }

    fn value(&self, distribution: &Distribution, index: u64) -> f64 {
        match distribution.cardinality() {
            Some(_) => distribution.nth(index),
            // Both ends are on the grid.
            None => random::at(distribution, index as f64 / (self.divisions.max(2) - 1) as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{Direction, Trial};
    use std::sync::Arc;

    #[test]
    fn every_point_comes_once_and_then_nothing_is_left() {
        let mut space = Space::new();
        space.add("a", Distribution::int(0, 2).unwrap()).unwrap();
        space.add("b", Distribution::float(0.0, 1.0).unwrap()).unwrap();
        let (mut grid, mut trials) = (Grid { divisions: 3 }, Vec::new());
        let mut seen = std::collections::BTreeSet::new();
        loop {
            let history = History { directions: &[Direction::Minimize], trials: &trials };
            let suggestion = grid.suggest(&history, &space, &Point::new(), &mut Rng::new(0));
            if suggestion.exhausted {
                break;
            }
            seen.insert(format!("{:?}", suggestion.point));
            let mut trial = Trial::new(trials.len() as i64, trials.len() as u64, State::Complete);
            trial.system_attrs.extend(suggestion.system_attrs);
            trials.push(Arc::new(trial));
        }
        assert_eq!((seen.len(), trials.len()), (9, 9));
    }
}
