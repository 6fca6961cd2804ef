//! What the lines of a journal add up to. Rules that look odd are Optuna's: identities are implicit in the order of
//! lines, a second study of a name is ignored, and so is a change to a trial that has ended.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::json::Json;
use crate::order;
use crate::space::Distribution;
use crate::storage::{StudyId, StudyRecord};
use crate::time::Timestamp;
use crate::trial::{Attributes, Direction, Param, State, Trial, TrialId};

/// The kinds of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    CreateStudy = 0,
    DeleteStudy = 1,
    StudyUserAttr = 2,
    StudySystemAttr = 3,
    CreateTrial = 4,
    TrialParam = 5,
    TrialState = 6,
    TrialReport = 7,
    TrialUserAttr = 8,
    TrialSystemAttr = 9,
    /// Written by Rustuna only, and without effect on what is stored.
    DiscardTrials = 10,
}

impl Op {
    fn from_code(code: i64) -> Option<Self> {
        use Op::*;
        let all = [
            CreateStudy,
            DeleteStudy,
            StudyUserAttr,
            StudySystemAttr,
            CreateTrial,
            TrialParam,
            TrialState,
            TrialReport,
            TrialUserAttr,
            TrialSystemAttr,
            DiscardTrials,
        ];
        all.into_iter().find(|op| *op as i64 == code)
    }
}

#[derive(Default)]
pub(super) struct Replay {
    /// Deleted studies leave a gap: identities are never used twice.
    studies: Vec<Option<StudyRecord>>,
    trials: Vec<Arc<Trial>>,
    study_of: Vec<StudyId>,
    trials_of: HashMap<StudyId, Vec<usize>>,
    /// The first domain of each parameter, which later ones must be compatible with.
    domains: HashMap<(StudyId, String), Arc<Distribution>>,
    /// Texts of distributions repeat in every trial; each is read once and shared.
    read: HashMap<String, Arc<Distribution>>,
}

impl Replay {
    pub(super) fn studies(&self) -> Vec<StudyRecord> {
        self.studies.iter().flatten().cloned().collect()
    }

    pub(super) fn trials(&self, study: StudyId) -> Result<Vec<Arc<Trial>>> {
        let exists = usize::try_from(study).ok().and_then(|at| self.studies.get(at)).is_some_and(Option::is_some);
        if !exists {
            return Err(Error::NoSuchStudy { name: format!("number {study}"), near: None });
        }
        let indices = self.trials_of.get(&study).map_or(&[][..], Vec::as_slice);
        Ok(indices.iter().map(|index| self.trials[*index].clone()).collect())
    }

    pub(super) fn trial(&self, id: TrialId) -> Result<&Arc<Trial>> {
        usize::try_from(id).ok().and_then(|index| self.trials.get(index)).ok_or(Error::NoSuchTrial(id))
    }

    pub(super) fn study_of(&self, trial: TrialId) -> Result<StudyId> {
        self.trial(trial)?;
        Ok(self.study_of[trial as usize])
    }

    pub(super) fn next_trial_id(&self) -> TrialId {
        self.trials.len() as TrialId
    }

    /// An error if readers would drop the parameter, because the study knows it with another domain.
    pub(super) fn check_compatible(&self, study: StudyId, name: &str, new: &Distribution) -> Result<()> {
        match self.domains.get(&(study, name.into())) {
            Some(old) if !old.is_compatible_with(new) => {
                let cause = format!("parameter {name} is {old} in this study and cannot become {new}");
                Err(Error::Input(format!("{cause}\nhint: give the parameter or the study another name")))
            }
            _ => Ok(()),
        }
    }

    /// Takes up one line.
    pub(super) fn apply(&mut self, line: &Json) -> Result<()> {
        let code = int(line, "op_code")?;
        let op = Op::from_code(code).ok_or_else(|| bad(format!("unknown op_code {code}")))?;
        match op {
            Op::CreateStudy => self.create_study(line),
            Op::DeleteStudy => self.delete_study(line),
            Op::StudyUserAttr => self.set_study_attr(line, "user_attr", |study| &mut study.user_attrs),
            Op::StudySystemAttr => self.set_study_attr(line, "system_attr", |study| &mut study.system_attrs),
            Op::CreateTrial => self.create_trial(line),
            Op::TrialParam => self.set_param(line),
            Op::TrialState => self.set_state(line),
            Op::TrialReport => self.report(line),
            Op::TrialUserAttr => self.set_trial_attr(line, "user_attr", |trial| &mut trial.user_attrs),
            Op::TrialSystemAttr => self.set_trial_attr(line, "system_attr", |trial| &mut trial.system_attrs),
            Op::DiscardTrials => Ok(()),
        }
    }

