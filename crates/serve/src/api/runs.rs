//! Runs: what they are, started, stopped and taken up again.

use super::reason::Ending;
use crate::folders::{Checkpoint, RunId, Summary, Thinned, Times, read_some};
use crate::jobs::{Job, JobState, Submission};
use crate::planning::{Checked, Question};
use crate::problem::{Asked, Named, Problem, Sent};
use crate::settings::{differing, flat};
use crate::state::{Shared, State as Server};
use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use plimsoll::{Device, Recipe, Timeline};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use utoipa::{IntoParams, ToSchema};

/// A run in one row.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Run {
    id: RunId,
    /// queued, starting, running, stopping, finished, interrupted or failed
    state: &'static str,
    #[serde(flatten)]
    summary: Summary,
    #[serde(flatten)]
    times: Times,
    /// The process that trains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// Why it failed, or what became of it where it was ended at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Whether there is something to go on from.
    resumable: bool,
}

/// The folder of a run that a client names.
pub(super) fn found(state: &Server, id: &str) -> Result<(RunId, PathBuf), Problem> {
    let id = RunId::parse(id).ok_or_else(no_such_run)?;
    let folder = state.folders.find(&id).ok_or_else(no_such_run)?;
    Ok((id, folder))
}

fn no_such_run() -> Problem {
    Problem::not_found("there is no such run").field("id").hint("GET /runs lists those that there are")
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Problem::failed("the run cannot be read"))
}

/// Which of all runs.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Part {
    /// So many of the latest are passed over.
    #[serde(default)]
    #[param(minimum = 0, default = 0)]
    offset: usize,
    /// Rows at most; without it, all that are left.
    #[param(minimum = 0)]
    limit: Option<usize>,
}

/// How many runs there are, however many are listed.
const TOTAL: HeaderName = HeaderName::from_static("x-total-count");

/// Every run, the latest first
#[utoipa::path(get, path = "/runs", tag = "runs", params(Part),
    responses((status = 200, description = "One row each", body = Vec<Run>,
        headers(("x-total-count" = usize, description = "How many there are, however many are listed")))))]
pub(super) async fn list(
    State(state): State<Shared>,
    Asked(part): Asked<Part>,
) -> Result<([(HeaderName, HeaderValue); 1], Json<Vec<Run>>), Problem> {
    let runs = blocking(move || all(&state)).await?;
    let total = [(TOTAL, HeaderValue::from(runs.len()))];
    let listed = runs.into_iter().skip(part.offset).take(part.limit.unwrap_or(usize::MAX));
    Ok((total, Json(listed.collect())))
}

fn all(state: &Server) -> Vec<Run> {
    let mut jobs: HashMap<RunId, Job> = state.queue.jobs().into_iter().map(|job| (job.id.clone(), job)).collect();
    let ids = state.folders.ids();
    let mut runs: Vec<Run> =
        ids.into_iter().filter_map(|id| Some(row(state, &id, &state.folders.find(&id)?, jobs.remove(&id)))).collect();
    // Jobs that have no folder yet, or died before they had one; those that were taken back before they began are gone.
    let left = jobs.into_values().filter(|job| job.began.is_some() || !job.is_over());
    runs.extend(left.map(|job| without_folder(state, job)));
    runs.sort_by(|a, b| b.times.created.cmp(&a.times.created).then_with(|| b.id.numbered().cmp(&a.id.numbered())));
    runs
}

fn row(state: &Server, id: &RunId, folder: &std::path::Path, job: Option<Job>) -> Run {
    let (summary, times) = (state.folders.summary(id, folder), state.folders.times(folder));
    let pid = state.folders.holder(folder);
    let ending = Ending::of(id, job.as_ref(), &summary, times);
    let goes_on = activity(job.as_ref(), pid.is_some(), &summary);
    let reason = if goes_on.is_none() { ending.reason(state) } else { None };
    let name = goes_on.unwrap_or_else(|| ending.name());
    let resumable =
        goes_on.is_none() && folder.join("recipe.toml").is_file() && !(name == "finished" && summary.is_done());
    Run { id: id.clone(), state: name, times, pid, reason, resumable, summary }
}

fn without_folder(state: &Server, job: Job) -> Run {
    let summary = Summary::default();
    let times = Times { created: job.asked, updated: job.began.unwrap_or(job.asked) };
    let ending = Ending::of(&job.id, Some(&job), &summary, times);
    let goes_on = activity(Some(&job), false, &summary);
    let reason = if goes_on.is_none() { ending.reason(state) } else { None };
    let name = goes_on.unwrap_or_else(|| ending.name());
    Run { state: name, times, pid: None, reason, resumable: false, summary, id: job.id }
}

