//! One trial: the settings that were tried and what came of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::json::Json;
use crate::order;
use crate::space::{Distribution, Domain, Point, Value};
use crate::time::Timestamp;

/// What a storage knows a trial by; unlike the number it is unique over all studies of the storage.
pub type TrialId = i64;

/// Free-form facts about a trial or study.
pub type Attributes = BTreeMap<String, Json>;

/// Where a trial stands. The discriminants are those of Optuna's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Running = 0,
    Complete = 1,
    /// Stopped before its end because others did better, or because it cannot fit.
    Pruned = 2,
    Failed = 3,
    /// Enqueued: to be run by whoever asks next.
    Waiting = 4,
}

impl State {
    pub const ALL: [State; 5] = [Self::Running, Self::Complete, Self::Pruned, Self::Failed, Self::Waiting];

    pub fn is_finished(self) -> bool {
        matches!(self, Self::Complete | Self::Pruned | Self::Failed)
    }

    /// The name databases hold.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Complete => "COMPLETE",
            Self::Pruned => "PRUNED",
            Self::Failed => "FAIL",
            Self::Waiting => "WAITING",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    pub fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as i64 == code)
    }
}

/// Which way an objective is better. The discriminants are those of Optuna's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Minimize = 1,
    Maximize = 2,
}

impl Direction {
    /// The value turned so that less is better.
    pub fn loss(self, value: f64) -> f64 {
        match self {
            Self::Minimize => value,
            Self::Maximize => -value,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Minimize => "MINIMIZE",
            Self::Maximize => "MAXIMIZE",
        }
    }

    pub fn from_code(code: i64) -> Option<Self> {
        [Self::Minimize, Self::Maximize].into_iter().find(|direction| *direction as i64 == code)
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Minimize, Self::Maximize].into_iter().find(|direction| direction.name() == name)
    }
}

/// A parameter's value in a trial, with the domain it was taken from.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    pub internal: f64,
    pub distribution: Arc<Distribution>,
}

impl Param {
    pub fn value(&self) -> Value {
        self.distribution.external(self.internal)
    }
}

/// All that is known about one trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    pub id: TrialId,
    /// Counts from 0 within the study.
    pub number: u64,
    pub state: State,
    /// One per objective, once complete; a pruned trial may hold what it last reached.
    pub values: Option<Vec<f64>>,
    pub params: BTreeMap<String, Param>,
    /// Reported values by step.
    pub intermediate: BTreeMap<i64, f64>,
    pub user_attrs: Attributes,
    pub system_attrs: Attributes,
    pub started: Option<Timestamp>,
    pub completed: Option<Timestamp>,
}

const CONSTRAINTS: &str = "constraints";
const RELATIVE_PARAMS: &str = "tpe:relative_params";

impl Trial {
    /// A trial that has just begun and knows nothing yet.
    pub fn new(id: TrialId, number: u64, state: State) -> Self {
        Self {
            id,
            number,
            state,
            values: None,
            params: BTreeMap::new(),
            intermediate: BTreeMap::new(),
            user_attrs: Attributes::new(),
            system_attrs: Attributes::new(),
            started: None,
            completed: None,
        }
    }

    pub fn point(&self) -> Point {
        order::map(self.params.iter().map(|(name, param)| (name.clone(), param.internal)))
    }

    pub(crate) fn domain(&self) -> Domain {
        order::map(self.params.iter().map(|(name, param)| (name.clone(), param.distribution.clone())))
    }

    /// The value of a single objective.
    pub fn value(&self) -> Option<f64> {
        self.values.as_ref()?.first().copied()
    }

    pub fn last_step(&self) -> Option<i64> {
        self.intermediate.last_key_value().map(|(step, _)| *step)
    }

    pub(crate) fn seconds(&self) -> Option<f64> {
        Some(self.completed?.seconds_since(self.started?))
    }

    /// Constraints by name: kept when at most 0. Both ways Optuna has written them are read.
    pub(crate) fn constraints(&self) -> BTreeMap<String, f64> {
        let old = self.system_attrs.get(CONSTRAINTS).and_then(Json::as_array).unwrap_or(&[]);
        let old = old.iter().enumerate().map(|(index, value)| (index.to_string(), value));
        let named = self.system_attrs.iter().filter_map(|(key, value)| {
            let name = key.strip_prefix(CONSTRAINTS)?.strip_prefix(':')?;
            Some((name.to_string(), value))
        });
        order::map(old.chain(named).filter_map(|(name, value)| Some((name, value.as_f64()?))))
    }

    /// By how much all constraints together are broken.
    pub(crate) fn violation(&self) -> f64 {
        let has_any = self.system_attrs.keys().any(|key| key.starts_with(CONSTRAINTS));
        if !has_any {
            return 0.0;
        }
        self.constraints().into_values().filter(|value| *value > 0.0).sum()
    }

    pub fn is_feasible(&self) -> bool {
        self.violation() <= 0.0
    }

    /// The attribute under which a constraint is stored.
    pub(crate) fn constraint_key(name: &str) -> String {
        format!("{CONSTRAINTS}:{name}")
    }

    /// What a running trial of an Optuna worker is going to try, as far as it has said so: the settings sampled
    /// jointly are announced before they are used one by one.
    pub(crate) fn announced(&self) -> Option<Json> {
        let parts = (0..).map_while(|part| self.system_attrs.get(&format!("{RELATIVE_PARAMS}:{part}")));
        let text: String = parts.filter_map(Json::as_str).collect();
        Json::parse(&text).ok()
    }

    /// Checks values before they are told: as many as objectives, none of them NaN.
    pub(crate) fn check_values(values: &[f64], directions: &[Direction]) -> Result<()> {
        if values.len() != directions.len() {
            let cause = format!("{} values for {} objectives", values.len(), directions.len());
            return Err(Error::Input(cause));
        }
        if values.iter().any(|value| value.is_nan()) {
            return Err(Error::Input("NaN cannot be the value of a complete trial".into()));
        }
        Ok(())
    }
}
