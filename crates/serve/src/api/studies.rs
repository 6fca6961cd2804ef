//! Studies of the search: what `plimsoll study --json` prints, as they grow.

use crate::folders::Listed;
use crate::problem::{Named, Problem};
use crate::state::Shared;
use axum::Json;
use axum::extract::State;
use plimsoll_tune::report::StudyReport;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A study in one row.
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct StudyRow {
    /// Its name, also in addresses; with its file's, where several files have one of that name.
    name: String,
    /// Why it cannot be read; then nothing else is known about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// What was sought.
    objectives: Vec<String>,
    /// Trials by state.
    counts: BTreeMap<&'static str, usize>,
    /// The best trial, or all that none is better than.
    best: Vec<BestTrial>,
    /// From the first start to the last end.
    seconds: f64,
}

/// A trial that none is better than.
#[derive(Serialize, ToSchema)]
pub(crate) struct BestTrial {
    number: u64,
    /// One for each objective.
    values: Vec<f64>,
}

/// Studies of the search
#[utoipa::path(get, path = "/studies", tag = "studies", responses((status = 200, description = "One row each", body = Vec<StudyRow>)))]
pub(super) async fn list(State(state): State<Shared>) -> Result<Json<Vec<StudyRow>>, Problem> {
    let read = tokio::task::spawn_blocking(move || state.studies.all()).await;
    let found = read.map_err(|_| Problem::failed("the studies cannot be read"))?;
    Ok(Json(found.into_iter().map(row).collect()))
}

/// One study with its trials
#[utoipa::path(get, path = "/studies/{name}", tag = "studies", params(("name" = String, Path, description = "The study's name, or that of its folder")),
    responses((status = 200, description = "As `plimsoll study --json`", body = Object)))]
pub(super) async fn one(State(state): State<Shared>, Named(name): Named<String>) -> Result<Json<Value>, Problem> {
    let missing = || Problem::not_found("there is no such study").hint("`plimsoll tune` makes one");
    let read = tokio::task::spawn_blocking(move || state.studies.find(&name)).await;
    let listed = read.map_err(|_| Problem::failed("the study cannot be read"))?.ok_or_else(missing)?;
    let report = listed.found.map_err(unreadable)?;
    serde_json::to_value(&*report).map(Json).map_err(|error| Problem::failed(error.to_string()))
}

/// The cause, and what follows `hint:` in it.
fn unreadable(problem: String) -> Problem {
    let (cause, hint) = problem.split_once("\nhint: ").unwrap_or((&problem, "`plimsoll study` says more about it"));
    Problem::conflict(cause).hint(hint)
}

fn row(study: Listed) -> StudyRow {
    let name = study.name;
    match study.found {
        Ok(report) => row_of(name, &report),
        Err(problem) => StudyRow { name, problem: Some(problem), ..StudyRow::default() },
    }
}

fn row_of(name: String, report: &StudyReport) -> StudyRow {
    let best = |&number: &u64| {
        let values = report.trial(number)?.values.clone()?;
        Some(BestTrial { number, values: values.into_iter().filter(|value| value.is_finite()).collect() })
    };
    StudyRow {
        name,
        problem: None,
        objectives: report.objectives.clone(),
        counts: report.counts.clone(),
        best: report.best.iter().filter_map(best).collect(),
        seconds: report.seconds,
    }
}
