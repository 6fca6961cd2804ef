//! Studies of the search, as they lie beside the runs: `NAME/study.json`, what `plimsoll study --json` prints.

use crate::folders::{RunId, read_some};
use crate::problem::Problem;
use crate::state::Shared;
use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use serde_json::Value;
use std::fs;
use utoipa::ToSchema;

const LARGEST: u64 = 32 << 20;

/// A study in one row.
#[derive(Serialize, ToSchema)]
pub(crate) struct StudyRow {
    name: RunId,
    /// Trials by state.
    #[schema(value_type = Object)]
    counts: Value,
    /// Numbers of the best trials.
    #[schema(value_type = Vec<Object>)]
    best: Value,
}

/// Studies of the search
#[utoipa::path(get, path = "/studies", tag = "studies", responses((status = 200, description = "One row each", body = Vec<StudyRow>)))]
pub(super) async fn list(State(state): State<Shared>) -> Result<Json<Vec<StudyRow>>, Problem> {
    let rows = tokio::task::spawn_blocking(move || rows(&state)).await;
    rows.map(Json).map_err(|_| Problem::failed("the studies cannot be read"))
}

/// One study with its trials
#[utoipa::path(get, path = "/studies/{name}", tag = "studies", params(("name" = RunId, Path, description = "The study's name")),
    responses((status = 200, description = "As `plimsoll study --json`", body = Object)))]
pub(super) async fn one(State(state): State<Shared>, Path(name): Path<String>) -> Result<Json<Value>, Problem> {
    let missing = || Problem::not_found("there is no such study");
    let name = RunId::parse(&name).ok_or_else(missing)?;
    let read = tokio::task::spawn_blocking(move || read(&state, &name)).await;
    read.ok().flatten().map(Json).ok_or_else(missing)
}

fn rows(state: &Shared) -> Vec<StudyRow> {
    let entries = fs::read_dir(state.folders.root()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| RunId::parse(entry.file_name().to_str()?));
    let row = |name: RunId| {
        let study = read(state, &name)?;
        let part = |key: &str, empty: Value| study.get(key).cloned().unwrap_or(empty);
        Some(StudyRow {
            name,
            counts: part("counts", Value::Object(Default::default())),
            best: part("best", Value::Array(Vec::new())),
        })
    };
    names.filter_map(row).collect()
}

fn read(state: &Shared, name: &RunId) -> Option<Value> {
    let root = state.folders.root();
    let path = root.join(name.as_str()).join("study.json").canonicalize().ok().filter(|path| path.starts_with(root))?;
    let (bytes, length) = read_some(&path, 0, LARGEST).ok()?;
    if length > LARGEST { None } else { serde_json::from_slice(&bytes).ok() }
}
