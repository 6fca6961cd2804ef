//! Runs a study: asks for trials, starts them where there is room, hears them out, and keeps the storage true at every
//! moment, so that a kill at any of them loses at most the steps since a checkpoint.

mod ahead;
mod follow;
mod next;
mod outcome;
mod sweep;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll::search::{Objective, PrunerName, SamplerName, Search};
use plimsoll::{Device, Draft, Every, format_seconds};

use super::basis::changed;
use super::child::Training;
use super::folder::{Held, StudyFolder};
use super::forecast::Forecast;
use super::pace::Pace;
use super::packing::{Parallel, Room};
use super::plans::Plans;
use super::space::{PrunerSettings, directions, enqueued, pruner_of, sampler_of, space_of};
use crate::attributes as name;
use crate::error::{Error, Result};
use crate::json::Json;
use crate::rng::Rng;
use crate::samplers::random;
use crate::space::Space;
use crate::storage::{self, Storage};
use crate::study::{Asked, Study};
use crate::trial::{Attributes, State, Trial, TrialId};
use next::{Prospect, Ready, Unfit};
use sweep::Sweeper;

/// What to run, and how.
pub struct Options {
    /// The command `plimsoll`.
    pub program: PathBuf,
    pub draft: Draft,
    pub search: Search,
    pub study: String,
    pub folder: StudyFolder,
    /// `journal:FILE`, `sqlite:FILE` or `postgresql://…`.
    pub storage: String,
    pub device: String,
    pub threads: Option<usize>,
    /// The study is over when it has so many trials.
    pub trials: usize,
    pub parallel: Parallel,
    /// One of several processes on the study, none of which coordinates the others.
    pub worker: bool,
    /// Whether the storage is one that other processes may work on, too.
    pub shared: bool,
    pub sampler: Option<SamplerName>,
    pub pruner: Option<PrunerName>,
    /// A plan whose library algorithms are taken over where products are the same.
    pub products: Option<PathBuf>,
    /// A worker that is silent for so many seconds is dead.
    pub grace: f64,
    /// What every trial's recipe has beside what is searched.
    pub settings: Vec<String>,
    /// The variable of the environment that names the storage, if one does.
    pub secret: Option<String>,
}

/// Hears what happens.
pub trait Watcher {
    /// Something that is worth a line.
    fn line(&mut self, text: &str);
    /// How things stand, often.
    fn status(&mut self, status: &Status);
    /// A trial that never becomes a training, as it fits nowhere.
    fn infeasible(&mut self, _number: u64, _params: &[(String, String)]) {}
}

/// How a study stands.
#[derive(Clone, Debug, Default)]
pub struct Status {
    pub wanted: usize,
    pub ended: usize,
    pub paused: usize,
    /// The best trial and its first value.
    pub best: Option<(u64, f64)>,
    pub running: Vec<RunningTrial>,
    pub taken_bytes: u64,
    pub budget_bytes: u64,
    pub seconds: f64,
    pub seconds_left: Option<f64>,
}

/// One trial under way.
#[derive(Clone, Debug, Default)]
pub struct RunningTrial {
    pub number: u64,
    pub step: usize,
    pub steps: usize,
    pub bytes: u64,
    pub seconds_left: Option<f64>,
    pub last_value: Option<f64>,
}

/// What a session came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Asked to leave; the same command goes on.
    pub interrupted: bool,
    /// Trials that this session ended.
    pub ended: usize,
    pub seconds: f64,
    /// Seconds that were promised once speed was known.
    pub promised_seconds: Option<f64>,
}

/// A study being run by this process.
pub struct Coordinator {
    options: Options,
    objectives: Vec<Objective>,
    study: Study,
    plans: Plans,
    room: Room,
    device: Device,
    forecast: Forecast,
    running: Vec<Running>,
    sweeper: Sweeper,
    /// A trial that waits for room.
    pending: Option<Ready>,
    /// Predicted seconds of trials that were drawn ahead.
    lengths: HashMap<TrialId, f64>,
    /// Trials that mean the same training as another one that is not over.
    followers: Vec<(Asked, u64)>,
    ended: usize,
    /// A trial that is not laid aside any more.
    to_the_end: Option<TrialId>,
    /// Refusals in a row from the very first trial on.
    refusals: Vec<String>,
    /// Trials that planning refused, and whether any was planned.
    unplannable: usize,
    planned: bool,
    succeeded: bool,
    last_beat: Instant,
    last_status: Option<Instant>,
    /// Notes of the storage that were passed on.
    noted: usize,
    /// As what the last process that held the study ran its trials: they died with it.
    before: Option<String>,
    /// What the recipe says otherwise than the one that the study began with.
    changed: Option<String>,
    _held: Option<Held>,
}

