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
use std::sync::Arc;
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
    let query = query.unwrap_or_default();
    match form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "token") {
        Some((_, shown)) => Ok(enter_by_link(&state, peer, &headers, &shown)),
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

/// Runs that do not run, and were heard of longer ago than this, are history, not something to scrape.
const FRESH_S: u64 = 24 * 3600;
/// So many, the latest: and every one that runs, however many there are.
const MOST_EXPOSED: usize = 200;

/// OpenMetrics: runs that run, those of the last day, and the queue.
async fn metrics(State(state): State<Shared>) -> Result<Response, Problem> {
    let text = tokio::task::spawn_blocking(move || exposition(&state)).await;
    let text = text.map_err(|_| Problem::failed("the runs cannot be read"))?;
    Ok(([(header::CONTENT_TYPE, OPENMETRICS_TYPE)], text).into_response())
}

fn exposition(state: &Shared) -> String {
    let known: Vec<Known> = to_expose(state).into_iter().map(|found| found.known(state)).collect();
    let exposed: Vec<Exposed<'_>> = known.iter().map(Known::exposed).collect();
    let jobs = state.queue.jobs();
    let count = |name: &'static str| (name, jobs.iter().filter(|job| job.state_name() == name).count() as u64);
    openmetrics(&exposed, &["queued", "started", "ended"].map(count))
}

/// A run that may be exposed.
struct Found {
    id: RunId,
    folder: PathBuf,
    /// A process trains it.
    is_alive: bool,
    updated: u64,
}

impl Found {
    fn known(self, state: &Shared) -> Known {
        let facts = state.folders.facts(&self.id, &self.folder).judged(self.is_alive);
        let components = state.folders.planned_components(&self.id, &self.folder);
        Known { id: self.id, facts, components }
    }
}

/// What there is to say of a run.
struct Known {
    id: RunId,
    facts: RunFacts,
    components: Arc<Vec<(String, u64)>>,
}

impl Known {
    fn exposed(&self) -> Exposed<'_> {
        Exposed { run: self.id.as_str(), facts: &self.facts, components: &self.components }
    }
}

/// Those that run first, then the latest.
fn to_expose(state: &Shared) -> Vec<Found> {
    let now = unix_seconds(SystemTime::now());
    let look = |id: RunId| {
        let folder = state.folders.find(&id)?;
        let is_alive = state.folders.holder(&folder).is_some();
        let updated = state.folders.times(&folder).updated;
        (is_alive || now.saturating_sub(updated) < FRESH_S).then_some(Found { id, folder, is_alive, updated })
    };
    let mut found: Vec<Found> = state.folders.ids().into_iter().filter_map(look).collect();
    found.sort_by_key(|run| (!run.is_alive, std::cmp::Reverse(run.updated)));
    let running = found.iter().filter(|run| run.is_alive).count();
    found.truncate(running.max(MOST_EXPOSED));
    found
}
