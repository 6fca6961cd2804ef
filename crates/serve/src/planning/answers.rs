//! The planner behind the API: a question goes to a thread of its own when one is free, and its answer is remembered.
//! What takes many plans is worked on beside single ones, one after the other, and gives way to them.

use super::ahead::{self, Hint};
use super::cache::{Answer, Cache, Cell, Found, Key};
use super::fields::{Bounds, bounds};
use super::turns::{Turn, Turns};
use super::{Allowed, Checked, Devices, missing_file, stamps, unusable_data};
use crate::limits::{LATER, give_way};
use crate::problem::{Finding, Problem};
use axum::body::Bytes;
use plimsoll::plans::LargestRow;
use plimsoll::{Device, LargestBatch, Outline, Outlooks, PlanFailure, PlanReport, Timeline};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use tokio::task::JoinHandle;
use utoipa::ToSchema;

/// Questions that wait for a thread; beyond, clients are asked to come back.
const MOST_WAITING: usize = 256;
/// Batches up to this are tried for the largest that fits.
pub(crate) const LARGEST_BATCH: usize = 512;
/// Settings that no plan depends on: what is multiplied by them, or how often a step runs, has the same place.
const UNSEEN: [&str; 3] = ["name", "train.epochs", "train.optimizer.lr"];

/// What is asked about a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plan,
    Timeline,
    Cards,
    Largest,
    LargestOnCards,
}

impl Kind {
    fn is_long(self) -> bool {
        self.plans() > 1
    }

    /// How many plans it takes: one, or about so many.
    fn plans(self) -> usize {
        match self {
            Kind::Plan | Kind::Timeline => 1,
            Kind::Cards | Kind::Largest => 10,
            Kind::LargestOnCards => 100,
        }
    }
}

pub(crate) struct Planner {
    pub allowed: Allowed,
    pub devices: Devices,
    cache: Cache,
    /// What plans of the same kind have in common.
    outlooks: Arc<Outlooks>,
    turns: Arc<Turns>,
    waiting: AtomicUsize,
    /// Of what takes many plans.
    long_turns: Arc<Turns>,
    long_waiting: AtomicUsize,
    hints: SyncSender<Hint>,
}

/// A question, and what files and devices have to say to it: looking there may take a while.
pub(crate) struct Prepared {
    kind: Kind,
    question: Checked,
    device: Device,
    key: Key,
    missing: Option<Finding>,
}

/// A plan, with what follows from it over the whole run.
#[derive(Serialize)]
struct Plan<'a> {
    #[serde(flatten)]
    report: &'a PlanReport,
    /// Updates of the whole run, where known.
    steps: Option<usize>,
    epoch_seconds: Option<f64>,
    run_seconds: Option<f64>,
    samples_per_s: f64,
    name: &'a str,
    /// Why it cannot be trained here, though it can be planned: a file that is not there, data that cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    unready: Option<Finding>,
    /// Every setting of the recipe, defaults filled in, by its dotted key.
    settings: BTreeMap<&'a str, &'a Value>,
    /// How far fields of the form can go with this model.
    bounds: BTreeMap<&'static str, Bounds>,
}

/// How large batches of the recipe can be.
#[derive(Serialize, ToSchema)]
pub(crate) struct Largest {
    /// The largest effective batch that fits; null where not even one sample does.
    largest_batch: Option<usize>,
    /// The largest that is computed at once: beyond it, batches are accumulated. Null where not even one sample is.
    at_once: Option<usize>,
    /// No larger batch was tried.
    tried_up_to: usize,
}

impl Largest {
    fn of(found: Option<LargestBatch>) -> Largest {
        Largest {
            largest_batch: found.map(|found| found.accumulated),
            at_once: found.and_then(|found| found.at_once),
            tried_up_to: LARGEST_BATCH,
        }
    }
}

/// What one card of the catalog computes at once.
#[derive(Serialize, ToSchema)]
pub(crate) struct LargestOnCard<'a> {
    card: &'a str,
    /// What may be taken of it.
    budget_bytes: u64,
    precision: String,
    /// The largest batch with nothing recomputed; null where not even one sample fits so.
    full_speed: Option<AtOnce>,
    /// The largest batch there is, however slow; null where not even one sample fits.
    most: Option<AtOnce>,
}

