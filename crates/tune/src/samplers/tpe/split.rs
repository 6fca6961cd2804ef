//! Which past trials count as good ("below") and which not ("above"): a tenth of them, the best first; where complete
//! trials are too few, pruned ones by how far they came, then infeasible ones by how little they broke.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::hypervolume;
use crate::pareto;
use crate::trial::{Direction, State, Trial};

type Trials = Vec<Arc<Trial>>;

/// Good and other trials, each in the order of their numbers.
pub struct Split {
    pub below: Trials,
    pub above: Trials,
}

/// How many of `finished` trials count as good.
pub(super) fn good_count(finished: usize, objectives: usize) -> usize {
    let tenth = (0.1 * finished as f64).ceil() as usize;
    if objectives <= 1 { tenth.min(25) } else { tenth }
}

/// Splits complete, pruned and running trials; others must not be among them. Running ones count as not good: whoever
/// asks next had better look elsewhere.
pub fn split(trials: &[Arc<Trial>], directions: &[Direction]) -> Split {
    let finished = trials.iter().filter(|trial| trial.state != State::Running).count();
    let wanted = good_count(finished, directions.len());
    let mut kinds = Kinds::of(trials);

    let mut below = Trials::new();
    let mut above = Trials::new();
    for (rank, kind) in [&mut kinds.complete, &mut kinds.pruned, &mut kinds.infeasible].into_iter().enumerate() {
        let take = (wanted - below.len()).min(kind.len());
        match rank {
            0 => sort_complete(kind, directions, take),
            1 => kind.sort_by(|a, b| compare(pruned_score(a, directions), pruned_score(b, directions))),
            _ => kind.sort_by(|a, b| a.violation().total_cmp(&b.violation())),
        }
        above.extend(kind.split_off(take));
        below.append(kind);
    }
    above.append(&mut kinds.running);
    below.sort_by_key(|trial| trial.number);
    above.sort_by_key(|trial| trial.number);
    Split { below, above }
}

#[derive(Default)]
struct Kinds {
    complete: Trials,
    pruned: Trials,
    infeasible: Trials,
    running: Trials,
}

impl Kinds {
    fn of(trials: &[Arc<Trial>]) -> Self {
        let mut kinds = Self::default();
        for trial in trials {
            let kind = match trial.state {
                State::Running => &mut kinds.running,
                _ if trial.violation() > 0.0 => &mut kinds.infeasible,
                State::Complete => &mut kinds.complete,
                _ => &mut kinds.pruned,
            };
            kind.push(trial.clone());
        }
        kinds
    }
}

/// Brings the best `take` to the front; beyond that the order does not matter.
fn sort_complete(trials: &mut Trials, directions: &[Direction], take: usize) {
    if let [direction] = directions {
        let loss = |trial: &Trial| direction.loss(trial.value().unwrap_or(f64::INFINITY));
        trials.sort_by(|a, b| loss(a).partial_cmp(&loss(b)).unwrap_or(Ordering::Equal));
    } else if take > 0 && take < trials.len() {
        let losses = pareto::losses(trials, directions);
        let chosen = best_by_hypervolume(&losses, take);
        let (front, back): (Vec<_>, Vec<_>) =
            trials.drain(..).enumerate().partition(|(index, _)| chosen.contains(index));
        trials.extend(front.into_iter().chain(back).map(|(_, trial)| trial));
    }
}

/// Whole fronts while they fit; of the front that does not, those that cover the most volume together.
fn best_by_hypervolume(losses: &[Vec<f64>], take: usize) -> Vec<usize> {
    let ranks = pareto::ranks(losses, take);
    let mut chosen = Vec::new();
    for rank in 0.. {
        let front: Vec<usize> = (0..losses.len()).filter(|index| ranks[*index] == rank).collect();
        if chosen.len() + front.len() <= take && !front.is_empty() {
            chosen.extend(front);
            continue;
        }
        if chosen.len() < take {
            let points: Vec<Vec<f64>> = front.iter().map(|index| losses[*index].clone()).collect();
            let reference = reference_point(&points);
            let subset = hypervolume::best_subset(&points, take - chosen.len(), &reference);
            chosen.extend(subset.into_iter().map(|index| front[index]));
        }
        return chosen;
    }
    chosen
}

/// A little beyond the worst of each objective, so that the extremes count too.
fn reference_point(points: &[Vec<f64>]) -> Vec<f64> {
    let worst = |objective: usize| points.iter().map(|point| point[objective]).fold(f64::NEG_INFINITY, f64::max);
    let beyond = |worst: f64| (1.1 * worst).max(0.9 * worst);
    let nonzero = |value: f64| if value == 0.0 { 1e-12 } else { value };
    (0..points[0].len()).map(|objective| nonzero(beyond(worst(objective)))).collect()
}

/// Those that came farther first, then the better ones; those that reported nothing last.
fn pruned_score(trial: &Trial, directions: &[Direction]) -> (f64, f64) {
    let Some((step, value)) = trial.intermediate.last_key_value() else { return (1.0, 0.0) };
    let direction = directions.first().copied().unwrap_or(Direction::Minimize);
    let loss = if value.is_nan() { f64::INFINITY } else { direction.loss(*value) };
    (-(*step as f64), loss)
}

fn compare(a: (f64, f64), b: (f64, f64)) -> Ordering {
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}
