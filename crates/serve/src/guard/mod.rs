//! Who may ask: the name the server was called by, the page that asks, the token; and what every answer says about
//! itself. Each check stands before every handler, so none can be forgotten.

mod enter;
mod headers;
mod host;
mod origin;

pub(crate) use enter::{__path_sign_in, enter_by_link, sign_in};
pub(crate) use headers::with_safe_headers;

use crate::problem::Problem;
use crate::state::Shared;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::SocketAddr;

/// The address of whoever asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub SocketAddr);

/// Lets a request through to its handler, or answers for it.
pub(crate) async fn watch(
    State(state): State<Shared>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    match check(&state, peer, (request.method(), request.uri()), request.headers()).await {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

async fn check(
    state: &Shared,
    peer: SocketAddr,
    (method, uri): (&Method, &Uri),
    headers: &HeaderMap,
) -> Result<(), Problem> {
    let host = host::check(uri, headers, &state.options)?;
    origin::check(method, uri.path(), headers, &host)?;
    if !is_open(uri.path()) {
        state.gate.check(headers, peer.ip()).await?;
    }
    if !SPOKEN.contains(method) {
        return Ok(());
    }
    refuse_changes(state.options.read_only, method, uri.path())
}

/// Methods that routes have. The router refuses every other, and says which would do.
const SPOKEN: [Method; 3] = [Method::GET, Method::HEAD, Method::POST];

/// What is the same for everybody: the page's own files, the way in, and a sign of life.
fn is_open(path: &str) -> bool {
    !path.starts_with("/api/") && path != "/metrics" || path == "/api/v1/sign-in"
}

/// Questions that are asked by POST because they are long change nothing.
const QUESTIONS: [&str; 5] = ["/api/v1/plan", "/api/v1/fields", "/api/v1/cards", "/api/v1/advise", "/api/v1/sign-in"];

fn refuse_changes(read_only: bool, method: &Method, path: &str) -> Result<(), Problem> {
    let asks = method.is_safe() || QUESTIONS.iter().any(|&q| path == q || path.starts_with(&format!("{q}/")));
    match read_only && !asks {
        true => {
            Err(Problem::new(StatusCode::FORBIDDEN, "this server is read-only").hint("start it without --read-only"))
        }
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_only_server_answers_questions_and_changes_nothing() {
        let refused = |method: Method, path: &str| refuse_changes(true, &method, path).is_err();
        assert!(!refused(Method::GET, "/api/v1/runs") && !refused(Method::POST, "/api/v1/plan"));
        for path in ["/api/v1/runs", "/api/v1/runs/a/stop", "/api/v1/planned", "/api/v1/queue/a"] {
            assert!(refused(Method::POST, path) && refused(Method::DELETE, path), "{path}");
        }
    }

    #[test]
    fn only_the_page_and_the_way_in_are_open() {
        for path in ["/", "/ml-management", "/app.js", "/health", "/api/v1/sign-in"] {
            assert!(is_open(path), "{path}");
        }
        for path in ["/api/v1/runs", "/api/v1/", "/metrics", "/api/v1/openapi.json", "/api/v1/sign-in/x"] {
            assert!(!is_open(path), "{path}");
        }
    }
}