    fn create_study(&mut self, line: &Json) -> Result<()> {
        let name = text(line, "study_name")?;
        if self.studies.iter().flatten().any(|study| study.name == name) {
            return Ok(());
        }
        let codes = line.get("directions").and_then(Json::as_array).ok_or_else(|| bad("no directions".into()))?;
        let direction = |code: &Json| code.as_i64().and_then(Direction::from_code);
        // Optuna's "not set" is treated as its own default.
        let directions = codes.iter().map(|code| direction(code).unwrap_or(Direction::Minimize)).collect();
        let id = self.studies.len() as StudyId;
        let (user_attrs, system_attrs) = (Attributes::new(), Attributes::new());
        self.studies.push(Some(StudyRecord { id, name: name.into(), directions, user_attrs, system_attrs }));
        Ok(())
    }

    fn delete_study(&mut self, line: &Json) -> Result<()> {
        let id = int(line, "study_id")?;
        if let Some(study) = self.study_mut(id) {
            *study = None;
        }
        Ok(())
    }

    fn set_study_attr(
        &mut self,
        line: &Json,
        field: &str,
        attrs: impl Fn(&mut StudyRecord) -> &mut Attributes,
    ) -> Result<()> {
        let entries = entries(line, field)?;
        if let Some(Some(study)) = self.study_mut(int(line, "study_id")?) {
            attrs(study).extend(entries.iter().cloned());
        }
        Ok(())
    }

    fn study_mut(&mut self, id: StudyId) -> Option<&mut Option<StudyRecord>> {
        self.studies.get_mut(usize::try_from(id).ok()?)
    }

    fn create_trial(&mut self, line: &Json) -> Result<()> {
        let study = int(line, "study_id")?;
        if !matches!(self.study_mut(study), Some(Some(_))) {
            return Ok(());
        }
        let siblings = self.trials_of.entry(study).or_default();
        let number = siblings.len() as u64;
        siblings.push(self.trials.len());
        let state = line.get("state").and_then(Json::as_i64).map_or(Some(State::Running), State::from_code);
        let state = state.ok_or_else(|| bad("unknown state".into()))?;
        let mut trial = Trial::new(self.trials.len() as TrialId, number, state);
        self.fill_trial(&mut trial, line)?;
        self.remember_domains(study, &trial);
        self.trials.push(Arc::new(trial));
        self.study_of.push(study);
        Ok(())
    }

    fn fill_trial(&mut self, trial: &mut Trial, line: &Json) -> Result<()> {
        trial.started = moment(line, "datetime_start")?;
        trial.completed = moment(line, "datetime_complete")?;
        let single = line.get("value").and_then(Json::as_f64).map(|value| vec![value]);
        trial.values = values(line)?.or(single);
        trial.user_attrs = order::map(object(line, "user_attrs").iter().cloned());
        trial.system_attrs = order::map(object(line, "system_attrs").iter().cloned());
        trial.intermediate = reports(line)?;
        let distributions = line.get("distributions");
        for (name, internal) in object(line, "params") {
            let text = distributions.and_then(|all| all.get(name)).and_then(Json::as_str);
            let distribution = self.distribution(text.ok_or_else(|| bad(format!("{name} without distribution")))?)?;
            let internal = internal.as_f64().ok_or_else(|| bad(format!("{name} is no number")))?;
            trial.params.insert(name.clone(), Param { internal, distribution });
        }
        Ok(())
    }

    fn remember_domains(&mut self, study: StudyId, trial: &Trial) {
        for (name, param) in &trial.params {
            self.domains.entry((study, name.clone())).or_insert_with(|| param.distribution.clone());
        }
    }

    fn distribution(&mut self, text: &str) -> Result<Arc<Distribution>> {
        if let Some(known) = self.read.get(text) {
            return Ok(known.clone());
        }
        let distribution = Arc::new(Distribution::from_json(&Json::parse(text)?)?);
        // The same domain may be written in several ways (order of keys, spaces): still shared.
        let distribution = self.read.values().find(|known| **known == distribution).cloned().unwrap_or(distribution);
        self.read.insert(text.into(), distribution.clone());
        Ok(distribution)
    }

