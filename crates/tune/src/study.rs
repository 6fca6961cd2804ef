//! A study: trials are asked for, reported on and told, by one process or by many on one storage.
//!
//! A trial comes into being with all its settings in one step, and ends in one step; in between it belongs to the
//! worker that asked for it. What its worker leaves behind when it dies, another takes over.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::attributes::{CONTINUES, PRUNED_BECAUSE};
use crate::error::{Error, Result};
use crate::json::Json;
use crate::order;
use crate::pareto;
use crate::pruners::{NoPruner, Pruner};
use crate::rng::{Rng, mixed};
use crate::samplers::{History, Sampler, Suggestion, Tpe};
use crate::space::{Point, Space, Value};
use crate::storage::journal::unique_name;
use crate::storage::{Change, NewTrial, OWNER, PAUSED, Storage, StudyId, StudyRecord, is_paused, owner_of};
use crate::trial::{Attributes, Direction, Param, State, Trial, TrialId};

/// Characters of a study's name at most: Optuna's databases hold no more.
pub const MOST_OF_A_NAME: usize = 512;
/// The space a study was made for, as text.
const SPACE: &str = "plimsoll:space";

/// What tells a study from all others, in its folder too.
const IDENTITY: &str = "plimsoll:identity";
/// Marks a trial that a sampler put in line.
const AHEAD: &str = "plimsoll:drawn_ahead";
/// What an enqueued trial wants tried; the name is Optuna's.
const FIXED: &str = "fixed_params";

/// How a trial ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// One value per objective; infinities are allowed, NaN is not.
    Complete(Vec<f64>),
    /// Stopped early; the last reported value is kept.
    Pruned,
    Failed,
}

/// A trial to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    pub id: TrialId,
    pub number: u64,
    pub params: BTreeMap<String, Value>,
    /// The step it has reached already, if it was paused or taken over.
    pub reached: Option<i64>,
}

/// A handle on one study in a storage.
pub struct Study {
    storage: Box<dyn Storage>,
    record: StudyRecord,
    space: Space,
    sampler: Box<dyn Sampler>,
    pruner: Box<dyn Pruner>,
    worker: String,
    seed: u64,
    /// Tells workers with one seed apart.
    stream: u64,
    draws: u64,
    /// Trials that are made at most, by all workers together.
    most: Option<u64>,
}

impl Study {
    /// Makes a new study; an error if there is one of that name.
    pub fn create(mut storage: Box<dyn Storage>, name: &str, directions: &[Direction], space: Space) -> Result<Self> {
        check_new(name, directions)?;
        let id = storage.create_study(name, directions)?;
        storage.set_study_attr(id, SPACE, &Json::Text(space.describe()), true)?;
        storage.set_study_attr(id, IDENTITY, &Json::Text(unique_name()), true)?;
        Self::load(storage, name, space)
    }

    /// What no other study has, whatever it is called and wherever it is kept; nothing in one that others made.
    pub(crate) fn identity(&self) -> Option<&str> {
        self.record.system_attrs.get(IDENTITY).and_then(Json::as_str)
    }

    pub(crate) fn system_attributes(&self) -> &Attributes {
        &self.record.system_attrs
    }

    /// Opens a study that exists; an error if it was made for another space.
    pub fn load(mut storage: Box<dyn Storage>, name: &str, space: Space) -> Result<Self> {
        let record = storage.study(name)?;
        check_space(&record, &space)?;
        let sampler = Box::new(Tpe::for_space(&space));
        let (pruner, worker) = (Box::new(NoPruner), unique_name());
        Ok(Self { storage, record, space, sampler, pruner, worker, seed: 0, stream: 0, draws: 0, most: None })
    }

    /// Opens a study, or makes it if there is none of that name.
    pub fn open(mut storage: Box<dyn Storage>, name: &str, directions: &[Direction], space: Space) -> Result<Self> {
        match storage.study(name) {
            Ok(_) => Self::load(storage, name, space),
            Err(Error::NoSuchStudy { .. }) => match Self::create(storage, name, directions, space) {
                Err(Error::StudyExists(_)) => Err(Error::Input(format!("study {name} is being created right now"))),
                other => other,
            },
            Err(error) => Err(error),
        }
    }