/// A trial under way.
struct Running {
    ready: Ready,
    training: Training,
    began: Instant,
    step: usize,
    steps: usize,
    remaining: Option<f64>,
    pausing: bool,
    restarts: usize,
    /// The step of the checkpoint that it last went on from.
    resumed_from: usize,
    seen: follow::Seen,
}

/// Between two looks at everything.
const LOOK: Duration = Duration::from_millis(40);
/// Between two accounts of how things stand.
const STATUS: Duration = Duration::from_millis(250);
/// A database is asked by others, too.
const LOOK_AMONG_OTHERS: Duration = Duration::from_millis(200);
/// Between two signs of life.
const BEAT: Duration = Duration::from_secs(10);
/// Trials that are thought of before the first, and how long they may be thought about.
const LOOKED_AHEAD: usize = 24;
const LOOKING_AHEAD: Duration = Duration::from_secs(1);
/// Alike refusals from the first trial on after which there is no point in more.
const HOPELESS: usize = 3;

impl Coordinator {
    /// Opens the study, or makes it.
    pub fn open(options: Options) -> Result<Coordinator> {
        let folder = options.folder.clone();
        Self::opened(options).inspect_err(|_| folder.remove_unused())
    }

    fn opened(options: Options) -> Result<Coordinator> {
        let mut held = if options.worker { None } else { Some(options.folder.hold(&options.study)?) };
        options.folder.create()?;
        let objectives = options.search.objectives.clone();
        let mut plans = Plans::new(options.draft.clone());
        let room = Room::decide(&mut plans, &options.device, options.threads, options.parallel)?;
        let device = room.device(&options.device)?;
        check_is_here(&device)?;
        let recipe = plans.recipe(&[])?;
        let steps = plans.steps(&recipe);
        let evaluations = match recipe.train.evaluate.every {
            Every::Epoch => recipe.train.epochs,
            Every::Steps(every) => steps.unwrap_or(every) / every.max(1),
            Every::Never => 0,
        };
        let pruner = PrunerSettings::of(&options.search, options.pruner);
        let forecast = Forecast::new(room.slots, pruner, evaluations);
        let study = open_study(&options, pruner, evaluations)?;
        options.folder.belongs_to(&study)?;
        options.folder.remember(&options.storage)?;
        let signed = held.as_mut().map(|held| held.sign(study.worker())).transpose();
        let before = signed.map_err(Error::file(options.folder.path()))?.flatten();
        let mut coordinator = Coordinator {
            objectives,
            study,
            plans,
            room,
            device,
            forecast,
            running: Vec::new(),
            sweeper: Sweeper::new(),
            pending: None,
            lengths: HashMap::new(),
            followers: Vec::new(),
            ended: 0,
            to_the_end: None,
            refusals: Vec::new(),
            unplannable: 0,
            planned: false,
            succeeded: false,
            last_beat: Instant::now(),
            last_status: None,
            noted: 0,
            before,
            changed: None,
            _held: held,
            options,
        };
        coordinator.write_down(&recipe)?;
        Ok(coordinator)
    }

    /// A fact about the study that was noted earlier, perhaps by another process.
    pub fn noted(&self, key: &str) -> Option<&str> {
        self.study.attributes().get(key).and_then(Json::as_str)
    }

    /// Notes a fact about the study for all who open it.
    ///
    /// # Errors
    /// The storage's.
    pub fn note(&mut self, key: &str, value: &str) -> Result<()> {
        self.study.set_attribute(key, Json::from(value), false)
    }

    /// Gives every trial to come this setting of its recipe, too.
    pub fn set_for_all(&mut self, setting: String) {
        self.options.settings.push(setting);
    }