    fn set_param(&mut self, line: &Json) -> Result<()> {
        let distribution = self.distribution(text(line, "distribution")?)?;
        let name = text(line, "param_name")?.to_string();
        let internal = line.get("param_value_internal").and_then(Json::as_f64);
        let internal = internal.ok_or_else(|| bad("no param_value_internal".into()))?;
        let Some(index) = self.changeable(line)? else { return Ok(()) };
        let study = self.study_of[index];
        if self.check_compatible(study, &name, &distribution).is_err() {
            return Ok(());
        }
        self.domains.entry((study, name.clone())).or_insert_with(|| distribution.clone());
        Arc::make_mut(&mut self.trials[index]).params.insert(name, Param { internal, distribution });
        Ok(())
    }

    fn set_state(&mut self, line: &Json) -> Result<()> {
        let state = State::from_code(int(line, "state")?).ok_or_else(|| bad("unknown state".into()))?;
        let values = values(line)?;
        let (started, completed) = (moment(line, "datetime_start")?, moment(line, "datetime_complete")?);
        let Some(index) = self.changeable(line)? else { return Ok(()) };
        let trial = Arc::make_mut(&mut self.trials[index]);
        // Who comes second to start a waiting trial does not get it.
        if state == State::Running && trial.state == State::Running {
            return Ok(());
        }
        trial.state = state;
        trial.started = started.or(trial.started);
        trial.completed = completed.or(trial.completed);
        trial.values = values.or(trial.values.take());
        Ok(())
    }

    fn report(&mut self, line: &Json) -> Result<()> {
        let step = int(line, "step")?;
        // A writer that turned NaN into null meant NaN.
        let value = line.get("intermediate_value").and_then(Json::as_f64).unwrap_or(f64::NAN);
        if let Some(index) = self.changeable(line)? {
            Arc::make_mut(&mut self.trials[index]).intermediate.insert(step, value);
        }
        Ok(())
    }

    fn set_trial_attr(
        &mut self,
        line: &Json,
        field: &str,
        attrs: impl Fn(&mut Trial) -> &mut Attributes,
    ) -> Result<()> {
        let entries = entries(line, field)?;
        if let Some(index) = self.changeable(line)? {
            attrs(Arc::make_mut(&mut self.trials[index])).extend(entries.iter().cloned());
        }
        Ok(())
    }

    /// The trial a line is about; none if it does not exist or has ended.
    fn changeable(&self, line: &Json) -> Result<Option<usize>> {
        let id = int(line, "trial_id")?;
        Ok(self.trial(id).ok().filter(|trial| !trial.state.is_finished()).map(|_| id as usize))
    }
}

fn bad(cause: String) -> Error {
    Error::Input(cause)
}

fn int(line: &Json, field: &str) -> Result<i64> {
    line.get(field).and_then(Json::as_i64).ok_or_else(|| bad(format!("no {field}")))
}

fn text<'a>(line: &'a Json, field: &str) -> Result<&'a str> {
    line.get(field).and_then(Json::as_str).ok_or_else(|| bad(format!("no {field}")))
}

fn object<'a>(line: &'a Json, field: &str) -> &'a [(String, Json)] {
    line.get(field).and_then(Json::as_object).unwrap_or(&[])
}

fn entries<'a>(line: &'a Json, field: &str) -> Result<&'a [(String, Json)]> {
    line.get(field).and_then(Json::as_object).ok_or_else(|| bad(format!("no {field}")))
}

fn values(line: &Json) -> Result<Option<Vec<f64>>> {
    let Some(values) = line.get("values").and_then(Json::as_array) else { return Ok(None) };
    let numbers: Option<Vec<f64>> = values.iter().map(Json::as_f64).collect();
    numbers.map(Some).ok_or_else(|| bad("values are no numbers".into()))
}

fn reports(line: &Json) -> Result<BTreeMap<i64, f64>> {
    let report = |(step, value): &(String, Json)| {
        let step = step.parse().map_err(|_| bad(format!("step {step} is no integer")))?;
        Ok((step, value.as_f64().unwrap_or(f64::NAN)))
    };
    object(line, "intermediate_values").iter().map(report).collect()
}

fn moment(line: &Json, field: &str) -> Result<Option<Timestamp>> {
    let Some(text) = line.get(field).and_then(Json::as_str) else { return Ok(None) };
    Timestamp::from_iso(text).map(Some).ok_or_else(|| bad(format!("{field} {text:?} is no time")))
}
