//! Questions to the planner.

use crate::planning::{Field, Kind, Largest, LargestOnCard, Question, fields};
use crate::problem::{Problem, Sent};
use crate::state::Shared;
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

async fn ask(state: Shared, kind: Kind, question: Question) -> Result<Response, Problem> {
    let planner = state.planner.clone();
    // Reading a recipe may look at a checkpoint, its device at the processes of this machine.
    let prepare = move || state.planner.prepare(kind, question.check(&state.planner.allowed)?);
    let prepared = tokio::task::spawn_blocking(prepare).await;
    let prepared = prepared.map_err(|_| Problem::failed("the recipe cannot be read"))??;
    Ok(json(planner.answer(prepared).await?))
}

fn json(bytes: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], bytes).into_response()
}

/// The plan of a recipe
///
/// As `plimsoll plan --json`: fits or not, bytes by component, milliseconds, decisions with reasons; where nothing fits,
/// the smallest budget and the ladder of ways out. Beside it: updates and seconds of an epoch and of the run.
#[utoipa::path(post, path = "/plan", tag = "plan", request_body = Question,
    responses((status = 200, description = "The plan, or the smallest there is", body = Object, content_type = "application/json")))]
pub(super) async fn plan(State(state): State<Shared>, Sent(question): Sent<Question>) -> Result<Response, Problem> {
    ask(state, Kind::Plan, question).await
}

/// One step of the plan as a map
///
/// Every buffer with its address, size, component and lifetime; live bytes by component over the ticks.
#[utoipa::path(post, path = "/plan/timeline", tag = "plan", request_body = Question,
    responses((status = 200, description = "The map", body = Object, content_type = "application/json")))]
pub(super) async fn timeline(State(state): State<Shared>, Sent(question): Sent<Question>) -> Result<Response, Problem> {
    ask(state, Kind::Timeline, question).await
}

/// The largest batches that fit
///
/// Accumulated, and computed at once: between the two is what a training on this device is best given.
#[utoipa::path(post, path = "/plan/largest", tag = "plan", request_body = Question,
    responses((status = 200, description = "The batches, or null where not even one sample fits", body = Largest, content_type = "application/json")))]
pub(super) async fn largest(State(state): State<Shared>, Sent(question): Sent<Question>) -> Result<Response, Problem> {
    ask(state, Kind::Largest, question).await
}

/// The recipe on every card of the catalog
#[utoipa::path(post, path = "/cards", tag = "plan", request_body = Question,
    responses((status = 200, description = "One row per card, by memory", body = Vec<Object>, content_type = "application/json")))]
pub(super) async fn cards(State(state): State<Shared>, Sent(question): Sent<Question>) -> Result<Response, Problem> {
    ask(state, Kind::Cards, question).await
}

/// The largest batch of every card of the catalog
///
/// Computed at once, with nothing recomputed and at all, whatever the recipe's own batch is. This takes many plans.
#[utoipa::path(post, path = "/cards/largest", tag = "plan", request_body = Question,
    responses((status = 200, description = "One row per card, by memory", body = Vec<LargestOnCard>, content_type = "application/json")))]
pub(super) async fn largest_on_cards(
    State(state): State<Shared>,
    Sent(question): Sent<Question>,
) -> Result<Response, Problem> {
    ask(state, Kind::LargestOnCards, question).await
}

/// The fields of the form
///
/// Names, defaults, bounds and the recipe's keys behind them: what `fields` of a question may hold.
#[utoipa::path(get, path = "/fields", tag = "plan",
    responses((status = 200, description = "Every field", body = Vec<Field>)))]
pub(super) async fn list_fields() -> Json<Vec<Field>> {
    Json(fields())
}