    /// What is said before the first trial.
    pub fn announcement(&mut self) -> Result<String> {
        let trials = self.study.trials()?;
        let to_come = self.options.trials.saturating_sub(trials.len());
        self.predict_some(to_come)?;
        let end = self.forecast.left(to_come, &[]).map_or("when it ends shows when the first trials run".into(), |s| {
            format!("predicted end in {}", format_seconds(s))
        });
        let known = if trials.is_empty() { String::new() } else { format!(" ({} known)", trials.len()) };
        let (count, room) = (self.options.trials, self.room.describe());
        let changed = self.changed.as_ref().map_or(String::new(), |what| {
            format!(
                "\nnote: the recipe is not the one that the study began with: {what}; mind that when you compare trials"
            )
        });
        Ok(format!("{}: {count} trials{known}, {room}; {end}{changed}", self.options.study))
    }

    /// How long trials are going to take, from some that might come.
    fn predict_some(&mut self, to_come: usize) -> Result<()> {
        let (began, mut rng) = (Instant::now(), Rng::new(0));
        for _ in 0..to_come.min(LOOKED_AHEAD) {
            if let Ok(prospect) = self.drawn(&mut rng)? {
                self.forecast.predict(prospect.seconds());
            }
            if began.elapsed() > LOOKING_AHEAD {
                break;
            }
        }
        Ok(())
    }

    /// A trial that might come.
    fn drawn(&mut self, rng: &mut Rng) -> Result<std::result::Result<Prospect, Unfit>> {
        let point = self.study.space().walk(|parameter| random::at(&parameter.distribution, rng.uniform()));
        self.prospect(&self.values_at(&point))
    }

    fn pace(&self) -> Pace {
        Pace::of(&self.device, self.room.slots)
    }

    /// Works until the study has all its trials, or until `stop` is set.
    pub fn run(&mut self, stop: &AtomicBool, watcher: &mut dyn Watcher) -> Result<Summary> {
        let result = self.work(stop, watcher);
        // Whatever happened, nothing trains on behind the study's back.
        self.interrupt_all();
        result
    }

    fn work(&mut self, stop: &AtomicBool, watcher: &mut dyn Watcher) -> Result<Summary> {
        if !self.options.worker {
            self.adopt(watcher)?;
        }
        loop {
            self.follow_all(watcher)?;
            if stop.load(Ordering::Relaxed) {
                self.leave(watcher)?;
                return Ok(self.summary(true));
            }
            self.resolve_followers(watcher)?;
            let started = self.start_next(watcher)?;
            self.beat()?;
            self.tell_status(watcher)?;
            if started {
                continue;
            }
            if self.is_over()? {
                self.finish_paused(watcher)?;
                if self.has_ended()? {
                    break;
                }
            }
            std::thread::sleep(if self.options.shared { LOOK_AMONG_OTHERS } else { LOOK });
        }
        self.last_status = None;
        self.tell_status(watcher)?;
        Ok(self.summary(false))
    }

    /// Nothing trains any more, here or elsewhere, and nothing is going to.
    fn is_over(&mut self) -> Result<bool> {
        let trials = self.trials()?;
        Ok(self.is_idle()
            && !trials.iter().any(|trial| is_open(trial) && !Study::is_paused(trial) && !waits(trial, &trials)))
    }

    /// Every trial of the study has ended, also those of other workers: they may die, and then theirs are to be taken over.
    fn has_ended(&mut self) -> Result<bool> {
        Ok(self.is_idle() && self.followers.is_empty() && !self.trials()?.iter().any(|trial| is_open(trial)))
    }

    fn is_idle(&self) -> bool {
        self.running.is_empty() && self.pending.is_none()
    }

    /// All trials that are laid aside end as pruned: the study is over. Those that mean the same trainings follow them.
    fn finish_paused(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        let count = match self.study.finish_paused() {
            // Another worker was faster.
            Err(Error::TrialEnded(_)) => 0,
            other => other?,
        };
        if count > 0 {
            watcher.line(&format!("{count} trials stay pruned; their checkpoints are kept"));
        }
        self.resolve_followers(watcher)
    }

    fn summary(&self, interrupted: bool) -> Summary {
        Summary {
            interrupted,
            ended: self.ended,
            seconds: self.forecast.elapsed().as_secs_f64(),
            promised_seconds: self.forecast.promised(),
        }
    }

