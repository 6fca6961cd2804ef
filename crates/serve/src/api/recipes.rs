//! Recipes, presets and keys: what a form is made from.

use crate::planning::{RecipeEntry, recipes};
use crate::problem::Problem;
use crate::state::Shared;
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use plimsoll::reference;
use serde::Serialize;
use std::sync::OnceLock;

/// Recipes to start from
///
/// Those that come with plimsoll, and those in the data folder.
#[utoipa::path(get, path = "/recipes", tag = "recipes", responses((status = 200, description = "Each with its text", body = Vec<RecipeEntry>)))]
pub(super) async fn list(State(state): State<Shared>) -> Result<Json<Vec<RecipeEntry>>, Problem> {
    let found = tokio::task::spawn_blocking(move || recipes(state.planner.allowed.data())).await;
    found.map(Json).map_err(|_| Problem::failed("the data folder cannot be read"))
}

/// Models that a recipe can name
#[utoipa::path(get, path = "/presets", tag = "recipes",
    responses((status = 200, description = "With their sizes", body = Vec<Object>, content_type = "application/json")))]
pub(super) async fn presets() -> Result<Response, Problem> {
    static PRESETS: Kept = Kept::new();
    kept(&PRESETS, || Ok(plimsoll::presets()))
}

/// Every key of a recipe
///
/// What it may be, its default, and what it means.
#[utoipa::path(get, path = "/keys", tag = "recipes",
    responses((status = 200, description = "As `plimsoll keys --json`", body = Vec<Object>, content_type = "application/json")))]
pub(super) async fn keys() -> Result<Response, Problem> {
    static KEYS: Kept = Kept::new();
    kept(&KEYS, || Ok(reference::keys()?))
}

/// The JSON schema of a recipe
#[utoipa::path(get, path = "/schema", tag = "recipes",
    responses((status = 200, description = "Draft 2020-12", body = Object, content_type = "application/json")))]
pub(super) async fn schema() -> Result<Response, Problem> {
    static SCHEMA: Kept = Kept::new();
    kept(&SCHEMA, || Ok(reference::schema(&reference::keys()?)))
}

/// What does not change while the server runs is made once.
type Kept = OnceLock<Result<Bytes, Problem>>;

fn kept<T: Serialize>(place: &'static Kept, make: impl FnOnce() -> Result<T, Problem>) -> Result<Response, Problem> {
    let bytes = place.get_or_init(|| {
        let made = serde_json::to_vec(&make()?).map_err(|error| Problem::failed(error.to_string()))?;
        Ok(made.into())
    });
    Ok(([(header::CONTENT_TYPE, "application/json")], bytes.clone()?).into_response())
}
