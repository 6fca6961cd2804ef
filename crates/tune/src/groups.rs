//! Which parameters past trials had in common. Where parameters come and go (conditions, a space that was changed)
//! joint sampling works either on what all trials share, or on groups of parameters that always appear together.

use std::sync::Arc;

use crate::space::Domain;
use crate::trial::{State, Trial};

/// The parameters that every finished trial has, with the same domain.
pub(crate) fn intersection(trials: &[Arc<Trial>]) -> Domain {
    let mut finished = trials.iter().rev().filter(|trial| counts(trial));
    let Some(newest) = finished.next() else { return Domain::new() };
    let mut shared = newest.domain();
    for trial in finished {
        if !has_just(trial, &shared) {
            shared.retain(|name, distribution| {
                trial.params.get(name).is_some_and(|param| same(&param.distribution, distribution))
            });
        }
    }
    shared
}

/// Whether a trial has these parameters and no others. Both are in order, so that nothing is looked up.
pub(crate) fn has_just(trial: &Trial, domain: &Domain) -> bool {
    let pairs = || trial.params.iter().zip(domain);
    trial.params.len() == domain.len()
        && pairs().all(|((_, param), (_, distribution))| Arc::ptr_eq(&param.distribution, distribution))
        && pairs().all(|((own, _), (name, _))| own == name)
}

/// The coarsest partition of all parameters such that each trial has all of a group or none of it.
pub(crate) fn groups(trials: &[Arc<Trial>]) -> Vec<Domain> {
    let mut groups: Vec<Domain> = Vec::new();
    for trial in trials.iter().filter(|trial| counts(trial)) {
        if !is_union_of(&groups, trial) {
            groups = split_by(groups, trial);
        }
    }
    groups
}

fn counts(trial: &Trial) -> bool {
    matches!(trial.state, State::Complete | State::Pruned)
}

/// Domains are shared between trials, so that mostly the pointers settle it.
fn same(a: &Arc<crate::space::Distribution>, b: &Arc<super::Distribution>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

/// Whether splitting by this trial would change nothing.
fn is_union_of(groups: &[Domain], trial: &Trial) -> bool {
    let mut covered = 0;
    for group in groups {
        let present = group.keys().filter(|name| trial.params.contains_key(*name)).count();
        if present != 0 && present != group.len() {
            return false;
        }
        covered += present;
    }
    covered == trial.params.len()
}

fn split_by(groups: Vec<Domain>, trial: &Trial) -> Vec<Domain> {
    let mut rest = trial.domain();
    let mut refined = Vec::new();
    for group in groups {
        let (inside, outside): (Domain, Domain) =
            group.into_iter().partition(|(name, _)| trial.params.contains_key(name));
        rest.retain(|name, _| !inside.contains_key(name));
        refined.extend([inside, outside]);
    }
    refined.push(rest);
    refined.retain(|group| !group.is_empty());
    refined
}
