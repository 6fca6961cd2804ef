//! What a study found, as one value: `study --json`, the server and the page all show this.

mod csv;
mod page;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll::Named;
use plimsoll::search::Objective;
use serde::Serialize;
use serde_json::Value as Plain;

use crate::error::Result;
use crate::importance::importances;
use crate::json::Json;
use crate::order;
use crate::pareto;
use crate::space::Value;
use crate::storage::{self, StudyRecord};
use crate::study::Study;
use crate::trial::{Attributes, Direction, State, Trial};

/// Raised whenever a field changes its meaning.
pub(crate) const SCHEMA: u32 = 1;

/// What reports call a trial with values, and one without that is to blame itself.
const COMPLETE: &str = "complete";
const FAILED: &str = "fail";
/// What they call one that was laid aside, for good or until it goes on.
const PRUNED: &str = "pruned";
const PAUSED: &str = "paused";

/// A study as it stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StudyReport {
    pub schema: u32,
    pub study: String,
    /// Without secrets.
    pub storage: String,
    /// `minimize` or `maximize`, one per objective.
    pub directions: Vec<&'static str>,
    /// What the objectives are called.
    pub objectives: Vec<String>,
    pub trials: Vec<TrialReport>,
    /// The best trial, or all that none is better than where there are several objectives.
    pub best: Vec<u64>,
    pub counts: BTreeMap<&'static str, usize>,
    /// From the first start to the last end.
    pub seconds: f64,
    /// How much each parameter decides for the first objective, adding up to 1; empty while there are too few trials to
    /// tell.
    pub importances: BTreeMap<String, f64>,
    /// The same for each of several objectives.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub importances_by_objective: Vec<BTreeMap<String, f64>>,
    pub user_attrs: BTreeMap<String, Plain>,
}

/// One trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrialReport {
    pub number: u64,
    pub state: &'static str,
    /// Infinities and what is no number are null.
    pub values: Option<Vec<f64>>,
    pub params: BTreeMap<String, Plain>,
    pub intermediate: BTreeMap<i64, f64>,
    pub user_attrs: BTreeMap<String, Plain>,
    pub constraints: BTreeMap<String, f64>,
    pub started: Option<String>,
    pub completed: Option<String>,
    pub seconds: Option<f64>,
    /// Of the machine's clock, since 1970; for pictures over time.
    #[serde(skip)]
    pub span: Option<(f64, f64)>,
}

/// A study in short.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StudyLine {
    pub study: String,
    pub storage: String,
    pub trials: usize,
    pub counts: BTreeMap<&'static str, usize>,
}

/// All studies of a storage, by name.
///
/// # Errors
/// Where the storage cannot be read.
pub fn studies(address: &str) -> Result<Vec<StudyLine>> {
    let mut storage = storage::look(address)?;
    let records = storage.studies()?;
    let line = |record: StudyRecord| -> Result<StudyLine> {
        let trials = storage.trials(record.id)?;
        Ok(StudyLine { study: record.name, storage: storage.describe(), trials: trials.len(), counts: counts(&trials) })
    };
    records.into_iter().map(line).collect()
}

/// What a study found so far.
///
/// # Errors
/// Where there is no such storage or study.
pub fn study(address: &str, name: &str) -> Result<StudyReport> {
    let mut storage = storage::look(address)?;
    let record = storage.study(name)?;
    let trials = storage.trials(record.id)?;
    Ok(StudyReport::of(&storage.describe(), &record, &trials))
}

/// Every study of a storage, whole.
///
/// # Errors
/// Where the storage cannot be read.
pub fn all(address: &str) -> Result<Vec<StudyReport>> {
    let mut storage = storage::look(address)?;
    let records = storage.studies()?;
    let report = |record: StudyRecord| {
        let trials = storage.trials(record.id)?;
        Ok(StudyReport::of(&storage.describe(), &record, &trials))
    };
    records.into_iter().map(report).collect()
}