/// A batch that is computed at once.
#[derive(Serialize, ToSchema)]
pub(crate) struct AtOnce {
    batch: usize,
    planned_peak_bytes: u64,
    samples_per_s: f64,
}

impl LargestOnCard<'_> {
    fn of(row: &LargestRow) -> LargestOnCard<'_> {
        LargestOnCard {
            card: &row.card,
            budget_bytes: row.budget_bytes,
            precision: row.precision.to_string(),
            full_speed: row.plain.as_ref().map(AtOnce::of),
            most: row.largest.as_ref().map(AtOnce::of),
        }
    }
}

impl AtOnce {
    fn of(plan: &Outline) -> AtOnce {
        AtOnce {
            batch: plan.micro_batch,
            planned_peak_bytes: plan.planned_peak_bytes,
            samples_per_s: 1e3 * plan.micro_batch as f64 / plan.predicted_step_ms.max(1e-9),
        }
    }
}

impl Planner {
    pub(crate) fn start(allowed: Allowed) -> Arc<Planner> {
        let (hints, hinted) = ahead::channel();
        let planner = Arc::new(Planner {
            allowed,
            devices: Devices::default(),
            cache: Cache::default(),
            outlooks: Arc::default(),
            turns: Turns::new(thread::available_parallelism().map_or(1, usize::from)),
            waiting: AtomicUsize::new(0),
            long_turns: Turns::new(1),
            long_waiting: AtomicUsize::new(0),
            hints,
        });
        ahead::start(hinted, &planner);
        planner
    }

    /// Looks at the device and at the files that a question is about.
    pub(crate) fn prepare(&self, kind: Kind, question: Checked) -> Result<Prepared, Problem> {
        let device = self.devices.find(&question.device)?;
        let (key, missing) = (key(kind, &question, &device), missing_file(&question));
        Ok(Prepared { kind, question, device, key, missing })
    }

    /// The answer as JSON.
    pub(crate) async fn answer(&self, asked: Prepared) -> Result<Bytes, Problem> {
        let cell = self.cache.cell(asked.key);
        let known = cell.get().cloned();
        let found = match known {
            Some(found) => found,
            None => {
                let count = if asked.kind.is_long() { &self.long_waiting } else { &self.waiting };
                let _waiting = Waiting::enter(count)?;
                let find = || self.find(asked.kind, asked.question.clone(), asked.device.clone(), cell.clone());
                cell.get_or_init(find).await.clone()
            }
        };
        // One that is dropped for want of room was only a hint.
        asked.question.hints().for_each(|hint| _ = self.hints.try_send(hint));
        told(found?, &asked, &self.allowed)
    }

    /// A plan that was begun is finished and kept, though who asked for it may be gone; one that only waits for its turn
    /// is not begun for nobody.
    async fn find(&self, kind: Kind, question: Checked, device: Device, cell: Cell) -> Answer {
        let outlooks = self.outlooks.clone();
        let work = kind.plans() * plimsoll::layers(&question.recipe);
        let find = move || found(&outlooks, kind, &question, &device);
        let finding = if kind.is_long() { self.work_aside(work, find).await } else { self.work(work, find).await };
        let keeping = tokio::spawn(async move {
            let answer = finding.await.unwrap_or_else(|_| Err(broke()));
            // Refused while who asked is still there to keep it.
            let _ = cell.set(answer.clone());
            answer
        });
        keeping.await.unwrap_or_else(|_| Err(broke()))
    }