    pub fn with_sampler(mut self, sampler: impl Sampler + 'static) -> Self {
        self.sampler = Box::new(sampler);
        self
    }

    pub fn with_pruner(mut self, pruner: impl Pruner + 'static) -> Self {
        self.pruner = Box::new(pruner);
        self
    }

    /// What random choices follow from: the same seed and history give the same suggestions.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Gives this worker random numbers of its own: for several workers on one study.
    pub fn as_worker(mut self) -> Self {
        self.stream = mixed(1, &self.worker);
        self
    }

    /// Makes no trial beyond so many, whoever made those before.
    pub fn with_at_most(mut self, trials: usize) -> Self {
        self.most = Some(trials as u64);
        self
    }

    pub fn name(&self) -> &str {
        &self.record.name
    }

    pub(crate) fn directions(&self) -> &[Direction] {
        &self.record.directions
    }

    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    /// What happened to its storage that its users should hear of.
    pub fn notes(&self) -> Vec<String> {
        self.storage.notes()
    }

    /// Free-form facts about the study.
    pub(crate) fn attributes(&self) -> &Attributes {
        &self.record.user_attrs
    }

    /// Notes a fact about the study; `system` ones are read by Optuna's own tools.
    pub(crate) fn set_attribute(&mut self, key: &str, value: Json, system: bool) -> Result<()> {
        self.storage.set_study_attr(self.record.id, key, &value, system)?;
        if !system {
            self.record.user_attrs.insert(key.into(), value);
        }
        Ok(())
    }

    /// Whether a trial is laid aside.
    pub(crate) fn is_paused(trial: &Trial) -> bool {
        is_paused(trial)
    }

    /// Whether a trial is one of a worker of plimsoll.
    pub(crate) fn is_ours(trial: &Trial) -> bool {
        trial.system_attrs.contains_key(OWNER)
    }

    /// Whether a trial is this worker's.
    pub(crate) fn is_of(trial: &Trial, worker: &str) -> bool {
        owner_of(trial) == Some(worker)
    }

    /// As what this process runs trials.
    pub(crate) fn worker(&self) -> &str {
        &self.worker
    }

    /// All trials by number, as they stand in the storage now.
    pub fn trials(&mut self) -> Result<Vec<Arc<Trial>>> {
        self.storage.trials(self.record.id)
    }

    /// The best complete and feasible trial (one objective), or all that none is better than (several).
    pub fn best(&mut self) -> Result<Vec<Arc<Trial>>> {
        let trials = self.trials()?;
        let mut front = pareto::front(&trials, &self.record.directions);
        if self.record.directions.len() == 1 {
            front.truncate(1);
        }
        Ok(front)
    }

    /// A point to try next, not yet a trial: it can be looked at, and dropped without a trace. Without a new trial in
    /// between, the same one is suggested again.
    pub fn suggest(&mut self) -> Result<Suggestion> {
        let trials = self.seen_trials()?;
        Ok(self.draw(&trials, &Point::new()))
    }

    /// Turns a suggestion into a running trial of this worker, with the given attributes from the start.
    pub fn begin(&mut self, suggestion: &Suggestion, user_attrs: Attributes) -> Result<Asked> {
        let mut trial = NewTrial::running(self.params_of(&suggestion.point));
        trial.user_attrs = user_attrs;
        trial.system_attrs.extend(suggestion.system_attrs.iter().cloned());
        trial.system_attrs.insert(OWNER.into(), Json::from(self.worker.as_str()));
        trial.most = self.most;
        let id = self.storage.create_trial(self.record.id, &trial)?;
        self.asked(id)
    }

    /// The next trial to run: an enqueued one if there is any, else a new one. None if nothing is left to try, or the study
    /// has all its trials.
    pub fn ask(&mut self) -> Result<Option<Asked>> {
        if let Some(asked) = self.claim_waiting()? {
            return Ok(Some(asked));
        }
        let suggestion = self.suggest()?;
        if suggestion.exhausted {
            return Ok(None);
        }
        match self.begin(&suggestion, Attributes::new()) {
            Err(Error::StudyFull) => Ok(None),
            begun => begun.map(Some),
        }
    }

