//! The API: one file per matter, every route with its types in the OpenAPI document.

mod body;
mod devices;
mod document;
mod files;
mod pages;
mod plans;
mod queue;
mod reason;
mod recipes;
mod runs;
mod stream;
mod studies;
mod tools;

pub use document::openapi;

use crate::guard::{__path_sign_in, sign_in, watch, with_safe_headers};
use crate::problem::Problem;
use crate::state::Shared;
use axum::Router;
use axum::http::{Method, StatusCode};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The largest request.
pub(crate) const LARGEST_BODY: usize = 1 << 20;

/// Everything that is answered, behind the guard.
pub(crate) fn router(state: &Shared) -> Router {
    let (api, _) = api().split_for_parts();
    let api =
        api.route("/openapi.json", get(document::document)).fallback(unknown).method_not_allowed_fallback(refused);
    pages::routes()
        .nest("/api/v1", api)
        .layer(from_fn(body::read_whole))
        .layer(from_fn_with_state(state.clone(), watch))
        .layer(from_fn(with_safe_headers))
        .with_state(state.clone())
}

/// The routes that are documented.
fn api() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(runs::list, runs::start))
        .routes(routes!(runs::one))
        .routes(routes!(runs::curves))
        .routes(routes!(runs::log))
        .routes(routes!(runs::recipe))
        .routes(routes!(runs::timeline))
        .routes(routes!(runs::checkpoints))
        .routes(routes!(runs::stop))
        .routes(routes!(runs::resume))
        .routes(routes!(runs::compare))
        .routes(routes!(stream::events))
        .routes(routes!(tools::export))
        .routes(routes!(tools::exported))
        .routes(routes!(tools::generate))
        .routes(routes!(tools::predict))
        .routes(routes!(tools::advise))
        .routes(routes!(plans::plan))
        .routes(routes!(plans::timeline))
        .routes(routes!(plans::largest))
        .routes(routes!(plans::cards))
        .routes(routes!(plans::largest_on_cards))
        .routes(routes!(plans::list_fields))
        .routes(routes!(recipes::list))
        .routes(routes!(files::list))
        .routes(routes!(files::propose))
        .routes(routes!(recipes::presets))
        .routes(routes!(recipes::keys))
        .routes(routes!(recipes::schema))
        .routes(routes!(queue::list))
        .routes(routes!(devices::here))
        .routes(routes!(devices::catalog_cards))
        .routes(routes!(studies::list))
        .routes(routes!(studies::one))
        .routes(routes!(devices::server))
        .routes(routes!(sign_in))
}

async fn unknown() -> Problem {
    Problem::not_found("there is no such thing in the API").hint("/api/v1/openapi.json lists what there is")
}

async fn refused(method: Method) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not for this address"))
}