    /// Facts about the study for whoever opens it, also with Optuna.
    fn write_down(&mut self, recipe: &plimsoll::Recipe) -> Result<()> {
        let names: Vec<Json> = self.objectives.iter().map(|o| Json::from(plimsoll::Named::name(*o))).collect();
        let facts = [
            ("recipe", Json::from(recipe.name.as_str())),
            ("device", Json::from(self.device.name.as_str())),
            ("budget_bytes", Json::Int(self.room.budget_bytes as i64)),
            ("folder", Json::Text(self.options.folder.path().display().to_string())),
        ];
        for (key, value) in facts {
            if self.study.attributes().get(key) != Some(&value) {
                self.study.set_attribute(key, value, false)?;
            }
        }
        let text = recipe.to_toml().map_err(|error| Error::Input(error.to_string()))?;
        let before = self.study.system_attributes().get(RECIPE).and_then(Json::as_str);
        self.changed = before.and_then(|before| changed(before, &text, &self.options.search));
        if before.is_none() {
            self.study.set_attribute(RECIPE, Json::Text(text), true)?;
        }
        if self.study.trials()?.is_empty() {
            self.study.set_attribute(METRICS, Json::Array(names), true)?;
            for values in self.options.search.enqueue.clone() {
                self.study.enqueue(&enqueued(&values), Attributes::new())?;
            }
        }
        Ok(())
    }

    fn trials(&mut self) -> Result<Vec<Arc<Trial>>> {
        self.study.trials()
    }

    fn trial(&mut self, id: TrialId) -> Result<Arc<Trial>> {
        self.trials()?.into_iter().find(|trial| trial.id == id).ok_or(Error::NoSuchTrial(id))
    }

