//! A run's events as they happen: server-sent events whose ids are places in a file that they tell from others, so that a
//! client goes on where it was, whichever server it finds, and starts over where the run is another one now.

use super::runs::found;
use crate::folders::{Lines, Next, Place, Reader};
use crate::problem::{Asked, Named, Problem};
use crate::state::Shared;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use utoipa::IntoParams;

/// Said when nothing else is, so that the dead are noticed.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Where to start.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Start {
    /// The place to go on from, as `Last-Event-ID`, which wins: 0, or an id of an earlier event.
    #[serde(default)]
    #[param(value_type = String, pattern = "^[0-9]{1,19}(-[0-9a-f]{16})?$", default = "0")]
    from: Place,
}

/// Events of a run, those that were and those that come
///
/// `data` is one event as in events.jsonl, `id` a place to go on from with `Last-Event-ID`. An event named `start-over`
/// says that the file is another one now.
#[utoipa::path(get, path = "/runs/{id}/events", tag = "runs",
    params(("id" = crate::folders::RunId, Path, description = "The run's name"), Start, ("last-event-id" = Option<String>, Header, description = "The id of the last event that was seen")),
    responses((status = 200, description = "A stream without end", content_type = "text/event-stream", body = String)))]
pub(super) async fn events(
    State(state): State<Shared>,
    Named(id): Named<String>,
    Asked(start): Asked<Start>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (id, folder) = found(&state, &id)?;
    let place = state.streams.clone().try_acquire_owned().map_err(|_| no_room())?;
    let last = headers.get("last-event-id").and_then(|id| Place::try_from(id.to_str().ok()?.to_string()).ok());
    let reader = state.tails.watch(&id, &folder).reader(last.unwrap_or(start.from));
    let stream = Stream { reader, _place: place, opened: false };
    let body = Body::from_stream(unfold(stream));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, body).into_response())
}

fn no_room() -> Problem {
    Problem::busy(
        "too many streams are open",
        "close pages that nobody looks at, or read GET /runs/{id}/curves now and then",
    )
}

struct Stream {
    reader: Reader,
    /// Given back when the client goes.
    _place: OwnedSemaphorePermit,
    opened: bool,
}

/// Polled only when the client has room: nothing piles up here.
fn unfold(stream: Stream) -> impl futures_util::Stream<Item = Result<Bytes, Infallible>> {
    futures_util::stream::unfold(stream, |mut stream| async move {
        let bytes = stream.next().await?;
        Some((Ok(bytes), stream))
    })
}

impl Stream {
    async fn next(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.opened, true) {
            return Some(Bytes::from_static(b"retry: 1000\n\n"));
        }
        loop {
            let bytes = match timeout(HEARTBEAT, self.reader.next()).await {
                Err(_) => Bytes::from_static(b":\n\n"),
                Ok(None) => return None,
                Ok(Some(Next::StartOver)) => Bytes::from_static(b"id: 0\nevent: start-over\ndata: {}\n\n"),
                Ok(Some(Next::News(news))) => news.told(framed),
                Ok(Some(Next::Lines(lines))) => framed(&lines),
            };
            if !bytes.is_empty() {
                return Some(bytes);
            }
        }
    }
}

/// Only lines that are JSON, each on one line: a hostile file cannot make up events or ids.
fn framed(lines: &Lines) -> Bytes {
    let mut bytes = Vec::with_capacity(lines.bytes.len() + 64);
    for (line, place) in lines.each() {
        if serde_json::from_slice::<IgnoredAny>(line).is_ok() {
            bytes.extend(format!("id: {place}\ndata: ").into_bytes());
            bytes.extend(line.iter().map(|&byte| if byte == b'\r' { b' ' } else { byte }));
            bytes.extend(b"\n\n");
        }
    }
    bytes.into()
}
