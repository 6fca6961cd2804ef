//! The planner behind the API: a question goes to a thread of its own when one is free, and its answer is remembered.

use super::cache::{Answer, Cache, Key};
use super::{Allowed, Checked, Devices};
use crate::problem::Problem;
use crate::settings::flat;
use axum::body::Bytes;
use plimsoll::{Device, PlanFailure, PlanReport, Recipe, Timeline};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use tokio::sync::Semaphore;

/// Questions that wait for a thread; beyond, clients are asked to come back.
const MOST_WAITING: usize = 256;
/// Batches up to this are tried for the largest that fits.
pub(crate) const LARGEST_BATCH: usize = 512;

/// What is asked about a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plan,
    Timeline,
    Cards,
    Largest,
}

pub(crate) struct Planner {
    pub allowed: Allowed,
    pub devices: Devices,
    cache: Cache,
    threads: Semaphore,
    waiting: AtomicUsize,
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
    /// Every setting of the recipe, defaults filled in, by its dotted key.
    settings: BTreeMap<String, Value>,
}

impl Planner {
    pub(crate) fn new(allowed: Allowed) -> Planner {
        Planner {
            allowed,
            devices: Devices::default(),
            cache: Cache::default(),
            threads: Semaphore::new(thread::available_parallelism().map_or(1, usize::from)),
            waiting: AtomicUsize::new(0),
        }
    }

    /// The answer as JSON.
    pub(crate) async fn answer(self: &Arc<Planner>, kind: Kind, question: Checked) -> Answer {
        let device = self.devices.find(&question.device)?;
        let cell = self.cache.cell(key(kind, &question, &device));
        if let Some(answer) = cell.get() {
            return answer.clone();
        }
        let _waiting = Waiting::enter(&self.waiting)?;
        cell.get_or_init(|| self.work(move || answer(kind, &question, &device))).await.clone()
    }

    /// Runs on a thread for blocking work, as many at a time as there are cores.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let _permit = self.threads.acquire().await.map_err(|_| Problem::busy("the server is stopping"))?;
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
            Err(Problem::failed("the planner broke on this recipe")
                .hint("this is a defect of plimsoll: please report it"))
        })
    }

    /// One step of the plan that a run was started with.
    pub(crate) async fn timeline_of_run(&self, folder: PathBuf) -> Result<Timeline, Problem> {
        let _waiting = Waiting::enter(&self.waiting)?;
        self.work(move || Timeline::of_run(&folder).map_err(|error| Problem::explained(&error))).await
    }

    /// The plan itself, to start a training by.
    pub(crate) async fn report(&self, question: Checked) -> Result<PlanReport, Problem> {
        let device = self.devices.find(&question.device)?;
        let _waiting = Waiting::enter(&self.waiting)?;
        self.work(move || plimsoll::outlook(&question.recipe, &device).map_err(refused)).await
    }
}

/// One more waits, as long as this lives.
struct Waiting<'a>(&'a AtomicUsize);

impl Waiting<'_> {
    fn enter(count: &AtomicUsize) -> Result<Waiting<'_>, Problem> {
        let waiting = Waiting(count);
        match count.fetch_add(1, Ordering::Relaxed) < MOST_WAITING {
            true => Ok(waiting),
            false => Err(Problem::busy("too many questions at once")),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn key(kind: Kind, question: &Checked, device: &Device) -> Key {
    let mut hash = Sha256::new();
    let parts = [format!("{kind:?} {}", question.quick), device.name.clone(), device.free_bytes.to_string()];
    for part in parts.iter().chain([&question.text, &question.name]).chain(&question.set) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

fn answer(kind: Kind, question: &Checked, device: &Device) -> Answer {
    match kind {
        Kind::Plan => plan(question, device),
        Kind::Timeline => json(&Timeline::of_recipe(&question.recipe, device).map_err(refused)?),
        Kind::Cards => json(&plimsoll::on_every_card(&question.recipe).map_err(refused)?),
        Kind::Largest => {
            let largest = plimsoll::largest_batch(&question.draft, device, LARGEST_BATCH).map_err(refused)?;
            json(&serde_json::json!({"largest_batch": largest, "tried_up_to": LARGEST_BATCH}))
        }
    }
}

fn plan(question: &Checked, device: &Device) -> Answer {
    let report = match question.quick {
        true => plimsoll::outlook(&question.recipe, device),
        false => plimsoll::outlook_with_ladder(&question.draft, device),
    };
    let report = report.map_err(refused)?;
    let seconds = report.predicted_step_ms / 1e3;
    json(&Plan {
        steps: report.steps,
        epoch_seconds: report.steps_per_epoch.map(|steps| steps as f64 * seconds),
        run_seconds: report.steps.map(|steps| steps as f64 * seconds),
        samples_per_s: report.effective_batch as f64 / seconds.max(1e-9),
        name: &question.recipe.name,
        settings: settings(&question.recipe)?,
        report: &report,
    })
}

fn settings(recipe: &Recipe) -> Result<BTreeMap<String, Value>, Problem> {
    let table: toml::Table = toml::from_str(&recipe.to_toml()?).map_err(|error| Problem::failed(error.to_string()))?;
    let mut leaves = flat(serde_json::to_value(table).unwrap_or_default());
    // Where the server keeps its files is nobody's business.
    leaves.remove("dir");
    Ok(leaves)
}

fn json<T: Serialize>(value: &T) -> Answer {
    serde_json::to_vec(value).map(Bytes::from).map_err(|error| Problem::failed(error.to_string()))
}

fn refused(error: PlanFailure) -> Problem {
    Problem::explained(&error)
}
