//! From a recipe's `[search]` to a space, a sampler and a pruner, and from a trial's values back to settings.

use std::collections::BTreeMap;

use plimsoll::search::{Objective, Parameter, PrunerName, Range, SamplerName, Scalar, Search, Values};

use crate::error::Result;
use crate::order;
use crate::pruners::{Asha, Hyperband, Median, NoPruner, Patience, Pruner};
use crate::samplers::{BruteForce, CmaEs, Grid, Nsga2, Random, Sampler, Sobol, Tpe};
use crate::space::{Condition, Distribution, Space, Value};
use crate::trial::Direction;

/// The space that a recipe names; what is fixed has one value.
pub(super) fn space_of(search: &Search) -> Result<Space> {
    let mut space = Space::new();
    for parameter in &search.parameters {
        let Some(when) = possible(&space, parameter) else { continue };
        let distribution = match search.fixed.get(&parameter.name) {
            Some(value) => held_at(&parameter.range, value)?,
            None => distribution(&parameter.range)?,
        };
        space.add_when(&parameter.name, distribution, when)?;
    }
    Ok(space)
}

/// Conditions without the values that are left out of this search, by what is fixed or by the environment; nothing where
/// that leaves one of them none.
fn possible(space: &Space, parameter: &Parameter) -> Option<Vec<Condition>> {
    let condition = |(name, values): &(String, Vec<Scalar>)| {
        let other = &space.get(name)?.distribution;
        let taken = |value: &Value| other.internal(value).is_ok_and(|internal| other.contains(internal));
        let any_of: Vec<Value> = values.iter().map(value_of).filter(taken).collect();
        (!any_of.is_empty()).then(|| Condition { parameter: name.clone(), any_of })
    };
    parameter.when.iter().map(condition).collect()
}

fn distribution(range: &Range) -> Result<Distribution> {
    match range {
        Range::Choices(choices) => Distribution::categorical(choices.iter().map(value_of).collect()),
        Range::Integers { low, high, log: true, .. } => Distribution::log_int(*low, *high),
        Range::Integers { low, high, step, .. } => Distribution::int_steps(*low, *high, *step),
        Range::Numbers { low, high, log: true, .. } => Distribution::log_float(*low, *high),
        Range::Numbers { low, high, step: Some(step), .. } => Distribution::float_steps(*low, *high, *step),
        Range::Numbers { low, high, .. } => Distribution::float(*low, *high),
    }
}

fn held_at(range: &Range, value: &Scalar) -> Result<Distribution> {
    match (range, value) {
        (Range::Integers { .. }, Scalar::Integer(n)) => Distribution::int(*n, *n),
        (Range::Numbers { .. }, value) => {
            let at = value.as_f64().unwrap_or_default();
            Distribution::float(at, at)
        }
        _ => Distribution::categorical(vec![value_of(value)]),
    }
}

fn value_of(scalar: &Scalar) -> Value {
    match scalar {
        Scalar::Flag(flag) => Value::Bool(*flag),
        Scalar::Integer(integer) => Value::Int(*integer),
        Scalar::Number(number) => Value::Float(*number),
        Scalar::Text(text) => Value::Text(text.clone()),
    }
}

/// The values of a trial, as the recipe's search knows them.
pub(super) fn values_of(params: &BTreeMap<String, Value>) -> Values {
    let scalar = |value: &Value| match value {
        Value::Bool(flag) => Scalar::Flag(*flag),
        Value::Int(integer) => Scalar::Integer(*integer),
        Value::Float(number) => Scalar::Number(*number),
        Value::Text(text) => Scalar::Text(text.clone()),
        Value::Null => Scalar::Text(String::new()),
    };
    order::map(params.iter().map(|(name, value)| (name.clone(), scalar(value))))
}

/// Values that are to be tried, as a study takes them.
pub(super) fn enqueued(values: &Values) -> BTreeMap<String, Value> {
    order::map(values.iter().map(|(name, scalar)| (name.clone(), value_of(scalar))))
}

/// Which way each objective is better.
pub(super) fn directions(objectives: &[Objective]) -> Vec<Direction> {
    let of = |objective: &Objective| {
        if objective.is_maximized() { Direction::Maximize } else { Direction::Minimize }
    };
    objectives.iter().map(of).collect()
}

/// What draws settings: as the recipe says, or what suits the number of objectives.
pub(super) fn sampler_of(search: &Search, space: &Space, name: Option<SamplerName>) -> Box<dyn Sampler> {
    let usual = if search.objectives.len() > 1 { SamplerName::Nsga2 } else { SamplerName::Tpe };
    match name.or(search.sampler).unwrap_or(usual) {
        SamplerName::Tpe => Box::new(Tpe { startup_trials: search.startup, ..Tpe::for_space(space) }),
        SamplerName::Random => Box::new(Random),
        SamplerName::Sobol => Box::new(Sobol::new(search.seed)),
        SamplerName::Nsga2 => Box::new(Nsga2::default()),
        SamplerName::CmaEs => Box::new(CmaEs::default()),
        SamplerName::Grid => Box::new(Grid::default()),
        SamplerName::BruteForce => Box::new(BruteForce),
    }
}

/// A pruner and the numbers it goes by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PrunerSettings {
    pub name: PrunerName,
    /// Evaluations before the first judgement.
    pub first: usize,
    pub factor: usize,
    pub patience: usize,
}

impl PrunerSettings {
    /// As the recipe says, or the pruner that is named instead.
    pub(super) fn of(search: &Search, name: Option<PrunerName>) -> PrunerSettings {
        let name = name.or(search.pruner).unwrap_or_else(|| usual_pruner(&search.objectives));
        PrunerSettings { name, first: search.rung, factor: search.factor, patience: search.patience }
    }
}

/// What lays trials aside. `evaluations` is how many a whole trial has.
pub(super) fn pruner_of(settings: PrunerSettings, evaluations: usize) -> Box<dyn Pruner> {
    let (first, factor) = (settings.first as i64, settings.factor as i64);
    match settings.name {
        PrunerName::Asha => Box::new(Asha { min_resource: first, reduction_factor: factor, skip: 0 }),
        PrunerName::Hyperband => Box::new(Hyperband {
            min_resource: first,
            max_resource: (evaluations as i64).max(first),
            reduction_factor: factor,
        }),
        PrunerName::Median => Box::new(Median { warmup_steps: first - 1, ..Median::default() }),
        PrunerName::Patience => Box::new(Patience { patience: settings.patience, min_delta: 0.0, inner: None }),
        PrunerName::None => Box::new(NoPruner),
    }
}

/// ASHA for one score; what has several objectives, or one that no evaluation says, is run to its end.
fn usual_pruner(objectives: &[Objective]) -> PrunerName {
    let judged = objectives.len() == 1 && objectives[0].is_score();
    if judged { PrunerName::Asha } else { PrunerName::None }
}
