//! The page's own addresses, and what machines look at.

use crate::assets;
use crate::folders::{RunId, unix_seconds};
use crate::guard::{Peer, enter_by_link};
use crate::problem::{Named, Problem};
use crate::state::Shared;
use axum::Router;
use axum::extract::{ConnectInfo, RawQuery, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use plimsoll_track::{Exposed, OPENMETRICS_TYPE, RunFacts, openmetrics};
use std::path::PathBuf;
use std::time::SystemTime;

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/", get(index))
        .route("/ml-management", get(index))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/{*file}", get(file))
        .method_not_allowed_fallback(refused)
}

async fn refused(method: Method) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not for this address"))
}

/// The page; with the token in the link, the way in first.
async fn index(
    State(state): State<Shared>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    match query.as_deref().and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("token="))) {
        Some(shown) => enter_by_link(&state, peer, shown),
        None => assets::serve("index.html", &headers),
    }
}

async fn file(Named(name): Named<String>, headers: HeaderMap) -> Result<Response, Problem> {
    assets::serve(&name, &headers)
}

async fn health() -> Response {
    let body = serde_json::json!({"status": "ok", "version": env!("CARGO_PKG_VERSION")});
    axum::Json(body).into_response()
}

/// Runs that were heard of longer ago than this are history, not something to scrape.
const FRESH_S: u64 = 24 * 3600;
const MOST_EXPOSED: usize = 200;

/// OpenMetrics: runs of the last day, and the queue.
async fn metrics(State(state): State<Shared>) -> Result<Response, Problem> {
    let text = tokio::task::spawn_blocking(move || exposition(&state)).await;
    let text = text.map_err(|_| Problem::failed("the runs cannot be read"))?;
    Ok(([(header::CONTENT_TYPE, OPENMETRICS_TYPE)], text).into_response())
}

fn exposition(state: &Shared) -> String {
    let now = unix_seconds(SystemTime::now());
    let fresh = |folder: &PathBuf| now.saturating_sub(state.folders.times(folder).updated) < FRESH_S;
    let found = state.folders.ids().into_iter().filter_map(|id| Some((state.folders.find(&id).filter(fresh)?, id)));
    let facts: Vec<(RunId, RunFacts)> =
        found.take(MOST_EXPOSED).map(|(folder, id)| (id.clone(), state.folders.facts(&id, &folder))).collect();
    let exposed: Vec<Exposed<'_>> =
        facts.iter().map(|(id, facts)| Exposed { run: id.as_str(), facts, components: &[] }).collect();
    let jobs = state.queue.jobs();
    let count = |name: &'static str| (name, jobs.iter().filter(|job| job.state_name() == name).count() as u64);
    openmetrics(&exposed, &["queued", "started", "ended"].map(count))
}