/// What a run is at, if it is not at rest. The job knows what was asked, the lock who trains.
fn activity(job: Option<&Job>, held: bool, summary: &Summary) -> Option<&'static str> {
    match job {
        Some(job) if job.state == JobState::Queued && !held => Some("queued"),
        Some(job) if job.stopping && (held || job.is_alive()) => Some("stopping"),
        Some(job) if job.is_alive() && summary.step == 0 => Some("starting"),
        _ if held => Some("running"),
        // The process is gone or about to go, and its end is not heard yet.
        Some(job) if job.is_alive() && summary.end.is_none() => Some("running"),
        _ => None,
    }
}

/// Seconds that running trainings expect to take yet, by their own word.
pub(super) fn remaining(state: &Server) -> HashMap<RunId, f64> {
    let running = state.queue.jobs().into_iter().filter(|job| job.state == JobState::Started);
    let told = |job: Job| {
        let folder = state.folders.find(&job.id)?;
        Some((job.id.clone(), state.folders.summary(&job.id, &folder).remaining_s?))
    };
    running.filter_map(told).collect()
}

/// One run
#[utoipa::path(get, path = "/runs/{id}", tag = "runs", params(("id" = RunId, Path, description = "The run's name")),
    responses((status = 200, description = "What is known about it", body = Run)))]
pub(super) async fn one(State(state): State<Shared>, Named(id): Named<String>) -> Result<Json<Run>, Problem> {
    blocking(move || known(&state, &id)).await?.map(Json)
}

fn known(state: &Server, id: &str) -> Result<Run, Problem> {
    let job = RunId::parse(id).and_then(|id| state.queue.job(&id));
    match (found(state, id), job) {
        (Ok((id, folder)), job) => Ok(row(state, &id, &folder, job)),
        (Err(_), Some(job)) => Ok(without_folder(state, job)),
        (Err(problem), None) => Err(problem),
    }
}

/// How many points to draw.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Points {
    /// Rows at most, about; spikes are kept.
    #[serde(default = "usual_points")]
    #[param(minimum = 2, maximum = 200000, default = 4000)]
    points: usize,
}

const FEWEST_POINTS: usize = 2;
const MOST_POINTS: usize = 200_000;

fn usual_points() -> usize {
    4000
}

/// The curves of a run
///
/// Every number of steps, evaluations and devices as columns, thinned; `offset` is where the stream of events goes on.
#[utoipa::path(get, path = "/runs/{id}/curves", tag = "runs", params(("id" = RunId, Path, description = "The run's name"), Points),
    responses((status = 200, description = "Columns by name", body = Thinned)))]
pub(super) async fn curves(
    State(state): State<Shared>,
    Named(id): Named<String>,
    Asked(Points { points }): Asked<Points>,
) -> Result<Json<Thinned>, Problem> {
    if !(FEWEST_POINTS..=MOST_POINTS).contains(&points) {
        return Err(Problem::bad("points", format!("points: {FEWEST_POINTS} to {MOST_POINTS}")));
    }
    let read = move || {
        let (id, folder) = found(&state, &id)?;
        let curves = state.folders.curves(&id, &folder, points);
        curves.map_err(|cause| Problem::failed(format!("the events cannot be read: {cause}")))
    };
    blocking(read).await?.map(Json)
}

/// Which part of a log.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LogRange {
    /// Bytes from the start; without it, the end.
    from: Option<u64>,
}

/// A piece of text and where it stands.
#[derive(Serialize, ToSchema)]
pub(crate) struct LogPart {
    text: String,
    /// Where it starts.
    from: u64,
    /// Where to go on.
    next: u64,
}

const LOG_BYTES: u64 = 64 << 10;

/// What a run said to its terminal
#[utoipa::path(get, path = "/runs/{id}/log", tag = "runs", params(("id" = RunId, Path, description = "The run's name"), LogRange),
    responses((status = 200, description = "At most 64 KiB", body = LogPart)))]