    /// Puts a trial with these values in line; parameters that are not named are drawn when its turn comes.
    pub fn enqueue(&mut self, values: &BTreeMap<String, Value>, user_attrs: Attributes) -> Result<()> {
        self.enqueue_as(values, user_attrs, Attributes::new(), None)
    }

    /// The same for what the sampler drew and not somebody who wants it first.
    pub(crate) fn put_in_line(&mut self, values: &BTreeMap<String, Value>) -> Result<()> {
        self.enqueue_as(values, Attributes::new(), Attributes::from([(AHEAD.to_string(), Json::Bool(true))]), self.most)
    }

    fn enqueue_as(
        &mut self,
        values: &BTreeMap<String, Value>,
        user: Attributes,
        system: Attributes,
        most: Option<u64>,
    ) -> Result<()> {
        for (name, value) in values {
            self.check_value(name, value)?;
        }
        let fixed = Json::object(values.iter().map(|(name, value)| (name, value.to_json())));
        let mut trial = NewTrial::waiting();
        (trial.user_attrs, trial.system_attrs, trial.most) = (user, system, most);
        trial.system_attrs.insert(FIXED.into(), fixed);
        self.storage.create_trial(self.record.id, &trial).map(|_| ())
    }

    /// Whether a trial was put in line by a sampler.
    pub(crate) fn is_drawn_ahead(trial: &Trial) -> bool {
        trial.system_attrs.contains_key(AHEAD)
    }

    /// What a trial in line is to be tried with, as far as that is said.
    pub(crate) fn wanted(&self, trial: &Trial) -> BTreeMap<String, Value> {
        let of = |(name, internal): (String, f64)| {
            let parameter = self.space.get(&name)?;
            Some((name, parameter.distribution.external(internal)))
        };
        order::map(self.fixed_point(trial).into_iter().filter_map(of))
    }

    /// Claims the first waiting trial that no other worker is faster to get.
    pub fn claim_waiting(&mut self) -> Result<Option<Asked>> {
        let waiting: Vec<Arc<Trial>> =
            self.trials()?.into_iter().filter(|trial| trial.state == State::Waiting).collect();
        for trial in waiting {
            if let Some(asked) = self.claim(&trial)? {
                return Ok(Some(asked));
            }
        }
        Ok(None)
    }

    /// Claims a waiting trial; none if another worker was faster.
    pub(crate) fn claim(&mut self, trial: &Trial) -> Result<Option<Asked>> {
        match self.storage.claim(trial.id, &self.worker)? {
            true => self.complete_params(trial).map(Some),
            false => Ok(None),
        }
    }

    fn complete_params(&mut self, trial: &Trial) -> Result<Asked> {
        let fixed = self.fixed_point(trial);
        let trials: Vec<Arc<Trial>> = self.seen_trials()?.into_iter().filter(|other| other.id != trial.id).collect();
        let suggestion = self.draw(&trials, &fixed);
        let params = self.params_of(&suggestion.point).into_iter();
        let new = params.filter(|(name, _)| !trial.params.contains_key(name));
        let mut changes: Vec<Change> = new.map(|(name, param)| Change::Param { name, param }).collect();
        let attrs = suggestion.system_attrs.into_iter();
        changes.extend(attrs.map(|(key, value)| Change::SystemAttr { key, value }));
        self.storage.change(trial.id, &changes)?;
        self.asked(trial.id)
    }

    fn fixed_point(&self, trial: &Trial) -> Point {
        let mut point = trial.point();
        let fixed = trial.system_attrs.get(FIXED).and_then(Json::as_object).unwrap_or(&[]);
        for (name, value) in fixed {
            let internal = self.space.get(name).map(|known| known.distribution.internal(&Value::from_json(value)));
            if let Some(Ok(internal)) = internal {
                point.insert(name.clone(), internal);
            }
        }
        point
    }

