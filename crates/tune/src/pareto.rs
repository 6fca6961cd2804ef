//! Which trials no other is better than in every objective.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::order;
use crate::trial::{Direction, State, Trial};

/// The complete, feasible trials that no other beats in one objective without losing in another.
pub(crate) fn front(trials: &[Arc<Trial>], directions: &[Direction]) -> Vec<Arc<Trial>> {
    let candidates: Vec<Arc<Trial>> = trials.iter().filter(|trial| is_candidate(trial, directions)).cloned().collect();
    let ranks = ranks(&losses(&candidates, directions), candidates.len());
    candidates.into_iter().zip(ranks).filter(|(_, rank)| *rank == 0).map(|(trial, _)| trial).collect()
}

fn is_candidate(trial: &Trial, directions: &[Direction]) -> bool {
    let has_values = trial.values.as_ref().is_some_and(|values| values.len() == directions.len());
    trial.state == State::Complete && has_values && trial.is_feasible()
}

/// The objectives of complete trials, turned so that less is better.
pub(crate) fn losses(trials: &[Arc<Trial>], directions: &[Direction]) -> Vec<Vec<f64>> {
    let of = |trial: &Trial| {
        let values = trial.values.as_deref().unwrap_or(&[]);
        directions.iter().zip(values).map(|(direction, value)| direction.loss(*value)).collect()
    };
    trials.iter().map(|trial| of(trial)).collect()
}

/// How many fronts must be taken away before each point is on one. Ranks are exact for at least the best `needed`
/// different points; all behind them share one rank.
pub(crate) fn ranks(losses: &[Vec<f64>], needed: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..losses.len()).collect();
    order::sort_by(&mut order, |a, b| lexicographic(&losses[*a], &losses[*b]));
    let mut unique: Vec<usize> = order.clone();
    unique.dedup_by(|a, b| losses[*a] == losses[*b]);

    let needed = needed.min(unique.len());
    let mut rank_of = vec![0; losses.len()];
    let mut rank = 0;
    let mut left = unique.clone();
    while unique.len() - left.len() < needed {
        let on_front = front_of_sorted(&left, losses);
        left.retain(|index| {
            let behind = on_front.binary_search(index).is_err();
            rank_of[*index] = if behind { rank + 1 } else { rank };
            behind
        });
        rank += 1;
    }
    spread_to_equals(&order, losses, rank_of)
}

/// Points equal in all objectives share the rank of the first of them.
fn spread_to_equals(order: &[usize], losses: &[Vec<f64>], mut rank_of: Vec<usize>) -> Vec<usize> {
    for pair in order.windows(2) {
        if losses[pair[0]] == losses[pair[1]] {
            rank_of[pair[1]] = rank_of[pair[0]];
        }
    }
    rank_of
}

/// The front of different points in lexicographic order, as sorted indices. A point can only be dominated by one
/// before it, and then also by one of the front before it.
fn front_of_sorted(sorted: &[usize], losses: &[Vec<f64>]) -> Vec<usize> {
    let mut front: Vec<usize> = Vec::new();
    for index in sorted {
        let dominated = front.iter().rev().any(|better| dominates(&losses[*better], &losses[*index]));
        if !dominated {
            front.push(*index);
        }
    }
    front.sort_unstable();
    front
}

/// At least as good in every objective.
fn dominates(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b)
}

pub(crate) fn lexicographic(a: &[f64], b: &[f64]) -> Ordering {
    a.partial_cmp(b).unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the definition: rank 0 is dominated by none; rank r + 1 by some of rank r and by none behind it.
        #[test]
        fn ranks_follow_from_dominance(points in proptest::collection::vec(proptest::collection::vec(0..6i32, 3), 1..40)) {
            let losses: Vec<Vec<f64>> = points.iter().map(|p| p.iter().map(|x| f64::from(*x)).collect()).collect();
            let ranks = ranks(&losses, losses.len());
            let beats = |a: usize, b: usize| losses[a] != losses[b] && dominates(&losses[a], &losses[b]);
            for b in 0..losses.len() {
                let deepest = (0..losses.len()).filter(|a| beats(*a, b)).map(|a| ranks[a] + 1).max();
                prop_assert_eq!(ranks[b], deepest.unwrap_or(0));
            }
        }
    }
}