pub(super) async fn log(
    State(state): State<Shared>,
    Named(id): Named<String>,
    Asked(part): Asked<LogRange>,
) -> Result<Json<LogPart>, Problem> {
    let missing = || Problem::not_found("there is no log of this run").hint("runs that are started here have one");
    if part.from.is_some_and(|from| i64::try_from(from).is_err()) {
        return Err(Problem::bad("from", format!("from: 0 to {}", i64::MAX)));
    }
    let id = RunId::parse(&id).ok_or_else(missing)?;
    let path = state.queue.log(&id);
    let read = blocking(move || {
        let end = std::fs::metadata(&path)?.len().saturating_sub(LOG_BYTES);
        let from = part.from.unwrap_or(end);
        read_some(&path, from, LOG_BYTES).map(|bytes| (bytes, from))
    });
    let (bytes, from) = read.await?.map_err(|_| missing())?;
    let next = from.saturating_add(bytes.len() as u64);
    Ok(Json(LogPart { text: String::from_utf8_lossy(&bytes).into_owned(), from, next }))
}

/// The resolved recipe of a run
#[utoipa::path(get, path = "/runs/{id}/recipe", tag = "runs", params(("id" = RunId, Path, description = "The run's name")),
    responses((status = 200, description = "TOML", content_type = "text/plain", body = String)))]
pub(super) async fn recipe(State(state): State<Shared>, Named(id): Named<String>) -> Result<Response, Problem> {
    let read = move || {
        let (_, folder) = found(&state, &id)?;
        let read = read_some(&folder.join("recipe.toml"), 0, 1 << 20);
        read.map_err(|_| {
            Problem::not_found("this run has no recipe yet").hint("it is written when the training begins")
        })
    };
    let bytes = blocking(read).await??;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], bytes).into_response())
}

/// One step of a run's plan as a map
#[utoipa::path(get, path = "/runs/{id}/plan", tag = "runs", params(("id" = RunId, Path, description = "The run's name")),
    responses((status = 200, description = "Every buffer with its address, size and lifetime", body = Object)))]
pub(super) async fn timeline(State(state): State<Shared>, Named(id): Named<String>) -> Result<Json<Timeline>, Problem> {
    let (_, folder) = found(&state, &id)?;
    let read = state.planner.timeline_of_run(folder).await;
    // Whatever is wrong with a stored plan, this client did not write it.
    read.map(Json).map_err(|problem| match problem.status {
        503 => problem,
        _ => Problem { status: 404, title: "Not Found".into(), ..problem },
    })
}

/// The checkpoints of a run, the latest first
#[utoipa::path(get, path = "/runs/{id}/checkpoints", tag = "runs", params(("id" = RunId, Path, description = "The run's name")),
    responses((status = 200, description = "Names, steps and sizes", body = Vec<Checkpoint>)))]
pub(super) async fn checkpoints(
    State(state): State<Shared>,
    Named(id): Named<String>,
) -> Result<Json<Vec<Checkpoint>>, Problem> {
    blocking(move || found(&state, &id).map(|(_, folder)| state.folders.checkpoints(&folder))).await?.map(Json)
}

/// A run that was asked for.
#[derive(Serialize, ToSchema)]
pub(crate) struct Accepted {
    id: RunId,
}

/// Starts a training
///
/// It is planned first: what does not fit is refused, and a recipe whose data is not here, with the key that names it. It
/// starts when there is room for its bytes.
#[utoipa::path(post, path = "/runs", tag = "runs", request_body = Question,
    responses((status = 201, description = "It is in the queue", body = Accepted)))]
pub(super) async fn start(State(state): State<Shared>, Sent(question): Sent<Question>) -> Result<Response, Problem> {
    let asked = state.clone();
    let (checked, device) = blocking(move || to_start(&asked, &question)).await??;
    let name = runs_on(&device)?;
    let (bytes, seconds) = fitting(&state, checked.clone(), device).await?;
    let pinned = checked.leaves_budget_open() && state.queue.shares(&name);
    let submission = Submission {
        name: checked.recipe.name,
        text: checked.text,
        set: checked.set,
        device: name,
        bytes,
        pinned,
        seconds,
    };
    let queue = state.clone();
    let job = blocking(move || {
        let job = queue.queue.submit(submission);
        queue.queue.tick();
        job
    });
    accepted(&job.await??)
}

/// What is to be trained, and where.
fn to_start(state: &Server, question: &Question) -> Result<(Checked, Device), Problem> {
    let checked = question.check(&state.planner.allowed)?;
    refuse_long_name(&checked.recipe.name)?;
    let device = state.planner.devices.find(&checked.device)?;
    Ok((checked, device))
}

fn accepted(job: &Job) -> Result<Response, Problem> {
    Ok((StatusCode::CREATED, Json(Accepted { id: job.id.clone() })).into_response())
}