impl StudyReport {
    fn of(storage: &str, record: &StudyRecord, trials: &[Arc<Trial>]) -> StudyReport {
        let directions = &record.directions;
        let mut best: Vec<u64> = pareto::front(trials, directions).iter().map(|trial| trial.number).collect();
        if directions.len() == 1 {
            best.truncate(1);
        }
        StudyReport {
            schema: SCHEMA,
            study: record.name.clone(),
            storage: storage.into(),
            directions: directions.iter().map(|direction| word(*direction)).collect(),
            objectives: objective_names(record),
            trials: trials.iter().map(|trial| TrialReport::of(trial)).collect(),
            best,
            counts: counts(trials),
            seconds: seconds(trials),
            importances: importances(trials, directions, 0),
            importances_by_objective: by_objective(trials, directions),
            user_attrs: plain_attributes(&record.user_attrs),
        }
    }

    /// What a trial's value of one objective is, for people.
    pub(crate) fn shown_value(&self, trial: &TrialReport, index: usize) -> Option<String> {
        let value = *trial.values.as_ref()?.get(index)?;
        let objective = self.objectives.get(index).and_then(|name| Objective::from_name(name));
        Some(objective.map_or_else(|| format!("{value:.5}"), |objective| objective.shown(value)))
    }

    /// The trial with this number.
    pub fn trial(&self, number: u64) -> Option<&TrialReport> {
        self.trials.iter().find(|trial| trial.number == number)
    }
}

impl TrialReport {
    fn of(trial: &Trial) -> TrialReport {
        let params = trial.params.iter().map(|(name, param)| (name.clone(), plain_value(&param.value())));
        TrialReport {
            number: trial.number,
            state: state_of(trial),
            values: trial.values.clone(),
            params: order::map(params),
            intermediate: trial.intermediate.clone(),
            user_attrs: plain_attributes(&trial.user_attrs),
            constraints: trial.constraints(),
            started: trial.started.map(|at| at.to_iso()),
            completed: trial.completed.map(|at| at.to_iso()),
            seconds: trial.seconds(),
            span: trial.started.zip(trial.completed).map(|(from, to)| (from.0 as f64 * 1e-6, to.0 as f64 * 1e-6)),
        }
    }

    /// Whether there was no memory for it, however it was planned.
    pub fn fits_nowhere(&self) -> bool {
        self.user_attrs.contains_key(crate::attributes::OOM)
    }

    pub fn is_complete(&self) -> bool {
        self.state == COMPLETE
    }

    pub fn has_failed(&self) -> bool {
        self.state == FAILED
    }

    /// Why it could not be planned.
    pub fn refusal(&self) -> Option<&str> {
        self.text_attr(crate::attributes::REFUSED)
    }

    /// Whether its loss was no number any more.
    pub fn has_diverged(&self) -> bool {
        self.user_attrs.contains_key(crate::attributes::DIVERGED)
    }

    pub(crate) fn number_attr(&self, key: &str) -> Option<f64> {
        self.user_attrs.get(key).and_then(Plain::as_f64)
    }

    pub(crate) fn text_attr(&self, key: &str) -> Option<&str> {
        self.user_attrs.get(key).and_then(Plain::as_str)
    }

    /// Why it is not simply complete: adapted, pruned, failed, the same as another.
    pub(crate) fn why(&self) -> String {
        use crate::attributes as name;
        let words = [name::ADAPTED, name::PRUNED_BECAUSE, name::DIVERGED, name::FAILURE, name::REFUSED];
        let labels = ["adapted: ", "", "", "failed: ", "refused: "];
        // One that went on after it was laid aside was among the best after all.
        let aside = [PRUNED, PAUSED].contains(&self.state);
        let said = words.iter().zip(labels).filter(|(key, _)| aside || **key != name::PRUNED_BECAUSE);
        let said = said.filter_map(|(key, label)| {
            let text = self.text_attr(key)?;
            Some(format!("{label}{}", text.lines().next().unwrap_or(text)))
        });
        let same = self.number_attr(name::SAME_AS).map(|leader| format!("same training as trial {leader}"));
        let longer = self.number_attr(name::CONTINUES).map(|shorter| format!("continues trial {shorter}"));
        same.into_iter().chain(longer).chain(said).collect::<Vec<_>>().join("; ")
    }
}

