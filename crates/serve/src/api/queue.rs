//! The queue: what waits, what runs, and when the rest will.

use super::runs::remaining;
use crate::folders::RunId;
use crate::jobs::JobState;
use crate::problem::Problem;
use crate::state::Shared;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

/// A job of the queue.
#[derive(Serialize, ToSchema)]
pub(crate) struct Waiting {
    id: RunId,
    /// queued or started
    state: &'static str,
    device: String,
    /// What its plan takes.
    bytes: u64,
    /// Seconds since 1970.
    asked: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    began: Option<u64>,
    /// When it is expected to start, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_start: Option<u64>,
    /// When it is expected to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_end: Option<u64>,
}

/// Jobs that run or wait, in their order
#[utoipa::path(get, path = "/queue", tag = "queue", responses((status = 200, description = "With expected times", body = Vec<Waiting>)))]
pub(super) async fn list(State(state): State<Shared>) -> Result<Json<Vec<Waiting>>, Problem> {
    let listed = tokio::task::spawn_blocking(move || waiting(&state)).await;
    listed.map(Json).map_err(|_| Problem::failed("the queue cannot be read"))
}

fn waiting(state: &Shared) -> Vec<Waiting> {
    let remaining = remaining(state);
    let expected = state.queue.expected(&remaining);
    let now = crate::folders::unix_seconds(std::time::SystemTime::now());
    let open = state.queue.jobs().into_iter().filter(|job| !job.is_over());
    let mut listed: Vec<Waiting> = open
        .map(|job| {
            let slot = expected.get(&job.id);
            let ends = remaining.get(&job.id).map(|seconds| now + *seconds as u64);
            let of_plan = job.began.zip(job.seconds).map(|(began, seconds)| began + seconds as u64);
            Waiting {
                state: job.state_name(),
                expected_start: slot.map(|slot| slot.start),
                expected_end: slot.and_then(|slot| slot.end).or(ends).or(of_plan),
                id: job.id,
                device: job.device,
                bytes: job.bytes,
                asked: job.asked,
                began: job.began.filter(|_| job.state == JobState::Started),
            }
        })
        .collect();
    // Jobs come in the order of asking.
    listed.sort_by_key(|job| job.state != "started");
    listed
}