/// With its number it is still the name of a folder.
const LONGEST_NAME: usize = 100;

fn refuse_long_name(name: &str) -> Result<(), Problem> {
    match name.len() <= LONGEST_NAME {
        true => Ok(()),
        false => Err(Problem::bad("name", format!("name: it has {} bytes, {LONGEST_NAME} are the most", name.len()))
            .hint("a run's name is that of a folder, and its number follows")),
    }
}

/// What `--device` is called with.
fn runs_on(device: &Device) -> Result<String, Problem> {
    match device.facts().is_some() {
        true => Ok(device.name.split(' ').next().unwrap_or("cpu").into()),
        false => Err(Problem::bad("device", format!("device: {} is a card of the catalog and not here", device.name))
            .hint("plan for it, and train on auto, cpu or cuda:N")),
    }
}

/// Bytes and seconds of a plan that fits.
async fn fitting(state: &Shared, checked: Checked, device: Device) -> Result<(u64, Option<f64>), Problem> {
    let report = state.planner.report(checked, device).await?;
    if !report.fits {
        let needed = plimsoll::format_bytes(report.smallest_budget_bytes.unwrap_or(report.arena_bytes));
        let budget = plimsoll::format_bytes(report.budget_bytes);
        return Err(Problem::conflict(format!(
            "it does not fit: the smallest plan needs {needed}, the budget is {budget}"
        ))
        .field("memory")
        .hint("POST /plan lists the ways out"));
    }
    let seconds = report.steps.map(|steps| steps as f64 * report.predicted_step_ms / 1e3);
    Ok((report.arena_bytes + report.reserve_bytes, seconds))
}

/// How to stop.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stop {
    /// At once, without a checkpoint.
    #[serde(default)]
    now: bool,
}

/// Stops a run
///
/// A training writes a checkpoint and leaves; one that waits leaves the queue.
#[utoipa::path(post, path = "/runs/{id}/stop", tag = "runs", params(("id" = RunId, Path, description = "The run's name")), request_body = Stop,
    responses((status = 202, description = "It was asked to", body = Accepted)))]
pub(super) async fn stop(
    State(state): State<Shared>,
    Named(id): Named<String>,
    Sent(stop): Sent<Stop>,
) -> Result<Response, Problem> {
    let id = RunId::parse(&id).ok_or_else(no_such_run)?;
    let asked = id.clone();
    blocking(move || stopped(&state, &asked, stop.now)).await??;
    Ok((StatusCode::ACCEPTED, Json(Accepted { id })).into_response())
}

fn stopped(state: &Server, id: &RunId, now: bool) -> Result<(), Problem> {
    if state.queue.job(id).is_none() && state.folders.find(id).is_none() {
        return Err(no_such_run());
    }
    state.queue.stop(id, now)
}

/// Nothing more is said.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// Goes on with a run from its last checkpoint
#[utoipa::path(post, path = "/runs/{id}/resume", tag = "runs", params(("id" = RunId, Path, description = "The run's name")), request_body = Nothing,
    responses((status = 201, description = "It is in the queue", body = Accepted)))]
pub(super) async fn resume(
    State(state): State<Shared>,
    Named(id): Named<String>,
    Sent(Nothing {}): Sent<Nothing>,
) -> Result<Response, Problem> {
    let (id, folder) = found(&state, &id)?;
    let_it_go(&state, &id).await;
    accepted(&blocking(move || resumed(&state, &id, &folder)).await??)
}

fn resumed(state: &Server, id: &RunId, folder: &std::path::Path) -> Result<Job, Problem> {
    let summary = state.folders.summary(id, folder);
    refuse_to_resume(folder, summary.is_done())?;
    let device = summary.device.as_deref().and_then(|name| name.split(' ').next()).unwrap_or("auto");
    let device = state.planner.devices.find(device).or_else(|_| state.planner.devices.find("auto"))?;
    let bytes = summary.planned_peak_bytes.unwrap_or(0);
    let job = state.queue.resume(id, &runs_on(&device)?, bytes, summary.remaining_s)?;
    state.queue.tick();
    Ok(job)
}