    fn beat(&mut self) -> Result<()> {
        let every = BEAT.min(Duration::from_secs_f64(self.options.grace / 3.0));
        if !self.options.shared || self.last_beat.elapsed() < every {
            return Ok(());
        }
        self.last_beat = Instant::now();
        let ids: Vec<TrialId> = self.running.iter().map(|running| running.ready.asked.id).collect();
        let waiting = self.followers.iter().map(|(asked, _)| asked.id).chain(self.pending.iter().map(|p| p.asked.id));
        for id in ids.into_iter().chain(waiting.collect::<Vec<_>>()) {
            match self.study.heartbeat(id) {
                // Another worker thought this one dead: the trial is heard of where it is followed.
                Err(Error::TrialEnded(_) | Error::TrialTakenOver(_)) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn tell_status(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        if self.last_status.is_some_and(|last| last.elapsed() < STATUS) {
            return Ok(());
        }
        self.last_status = Some(Instant::now());
        let notes = self.study.notes();
        notes.iter().skip(self.noted).for_each(|note| watcher.line(note));
        self.noted = notes.len();
        let trials = self.trials()?;
        let ended = trials.iter().filter(|trial| trial.state.is_finished()).count();
        let best = self.study.best()?.first().and_then(|trial| Some((trial.number, trial.value()?)));
        let times: Vec<(f64, f64)> = self.running.iter().filter_map(Running::times).collect();
        let to_come = self.options.trials.saturating_sub(trials.len());
        let known = times.len() == self.running.len() && !times.is_empty();
        let left = self.forecast.left(to_come, &times);
        if let Some(whole) = left.filter(|_| known).and_then(|left| self.forecast.promise(left)) {
            watcher.line(&format!("measured speed: the study takes {} in all", format_seconds(whole)));
        }
        watcher.status(&Status {
            wanted: self.options.trials,
            ended,
            paused: trials.iter().filter(|trial| Study::is_paused(trial)).count(),
            best,
            running: self.running.iter().map(Running::shown).collect(),
            taken_bytes: self.room.taken_bytes(),
            budget_bytes: self.room.budget_bytes,
            seconds: self.forecast.elapsed().as_secs_f64(),
            seconds_left: left,
        });
        Ok(())
    }
}

/// Still to be trained by somebody who trains as we do.
fn is_open(trial: &Trial) -> bool {
    !trial.state.is_finished() && (Study::is_ours(trial) || trial.state == State::Waiting)
}

/// Ends as another does that is laid aside, and may yet go on.
fn waits(trial: &Trial, trials: &[Arc<Trial>]) -> bool {
    let leader = trial.user_attrs.get(name::SAME_AS).and_then(Json::as_i64);
    let leader = leader.and_then(|number| trials.iter().find(|trial| trial.number == number as u64));
    leader.is_some_and(|leader| Study::is_paused(leader))
}

fn open_study(options: &Options, pruner: PrunerSettings, evaluations: usize) -> Result<Study> {
    let space = space_of(&options.search)?;
    check_countable(options, &space)?;
    let directions = directions(&options.search.objectives);
    // Of workers that start at once, one makes the study and the others find it.
    for _ in 0..100 {
        let storage = open_storage(options)?;
        match Study::open(storage, &options.study, &directions, space.clone()) {
            Err(Error::Input(cause)) if cause.contains("right now") => std::thread::sleep(LOOK),
            study => {
                let study = study?;
                check_directions(&study, &directions)?;
                check_objectives(&study, &options.search.objectives)?;
                let sampler = sampler_of(&options.search, &space, options.sampler);
                let study = study.with_sampler(sampler).with_pruner(pruner_of(pruner, evaluations));
                let study = study.with_seed(options.search.seed).with_at_most(options.trials);
                return Ok(if options.worker { study.as_worker() } else { study });
            }
        }
    }
    Err(Error::Input(format!("study {} cannot be opened", options.study)))
}

/// Neither a study nor a file for it is made that its folder would refuse. The folder is asked first: whoever makes the
/// study meanwhile marks it after that.
fn open_storage(options: &Options) -> Result<Box<dyn Storage>> {
    let free = options.folder.belongs_to_nobody();
    if storage::is_missing(&options.storage) {
        free?;
        return storage::open(&options.storage);
    }
    let mut storage = storage::open(&options.storage)?;
    if let Err(Error::NoSuchStudy { .. }) = storage.study(&options.study) {
        free?;
    }
    Ok(storage)
}

/// Only what can be counted can be tried one by one.
fn check_countable(options: &Options, space: &Space) -> Result<()> {
    let endless = space.parameters().iter().find(|parameter| parameter.distribution.cardinality().is_none());
    match (options.sampler.or(options.search.sampler), endless) {
        (Some(SamplerName::BruteForce), Some(parameter)) => {
            let cause = format!("brute-force tries every value, and {} has no end of them", parameter.name);
            Err(Error::Input(format!("{cause}\nhint: give it a step or a list, or choose another sampler")))
        }
        _ => Ok(()),
    }
}

/// Values of one objective are no values of another.
fn check_objectives(study: &Study, wanted: &[Objective]) -> Result<()> {
    let Some(Json::Array(names)) = study.system_attributes().get(METRICS) else { return Ok(()) };
    let was: Vec<&str> = names.iter().filter_map(Json::as_str).collect();
    let now: Vec<&str> = wanted.iter().map(|objective| plimsoll::Named::name(*objective)).collect();
    if was == now {
        return Ok(());
    }
    let cause = format!("study {:?} is about {}, and now about {}", study.name(), was.join(", "), now.join(", "));
    Err(Error::Input(format!("{cause}\nhint: choose another name for a new study, or put the objective back")))
}

/// Under this system attribute a study keeps the recipe that it began with.
const RECIPE: &str = "plimsoll:recipe";
/// Under this system attribute a study names its objectives, for Optuna too.
const METRICS: &str = "study:metric_names";

fn check_is_here(device: &Device) -> Result<()> {
    let name = &device.name;
    let hint = "add --dry-run to plan for it; run with --device cuda or cpu";
    let cause = format!("`{name}` is a card of the catalog: it can only be planned for\nhint: {hint}");
    device.facts().map(|_| ()).ok_or(Error::Input(cause))
}

fn check_directions(study: &Study, wanted: &[crate::trial::Direction]) -> Result<()> {
    if study.directions() == wanted {
        return Ok(());
    }
    let words = |directions: &[crate::trial::Direction]| {
        directions.iter().map(|direction| direction.name().to_lowercase()).collect::<Vec<_>>().join(", ")
    };
    let (was, now) = (words(study.directions()), words(wanted));
    let cause = format!("study {:?} was made to {was}, and is now to {now}", study.name());
    Err(Error::Input(format!("{cause}\nhint: choose another name for a new study, or put the objective back")))
}
