//! The way in: the token, or the link that was printed, for a cookie.

use super::Peer;
use crate::options::LONGEST_TOKEN;
use crate::problem::{Problem, Sent};
use crate::state::Shared;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::net::SocketAddr;
use utoipa::ToSchema;

/// What a browser shows to come in.
#[derive(Deserialize, ToSchema)]
pub(crate) struct SignIn {
    /// The token, or the code of the link printed at the start.
    #[schema(max_length = 512)]
    token: String,
}

/// Exchanges the token for a cookie
///
/// The cookie is out of reach of scripts and is not sent by other pages.
#[utoipa::path(post, path = "/sign-in", tag = "server", request_body = SignIn,
    responses((status = 204, description = "The cookie is set")))]
pub(crate) async fn sign_in(
    State(state): State<Shared>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    headers: HeaderMap,
    Sent(shown): Sent<SignIn>,
) -> Result<Response, Problem> {
    let gate = &state.gate;
    if shown.token.len() > LONGEST_TOKEN {
        return Err(Problem::bad("token", format!("token: at most {LONGEST_TOKEN} bytes"))
            .hint("paste the token that the server was started with, and nothing else"));
    }
    if gate.is_open() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    if !gate.takes_code(&shown.token) {
        gate.weigh(&shown.token, peer.ip()).await.map_err(|problem| problem.field("token"))?;
    }
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, gate.set_cookie(&headers))]).into_response())
}

/// The link that was printed: the cookie is set, and the address bar forgets the code. Where it is wrong, the page asks
/// for the token by itself, if the browser has no cookie yet.
pub(crate) fn enter_by_link(state: &Shared, peer: SocketAddr, headers: &HeaderMap, shown: &str) -> Response {
    let gate = &state.gate;
    let home = (header::LOCATION, "/".to_string());
    let is_right = !gate.is_open() && (gate.takes_code(shown) || gate.takes_link(shown, peer.ip()));
    match is_right {
        true => (StatusCode::SEE_OTHER, [home, (header::SET_COOKIE, gate.set_cookie(headers))]).into_response(),
        false => (StatusCode::SEE_OTHER, [home]).into_response(),
    }
}