/// What cannot be gone on with is said now, not by a training that fails in a while.
fn refuse_to_resume(folder: &std::path::Path, is_done: bool) -> Result<(), Problem> {
    let recipe = folder.join("recipe.toml");
    if !recipe.is_file() {
        return Err(Problem::conflict("this run had not begun").hint("start it anew"));
    }
    if is_done {
        return Err(Problem::conflict("this run is finished: nothing of it is left to do")
            .hint("start a new one with more epochs: GET /runs/{id}/recipe has its recipe"));
    }
    if let Some(name) =
        ["checkpoints", "events.jsonl", "run.lock"].into_iter().find(|name| folder.join(name).is_symlink())
    {
        return Err(Problem::conflict(format!("{name} of this run is a symbolic link: it is not written to"))
            .hint("put what it points to in its place"));
    }
    Recipe::load(&recipe, &[]).map(drop).map_err(|error| {
        let problem = Problem::from(error);
        Problem::conflict(format!("its recipe cannot be used: {}", problem.error))
            .hint("mend recipe.toml in its folder")
    })
}

/// How long a run that was asked to stop may take to write its checkpoint before who resumes it is sent away.
const LONGEST_GOODBYE: Duration = Duration::from_secs(30);

/// Waits while a run that was asked to stop is still at it: who stops and resumes at once means both.
async fn let_it_go(state: &Shared, id: &RunId) {
    let until = Instant::now() + LONGEST_GOODBYE;
    while leaves(state, id).await && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn leaves(state: &Shared, id: &RunId) -> bool {
    let (state, id) = (state.clone(), id.clone());
    let looked = blocking(move || state.queue.job(&id).is_some_and(|job| job.stopping && !job.is_over()));
    looked.await.unwrap_or(false)
}

/// Runs beside each other.
#[derive(Serialize, ToSchema)]
pub(crate) struct Comparison {
    /// Settings in which they differ: key → value of each run, null where it has none.
    settings: BTreeMap<String, Vec<serde_json::Value>>,
    runs: Vec<Run>,
    curves: Vec<Thinned>,
    /// Names that no run has, or none that has begun.
    unknown: Vec<String>,
}

const MOST_COMPARED: usize = 12;

/// Runs over each other
///
/// Their curves, and of their settings those that differ. Names that no run has are listed; the others are compared.
#[utoipa::path(get, path = "/compare", tag = "runs", params(("run" = Vec<RunId>, Query, description = "Up to 12 runs")),
    responses((status = 200, description = "In the order asked for", body = Comparison)))]
pub(super) async fn compare(
    State(state): State<Shared>,
    RawQuery(query): RawQuery,
) -> Result<Json<Comparison>, Problem> {
    let query = query.unwrap_or_default();
    let names: Vec<String> = form_urlencoded::parse(query.as_bytes())
        .filter(|(key, _)| key == "run")
        .map(|(_, value)| value.into_owned())
        .collect();
    if !(1..=MOST_COMPARED).contains(&names.len()) {
        return Err(Problem::bad("run", format!("run: name 1 to {MOST_COMPARED} runs to compare")));
    }
    blocking(move || compared(&state, &names)).await?.map(Json)
}

fn compared(state: &Server, names: &[String]) -> Result<Comparison, Problem> {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for name in names {
        match found(state, name) {
            Ok(run) => known.push(run),
            Err(_) => unknown.push(name.clone()),
        }
    }
    if known.is_empty() {
        return Err(Problem::not_found(format!("there are no such runs: {}", unknown.join(", "))).field("run"));
    }
    compared_among(state, &known, unknown)
}

fn compared_among(state: &Server, found: &[(RunId, PathBuf)], unknown: Vec<String>) -> Result<Comparison, Problem> {
    let runs = found.iter().map(|(id, folder)| row(state, id, folder, state.queue.job(id))).collect();
    let curves: Result<Vec<Thinned>, _> =
        found.iter().map(|(id, folder)| state.folders.curves(id, folder, usual_points())).collect();
    let curves = curves.map_err(|cause| Problem::failed(format!("the events cannot be read: {cause}")))?;
    let settings: Vec<BTreeMap<String, serde_json::Value>> = found.iter().map(|(_, folder)| settings(folder)).collect();
    Ok(Comparison { settings: differing(&settings), runs, curves, unknown })
}

/// The leaves of a run's recipe by their dotted keys.
fn settings(folder: &std::path::Path) -> BTreeMap<String, serde_json::Value> {
    let text = read_some(&folder.join("recipe.toml"), 0, 1 << 20).unwrap_or_default();
    let table: toml::Table = toml::from_str(&String::from_utf8_lossy(&text)).unwrap_or_default();
    let mut leaves = flat(serde_json::to_value(table).unwrap_or_default());
    leaves.remove("dir");
    leaves
}
