//! Bodies are read whole before anything happens: small ones, in time.

use super::LARGEST_BODY;
use crate::problem::Problem;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::time::Duration;
use tokio::time::timeout;

/// A client has this long to send what it wants to send.
const LONGEST_BODY: Duration = Duration::from_secs(20);

pub(super) async fn read_whole(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = match timeout(LONGEST_BODY, to_bytes(body, LARGEST_BODY)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => return too_large().into_response(),
        Err(_) => return too_slow().into_response(),
    };
    next.run(Request::from_parts(parts, Body::from(bytes))).await
}

fn too_large() -> Problem {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("a body has at most {LARGEST_BODY} bytes"))
        .hint("send less: of a log the end with the error, of rows some at a time, or name a file of the data folder")
}

fn too_slow() -> Problem {
    Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")
        .hint(format!("it has {} seconds: send it again, all at once", LONGEST_BODY.as_secs()))
}
