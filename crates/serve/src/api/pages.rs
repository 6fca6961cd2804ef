//! The page's own addresses, and what machines look at.

use crate::assets;
use crate::guard::{Peer, enter_by_link};
use crate::problem::Problem;
use crate::state::Shared;
use axum::Router;
use axum::extract::{ConnectInfo, Path, RawQuery, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

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

async fn file(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    assets::serve(&name, &headers)
}

async fn health() -> Response {
    let body = serde_json::json!({"status": "ok", "version": env!("CARGO_PKG_VERSION")});
    axum::Json(body).into_response()
}

/// OpenMetrics: what the server itself knows.
async fn metrics(State(state): State<Shared>) -> Response {
    let jobs = state.queue.jobs();
    let count = |name: &str| jobs.iter().filter(|job| job.state_name() == name).count();
    let mut text = format!(
        "# TYPE plimsoll_build info\nplimsoll_build_info{{version=\"{}\"}} 1\n# TYPE plimsoll_queue_jobs gauge\n",
        env!("CARGO_PKG_VERSION")
    );
    for name in ["queued", "started", "ended"] {
        text += &format!("plimsoll_queue_jobs{{state=\"{name}\"}} {}\n", count(name));
    }
    text += "# EOF\n";
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}