    /// Ends a trial. An error, and nothing written, if it ended before or another worker has taken it over.
    pub fn tell(&mut self, trial: TrialId, outcome: &Outcome) -> Result<()> {
        let (state, values) = match outcome {
            Outcome::Complete(values) => {
                Trial::check_values(values, &self.record.directions)?;
                (State::Complete, Some(values.clone()))
            }
            Outcome::Pruned => (State::Pruned, self.last_report(trial)?),
            Outcome::Failed => (State::Failed, None),
        };
        self.storage.finish(trial, state, values.as_deref(), Some(&self.worker))
    }

    fn last_report(&mut self, id: TrialId) -> Result<Option<Vec<f64>>> {
        let trial = self.trial(id)?;
        let last = trial.intermediate.last_key_value().map(|(_, value)| *value);
        let single = self.record.directions.len() == 1;
        Ok(last.filter(|value| single && !value.is_nan()).map(|value| vec![value]))
    }

    /// Notes a value on the way; NaN and infinities are allowed.
    pub fn report(&mut self, trial: TrialId, step: i64, value: f64) -> Result<()> {
        self.storage.change(trial, &[Change::Report { step, value }])
    }

    /// Whether a trial had better stop, judging by what it and others have reported.
    pub fn should_prune(&mut self, trial: TrialId) -> Result<bool> {
        let trials = self.judged_trials()?;
        let own = trials.iter().find(|other| other.id == trial).cloned().ok_or(Error::NoSuchTrial(trial))?;
        let history = History { directions: &self.record.directions, trials: &trials };
        let judgement = self.pruner.judge(&history, &own, &self.record.name);
        if !judgement.system_attrs.is_empty() {
            let note = |(key, value)| Change::SystemAttr { key, value };
            self.storage.change(trial, &judgement.system_attrs.into_iter().map(note).collect::<Vec<_>>())?;
        }
        Ok(judgement.stop)
    }

    /// Lays a trial aside: it can go on later, and until then counts as pruned.
    pub fn pause(&mut self, trial: TrialId) -> Result<()> {
        self.set_system_attr(trial, PAUSED, Json::Bool(true))
    }

    /// The paused trial that has earned to go on, if there is one; it is this worker's from now on.
    pub fn promote(&mut self) -> Result<Option<Asked>> {
        let trials = self.seen_trials()?;
        let history = History { directions: &self.record.directions, trials: &trials };
        let Some(id) = self.pruner.promotable(&history, &self.record.name) else { return Ok(None) };
        if !self.storage.resume(id, &self.worker)? {
            // Another worker was faster: there may be another trial, but not now.
            return Ok(None);
        }
        self.asked(id).map(Some)
    }

    /// A trial that was laid aside when the study ended, and that by what came later has earned to go on: a trial that has
    /// ended stays as it is, so it goes on as a new one, with all that it had reached. `can` says whose run is still there.
    pub(crate) fn revive(&mut self, can: impl Fn(u64) -> bool) -> Result<Option<(Asked, u64)>> {
        let trials = self.judged_trials()?;
        let history = History { directions: &self.record.directions, trials: &trials };
        let Some(id) = self.pruner.promotable(&history, &self.record.name) else { return Ok(None) };
        let before = self.trial(id)?;
        if !is_shelved(&before) || !can(before.number) {
            return Ok(None);
        }
        let mut trial = NewTrial::running(before.params.clone());
        trial.intermediate.clone_from(&before.intermediate);
        trial.user_attrs.clone_from(&before.user_attrs);
        trial.user_attrs.remove(PRUNED_BECAUSE);
        trial.user_attrs.insert(CONTINUES.into(), Json::Int(before.number as i64));
        trial.system_attrs.clone_from(&before.system_attrs);
        trial.system_attrs.remove(PAUSED);
        trial.system_attrs.insert(OWNER.into(), Json::from(self.worker.as_str()));
        trial.most = self.most;
        let id = match self.storage.create_trial(self.record.id, &trial) {
            Err(Error::StudyFull) => return Ok(None),
            made => made?,
        };
        let asked = self.asked(id)?;
        let first = self.trials()?.iter().find(|other| continues(other) == Some(before.number)).map(|other| other.id);
        if first != Some(id) {
            // Another worker had the same thought.
            self.tell(id, &Outcome::Pruned)?;
            return Ok(None);
        }
        Ok(Some((asked, before.number)))
    }