    /// Begins on a thread for blocking work, as many at a time as there are cores.
    async fn work<T: Send + 'static>(&self, units: usize, work: impl Work<T>) -> JoinHandle<Result<T, Problem>> {
        begin(self.turns.take(units).await, work)
    }

    /// Begins beside those, one at a time, and works when they do not.
    async fn work_aside<T: Send + 'static>(&self, units: usize, work: impl Work<T>) -> JoinHandle<Result<T, Problem>> {
        begin(self.long_turns.take(units).await, || giving_way(work))
    }

    /// Whether somebody waits for a single plan.
    pub(super) fn is_asked(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    #[cfg(test)]
    pub(super) fn knows(&self, question: &Checked) -> bool {
        let device = self.devices.find(&question.device).unwrap();
        self.cache.cell(key(Kind::Plan, question, &device)).initialized()
    }

    /// Plans what may be asked next, unless it was.
    pub(super) fn foresee(&self, question: &Checked) {
        let Ok(device) = self.devices.find(&question.device) else { return };
        let cell = self.cache.cell(key(Kind::Plan, question, &device));
        if !cell.initialized() {
            let _ = cell.set(found(&self.outlooks, Kind::Plan, question, &device));
        }
    }

    /// One step of the plan that a run was started with.
    pub(crate) async fn timeline_of_run(&self, folder: PathBuf) -> Result<Timeline, Problem> {
        let _waiting = Waiting::enter(&self.waiting)?;
        let read = move || Timeline::of_run(&folder).map_err(|error| Problem::explained(&error));
        let reading = self.work(1, read).await;
        reading.await.unwrap_or_else(|_| Err(broke()))
    }

    /// The plan itself, to start a training by; refused where its data is not here.
    pub(crate) async fn report(&self, question: Checked, device: Device) -> Result<PlanReport, Problem> {
        let _waiting = Waiting::enter(&self.waiting)?;
        let (outlooks, allowed) = (self.outlooks.clone(), self.allowed.clone());
        let layers = plimsoll::layers(&question.recipe);
        let planned = move || {
            let refuse = |finding: Option<Finding>| finding.map_or(Ok(()), |finding| Err(Problem::from(finding)));
            refuse(missing_file(&question))?;
            let report = outlooks.outlook(&question.recipe, &device).map_err(refused)?;
            refuse(unusable(&question, &report, &allowed)).map(|()| report)
        };
        let planning = self.work(layers, planned).await;
        planning.await.unwrap_or_else(|_| Err(broke()))
    }
}

/// What is worked on for a question.
trait Work<T>: FnOnce() -> Result<T, Problem> + Send + 'static {}

impl<T, F: FnOnce() -> Result<T, Problem> + Send + 'static> Work<T> for F {}

fn begin<T: Send + 'static>(turn: Turn, work: impl Work<T>) -> JoinHandle<Result<T, Problem>> {
    tokio::task::spawn_blocking(move || {
        let _until_done = turn;
        work()
    })
}

/// On a thread of its own, since one that has given way does so for ever, as do those that it begins.
fn giving_way<T: Send>(work: impl Work<T>) -> Result<T, Problem> {
    let aside = || {
        give_way(LATER);
        work()
    };
    thread::scope(|scope| scope.spawn(aside).join()).unwrap_or_else(|_| Err(broke()))
}

/// One more waits, as long as this lives.
struct Waiting<'a>(&'a AtomicUsize);

