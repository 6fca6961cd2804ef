//! This machine and the cards of the catalog.

use crate::glance::glance;
use crate::problem::Problem;
use crate::state::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use plimsoll::catalog;
use serde::Serialize;
use utoipa::ToSchema;

/// This machine: what it has, what is free, who holds the rest
#[utoipa::path(get, path = "/devices", tag = "devices",
    responses((status = 200, description = "The CPU, the cards, and what is missing to use one", body = Object, content_type = "application/json")))]
pub(super) async fn here() -> Result<Response, Problem> {
    let told = tokio::task::spawn_blocking(|| serde_json::to_vec(&*glance())).await;
    let bytes = told.map_err(|_| Problem::failed("the system does not answer"))?;
    let bytes = bytes.map_err(|error| Problem::failed(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], bytes).into_response())
}

/// Cards that plans can be made for
#[utoipa::path(get, path = "/catalog", tag = "devices",
    responses((status = 200, description = "By memory", body = Vec<Object>, content_type = "application/json")))]
pub(super) async fn catalog_cards() -> Result<Response, Problem> {
    let bytes = serde_json::to_vec(catalog()).map_err(|error| Problem::failed(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], bytes).into_response())
}

/// What this server is and may do.
#[derive(Serialize, ToSchema)]
pub(crate) struct ServerFacts {
    version: &'static str,
    read_only: bool,
    /// Whether a token is asked for.
    token: bool,
    /// Names of the folders that clients reach into.
    runs: String,
    data: String,
}

/// The server itself
#[utoipa::path(get, path = "/server", tag = "server", responses((status = 200, description = "What it may do", body = ServerFacts)))]
pub(super) async fn server(State(state): State<Shared>) -> Json<ServerFacts> {
    Json(ServerFacts {
        version: env!("CARGO_PKG_VERSION"),
        read_only: state.options.read_only,
        token: !state.gate.is_open(),
        runs: state.options.runs.display().to_string(),
        data: state.options.data.display().to_string(),
    })
}