    /// Trials as pruners see them: what was laid aside when the study ended may still go on, and what goes on as another
    /// trial counts once.
    fn judged_trials(&mut self) -> Result<Vec<Arc<Trial>>> {
        let trials = self.seen_trials()?;
        let gone_on: HashSet<u64> = trials.iter().filter_map(|trial| continues(trial)).collect();
        let counts = |trial: &Arc<Trial>| trial.state != State::Pruned || !gone_on.contains(&trial.number);
        let as_judged = |trial: Arc<Trial>| match is_shelved(&trial) {
            true => Arc::new(Trial { completed: None, ..(*trial).clone() }),
            false => trial,
        };
        Ok(trials.into_iter().filter(counts).map(as_judged).collect())
    }

    /// The paused trial that came farthest, the best of those; it is this worker's from now on. For a study in which none
    /// would be complete otherwise.
    pub(crate) fn promote_best(&mut self) -> Result<Option<Asked>> {
        let direction = self.record.directions[0];
        let rank = |trial: &Trial| {
            let (step, value) = trial.intermediate.last_key_value()?;
            (!value.is_nan()).then_some((*step, -direction.loss(*value)))
        };
        let trials = self.trials()?;
        let paused = trials.iter().filter(|trial| is_paused(trial));
        let ranked = paused.filter_map(|trial| Some((rank(trial)?, trial.id)));
        let farthest = ranked.max_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let Some((_, id)) = farthest else { return Ok(None) };
        if !self.storage.resume(id, &self.worker)? {
            return Ok(None);
        }
        self.asked(id).map(Some)
    }

    /// Ends all trials that are still paused, as pruned: the study is over.
    pub fn finish_paused(&mut self) -> Result<usize> {
        let paused: Vec<TrialId> =
            self.trials()?.iter().filter(|trial| is_paused(trial)).map(|trial| trial.id).collect();
        for id in &paused {
            let last = self.last_report(*id)?;
            self.storage.finish(*id, State::Pruned, last.as_deref(), None)?;
        }
        Ok(paused.len())
    }

    pub fn set_user_attr(&mut self, trial: TrialId, key: &str, value: Json) -> Result<()> {
        self.storage.change(trial, &[Change::UserAttr { key: key.into(), value }])
    }

    pub(crate) fn set_system_attr(&mut self, trial: TrialId, key: &str, value: Json) -> Result<()> {
        self.storage.change(trial, &[Change::SystemAttr { key: key.into(), value }])
    }

    /// Notes by how much a trial breaks a constraint; at most 0 is kept.
    pub fn set_constraint(&mut self, trial: TrialId, name: &str, value: f64) -> Result<()> {
        if value.is_nan() {
            return Err(Error::Input(format!("constraint {name} cannot be NaN")));
        }
        self.set_system_attr(trial, &Trial::constraint_key(name), Json::Float(value))
    }

    /// Says that this worker is alive and running the trial.
    pub fn heartbeat(&mut self, trial: TrialId) -> Result<()> {
        self.storage.heartbeat(trial)
    }

    /// Takes over a trial whose worker was not heard of for `grace` seconds, unless its number is known to be at work: a
    /// busy machine lets a worker miss its time.
    pub fn take_over_stale(&mut self, grace: f64, is_at_work: impl Fn(u64) -> bool) -> Result<Option<Asked>> {
        for id in self.storage.stale(self.record.id, grace)? {
            if !is_at_work(self.trial(id)?.number) && self.storage.take_over(id, &self.worker, grace)? {
                return self.asked(id).map(Some);
            }
        }
        Ok(None)
    }

    /// Takes over a running trial whatever its heartbeat: for a coordinator that knows its children to be dead.
    pub(crate) fn adopt(&mut self, trial: TrialId) -> Result<Asked> {
        self.set_system_attr(trial, OWNER, Json::from(self.worker.as_str()))?;
        self.asked(trial)
    }