impl Waiting<'_> {
    fn enter(count: &AtomicUsize) -> Result<Waiting<'_>, Problem> {
        let waiting = Waiting(count);
        match count.fetch_add(1, Ordering::Relaxed) < MOST_WAITING {
            true => Ok(waiting),
            false => Err(Problem::busy("too many questions at once", "ask again when others have their answers")),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn broke() -> Problem {
    Problem::failed("the planner broke on this recipe").hint("this is a defect of plimsoll: please report it")
}

/// Questions with the same key have the same answer. Ways out are edits of what was written; a plan alone depends on
/// nothing but what the recipe comes to.
fn key(kind: Kind, question: &Checked, device: &Device) -> Key {
    let mut hash = Sha256::new();
    let mut add = |part: &str| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    add(&format!("{kind:?} {} {} {}", question.quick, device.name, device.free_bytes));
    let is_seen = |key: &str| kind != Kind::Plan || !UNSEEN.contains(&key);
    for (key, value) in question.settings.iter().filter(|(key, _)| is_seen(key)) {
        add(key);
        add(&value.to_string());
    }
    // Another file of the same name is other data.
    stamps(question).iter().for_each(|stamp| add(stamp));
    if !(question.quick && kind == Kind::Plan) {
        [&question.text].into_iter().chain(&question.set).for_each(|written| add(written));
    }
    hash.finalize().into()
}

fn found(outlooks: &Outlooks, kind: Kind, question: &Checked, device: &Device) -> Answer {
    let Checked { recipe, draft, quick, .. } = question;
    match kind {
        Kind::Plan if *quick => outlooks.outlook(recipe, device).map(|plan| Found::Plan(plan.into())).map_err(refused),
        Kind::Plan => outlooks.outlook_with_ladder(draft, device).map(|plan| Found::Plan(plan.into())).map_err(refused),
        Kind::Timeline => json(&Timeline::of_recipe(recipe, device).map_err(refused)?).map(Found::Json),
        Kind::Cards => json(&plimsoll::on_every_card(recipe).map_err(refused)?).map(Found::Json),
        Kind::Largest => {
            let largest = plimsoll::largest_batch(draft, device, LARGEST_BATCH).map_err(refused)?;
            json(&Largest::of(largest)).map(Found::Json)
        }
        Kind::LargestOnCards => {
            let rows = plimsoll::largest_on_every_card(draft).map_err(refused)?;
            json(&rows.iter().map(LargestOnCard::of).collect::<Vec<_>>()).map(Found::Json)
        }
    }
}

/// What was found, for the run that was asked about.
fn told(found: Found, asked: &Prepared, allowed: &Allowed) -> Result<Bytes, Problem> {
    let question = &asked.question;
    let mut report = match found {
        Found::Json(json) => return Ok(json),
        Found::Plan(report) => PlanReport::clone(&report).over_epochs_of(&question.recipe),
    };
    // What stands in the way of a training.
    let unready = asked.missing.clone().or_else(|| unusable(question, &report, allowed));
    report.data_problem = report.data_problem.map(|problem| allowed.without_folders(&problem));
    let seconds = report.predicted_step_ms / 1e3;
    // Where the server keeps its files is nobody's business.
    let shown = question.settings.iter().filter(|(key, _)| *key != "dir");
    json(&Plan {
        steps: report.steps,
        epoch_seconds: report.steps_per_epoch.map(|steps| steps as f64 * seconds),
        run_seconds: report.steps.map(|steps| steps as f64 * seconds),
        samples_per_s: report.effective_batch as f64 / seconds.max(1e-9),
        name: &question.recipe.name,
        unready,
        settings: shown.map(|(key, value)| (key.as_str(), value)).collect(),
        bounds: bounds(&question.recipe),
        report: &report,
    })
}

/// What a look at the data found wrong with it.
fn unusable(question: &Checked, report: &PlanReport, allowed: &Allowed) -> Option<Finding> {
    report.data_problem.as_ref().map(|problem| unusable_data(question, problem, allowed))
}

fn json<T: Serialize>(value: &T) -> Result<Bytes, Problem> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|error| Problem::failed(error.to_string()))
}

fn refused(error: PlanFailure) -> Problem {
    Problem::explained(&error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planning::Question;
    use serde_json::json;

    #[test]
    fn who_asks_for_one_plan_does_not_wait_for_those_who_ask_for_many() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let is_first = runtime.block_on(one_beside_many());
        // Nobody waits for the many to be done.
        runtime.shutdown_background();
        assert!(is_first, "one plan came behind hundreds");
    }

    /// Whether one plan is there before any of more long questions than there are cores.
    async fn one_beside_many() -> bool {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let planner = Planner::start(Allowed::new(root.clone(), root));
        let asked = |kind, recipe: &str, set: String| {
            let question = json!({"recipe": recipe, "device": "rtx-4090", "quick": true, "set": [set]});
            let question: Question = serde_json::from_value(question).unwrap();
            planner.prepare(kind, question.check(&planner.allowed).unwrap()).unwrap()
        };
        let large = include_str!("../../../../recipes/encoder.toml");
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let long: Vec<_> = (0..=cores)
            .map(|seed| {
                let asked = asked(Kind::LargestOnCards, large, format!("train.seed={seed}"));
                let planner = planner.clone();
                tokio::spawn(async move { planner.answer(asked).await.map(|_| ()) })
            })
            .collect();
        while planner.long_waiting.load(Ordering::Relaxed) <= cores {
            tokio::task::yield_now().await;
        }
        let short = asked(Kind::Plan, include_str!("../../../../recipes/quickstart.toml"), "train.seed=1".into());
        planner.answer(short).await.unwrap();
        !long.iter().any(tokio::task::JoinHandle::is_finished)
    }
}