fn by_objective(trials: &[Arc<Trial>], directions: &[Direction]) -> Vec<BTreeMap<String, f64>> {
    let several = if directions.len() > 1 { 0..directions.len() } else { 0..0 };
    several.map(|objective| importances(trials, directions, objective)).collect()
}

fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Minimize => "minimize",
        Direction::Maximize => "maximize",
    }
}

fn state_of(trial: &Trial) -> &'static str {
    match trial.state {
        State::Running if Study::is_paused(trial) => PAUSED,
        State::Running => "running",
        State::Complete => COMPLETE,
        State::Pruned => PRUNED,
        State::Failed => FAILED,
        State::Waiting => "waiting",
    }
}

fn counts(trials: &[Arc<Trial>]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    trials.iter().for_each(|trial| *counts.entry(state_of(trial)).or_default() += 1);
    counts
}

fn seconds(trials: &[Arc<Trial>]) -> f64 {
    let first = trials.iter().filter_map(|trial| trial.started).min();
    let last = trials.iter().filter_map(|trial| trial.completed).max();
    first.zip(last).map_or(0.0, |(first, last)| last.seconds_since(first).max(0.0))
}

fn objective_names(record: &StudyRecord) -> Vec<String> {
    let named = record.system_attrs.get("study:metric_names").and_then(Json::as_array).unwrap_or(&[]);
    let named: Vec<String> = named.iter().filter_map(Json::as_str).map(String::from).collect();
    match named.len() == record.directions.len() {
        true => named,
        false => (0..record.directions.len()).map(|index| format!("value {index}")).collect(),
    }
}

fn plain_attributes(attributes: &Attributes) -> BTreeMap<String, Plain> {
    order::map(attributes.iter().map(|(key, value)| (key.clone(), plain(value))))
}

/// As strict JSON: what is no finite number is null.
fn plain(json: &Json) -> Plain {
    match json {
        Json::Null => Plain::Null,
        Json::Bool(flag) => Plain::Bool(*flag),
        Json::Int(int) => Plain::from(*int),
        Json::Float(float) => serde_json::Number::from_f64(*float).map_or(Plain::Null, Plain::Number),
        Json::Text(text) => Plain::from(text.as_str()),
        Json::Array(items) => Plain::Array(items.iter().map(plain).collect()),
        Json::Object(entries) => {
            Plain::Object(entries.iter().map(|(key, value)| (key.clone(), plain(value))).collect())
        }
    }
}

fn plain_value(value: &Value) -> Plain {
    plain(&value.to_json())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Distribution;
    use crate::trial::Param;

    /// Trials whose one objective follows the first parameter, and the other the second.
    fn trials() -> Vec<Arc<Trial>> {
        let distribution = Arc::new(Distribution::int(0, 9).unwrap());
        let trial = |number: u64| {
            let (one, other) = ((number % 10) as f64, (number / 10) as f64);
            let mut trial = Trial::new(number as i64, number, State::Complete);
            for (name, internal) in [("one", one), ("other", other)] {
                trial.params.insert(name.into(), Param { internal, distribution: distribution.clone() });
            }
            trial.values = Some(vec![one, other]);
            Arc::new(trial)
        };
        (0..100).map(trial).collect()
    }

    #[test]
    fn only_what_is_still_laid_aside_says_why_it_was() {
        let why = |state: State| {
            let mut trial = Trial::new(0, 0, state);
            trial.user_attrs.insert(crate::attributes::PRUNED_BECAUSE.into(), Json::from("not among the best there"));
            TrialReport::of(&trial).why()
        };
        assert_eq!(why(State::Pruned), "not among the best there");
        for state in [State::Complete, State::Running, State::Failed] {
            assert_eq!(why(state), "");
        }
    }

    #[test]
    fn what_decides_is_told_for_each_of_several_objectives() {
        let told = by_objective(&trials(), &[Direction::Minimize, Direction::Maximize]);
        assert_eq!(told.len(), 2);
        assert!(told[0]["one"] > 0.9 && told[1]["other"] > 0.9, "{told:?}");
        assert!(by_objective(&trials(), &[Direction::Minimize]).is_empty());
    }
}