    fn draw(&mut self, trials: &[Arc<Trial>], fixed: &Point) -> Suggestion {
        self.draws += 1;
        // By number of trials, so that a study that was stopped draws what it would have drawn anyway.
        let retries = if self.stream == 0 { 0 } else { self.draws };
        let mut rng = Rng::stream(&[self.seed, self.stream, trials.len() as u64, retries]);
        let history = History { directions: &self.record.directions, trials };
        self.sampler.suggest(&history, &self.space, fixed, &mut rng)
    }

    /// Trials as samplers and pruners see them: what is paused counts as pruned.
    fn seen_trials(&mut self) -> Result<Vec<Arc<Trial>>> {
        let as_seen = |trial: Arc<Trial>| match is_paused(&trial) {
            true => Arc::new(Trial { state: State::Pruned, ..(*trial).clone() }),
            false => trial,
        };
        Ok(self.trials()?.into_iter().map(as_seen).collect())
    }

    fn trial(&mut self, id: TrialId) -> Result<Arc<Trial>> {
        self.trials()?.into_iter().find(|trial| trial.id == id).ok_or(Error::NoSuchTrial(id))
    }

    fn asked(&mut self, id: TrialId) -> Result<Asked> {
        let trial = self.trial(id)?;
        let params = order::map(trial.params.iter().map(|(name, param)| (name.clone(), param.value())));
        Ok(Asked { id, number: trial.number, params, reached: trial.last_step() })
    }

    fn params_of(&self, point: &Point) -> BTreeMap<String, Param> {
        let param = |(name, internal): (&String, &f64)| {
            let distribution = self.space.get(name)?.distribution.clone();
            Some((name.clone(), Param { internal: *internal, distribution }))
        };
        order::map(point.iter().filter_map(param))
    }

    fn check_value(&self, name: &str, value: &Value) -> Result<()> {
        let known =
            self.space.get(name).ok_or_else(|| Error::Input(format!("{name} is not searched in this study")))?;
        let internal = known.distribution.internal(value)?;
        if !known.distribution.contains(internal) {
            return Err(Error::Input(format!("{name} = {value} lies outside {}", known.distribution)));
        }
        Ok(())
    }

    pub fn id(&self) -> StudyId {
        self.record.id
    }
}

/// Whether a trial was laid aside when its study ended.
fn is_shelved(trial: &Trial) -> bool {
    let paused = trial.system_attrs.get(PAUSED) == Some(&Json::Bool(true));
    trial.state == State::Pruned && trial.completed.is_some() && paused
}

/// The trial that this one goes on with.
fn continues(trial: &Trial) -> Option<u64> {
    trial.user_attrs.get(CONTINUES).and_then(Json::as_i64).map(|number| number as u64)
}

fn check_new(name: &str, directions: &[Direction]) -> Result<()> {
    if name.trim().is_empty() || name.chars().count() > MOST_OF_A_NAME {
        return Err(Error::Input(format!("a study's name has between 1 and {MOST_OF_A_NAME} characters")));
    }
    if directions.is_empty() {
        return Err(Error::Input("a study needs at least one objective".into()));
    }
    Ok(())
}

fn check_space(record: &StudyRecord, space: &Space) -> Result<()> {
    let Some(made_for) = record.system_attrs.get(SPACE).and_then(Json::as_str) else { return Ok(()) };
    let now = space.describe();
    let lines_missing_in = |from: &str, other: &str, mark: char| -> Vec<String> {
        from.lines()
            .filter(|line| !other.lines().any(|same| same == *line))
            .map(|line| format!("  {mark} {line}"))
            .collect()
    };
    let mut differences = lines_missing_in(made_for, &now, '-');
    differences.extend(lines_missing_in(&now, made_for, '+'));
    if differences.is_empty() {
        return Ok(());
    }
    let cause = format!("study {:?} searches another space:\n{}", record.name, differences.join("\n"));
    Err(Error::Input(format!("{cause}\nhint: choose another name for a new study, or put the space back")))
}
