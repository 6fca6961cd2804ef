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
pub(crate) fn split(trials: &[Arc<Trial>], directions: &[Direction]) -> Split {
    let finished = trials.iter().filter(|trial| trial.state != State::Running).count();
    let wanted = good_count(finished, directions.len());
    let kinds = Kinds::of(trials);
    let mut is_good = vec![false; trials.len()];
    let mut left = wanted;
    for (rank, kind) in [kinds.complete, kinds.pruned, kinds.infeasible].into_iter().enumerate() {
        let take = left.min(kind.len());
        left -= take;
        best_of(rank, kind, take, trials, directions).into_iter().for_each(|index| is_good[index] = true);
    }
    let pick = |good: bool| {
        let picked = trials.iter().zip(&is_good).filter(|(_, is_good)| **is_good == good);
        let mut picked: Trials = picked.map(|(trial, _)| trial.clone()).collect();
        picked.sort_by_key(|trial| trial.number);
        picked
    };
    Split { below: pick(true), above: pick(false) }
}

/// Trials by their place in the list.
#[derive(Default)]
struct Kinds {
    complete: Vec<usize>,
    pruned: Vec<usize>,
    infeasible: Vec<usize>,
}

impl Kinds {
    fn of(trials: &[Arc<Trial>]) -> Self {
        let mut kinds = Self::default();
        for (index, trial) in trials.iter().enumerate().filter(|(_, trial)| trial.state != State::Running) {
            let kind = match trial.state {
                _ if trial.violation() > 0.0 => &mut kinds.infeasible,
                State::Complete => &mut kinds.complete,
                _ => &mut kinds.pruned,
            };
            kind.push(index);
        }
        kinds
    }
}

/// The best `take` of a kind; of equal ones those that come first.
fn best_of(rank: usize, kind: Vec<usize>, take: usize, trials: &[Arc<Trial>], directions: &[Direction]) -> Vec<usize> {
    if take == 0 || take == kind.len() {
        return kind.into_iter().take(take).collect();
    }
    let score = |trial: &Trial| match (rank, directions) {
        (0, [direction]) => (direction.loss(trial.value().unwrap_or(f64::INFINITY)), 0.0),
        (1, _) => pruned_score(trial, directions),
        _ => (trial.violation(), 0.0),
    };
    if rank == 0 && directions.len() != 1 {
        let complete: Trials = kind.iter().map(|index| trials[*index].clone()).collect();
        let chosen = best_by_hypervolume(&pareto::losses(&complete, directions), take);
        return chosen.into_iter().map(|place| kind[place]).collect();
    }
    let mut scored: Vec<((f64, f64), usize)> = kind.into_iter().map(|index| (score(&trials[index]), index)).collect();
    scored.select_nth_unstable_by(take, |a, b| compare(a.0, b.0).then(a.1.cmp(&b.1)));
    scored.into_iter().take(take).map(|(_, index)| index).collect()
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
