//! The OpenAPI document, made from the types; what every route has in common is added here.

use super::api;
use crate::planning::{Field, fields};
use crate::problem::Problem;
use crate::state::Shared;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use plimsoll::reference;
use serde_json::{Value, json};
use std::sync::OnceLock;

/// The OpenAPI 3.1 document of the API.
pub fn openapi() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let (_, document) = api().split_for_parts();
        let mut document = serde_json::to_value(document).unwrap_or_default();
        describe(&mut document);
        document
    })
}

fn describe(document: &mut Value) {
    document["info"] = json!({
        "title": "plimsoll",
        "version": env!("CARGO_PKG_VERSION"),
        "description": "Plans of trainings to the byte, and trainings that are started, followed and compared.",
        "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
    });
    document["servers"] = json!([{"url": "/api/v1"}]);
    document["security"] = json!([{}, {"token": []}, {"cookie": []}]);
    document["components"]["securitySchemes"] = json!({
        "token": {"type": "http", "scheme": "bearer", "description": "The token that `plimsoll serve` was started with"},
        "cookie": {"type": "apiKey", "in": "cookie", "name": "plimsoll-8642", "description": "Set by POST /sign-in; its name ends in the server's port"},
    });
    document["paths"]["/sign-in"]["post"]["security"] = json!([]);
    document["components"]["schemas"]["Problem"] = problem_schema();
    add_plan_schema(document);
    add_defaults(&mut document["components"]["schemas"]["Question"]["properties"]["fields"]["properties"]);
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    for operation in
        paths.flat_map(|(_, item)| item.as_object_mut().into_iter().flatten()).map(|(_, operation)| operation)
    {
        add_problems(operation);
    }
}

/// A plan is what `plimsoll plan --json` prints, whose schema comes with its type, and what follows from it.
fn add_plan_schema(document: &mut Value) {
    let text = plimsoll::PlanReport::json_schema().to_string().replace("#/$defs/", "#/components/schemas/");
    let mut report: Value = serde_json::from_str(&text).unwrap_or_default();
    let parts = report["$defs"].take();
    if let (Some(report), Some(schemas)) = (report.as_object_mut(), document["components"]["schemas"].as_object_mut()) {
        report.remove("$defs");
        report.remove("$schema");
        schemas.extend(parts.as_object().cloned().unwrap_or_default());
        schemas.insert("PlanReport".into(), Value::Object(report.clone()));
    }
    let number = json!({"type": ["number", "null"]});
    document["paths"]["/plan"]["post"]["responses"]["200"]["content"]["application/json"]["schema"] = json!({
        "allOf": [{"$ref": "#/components/schemas/PlanReport"}],
        "properties": {
            "bounds": {"type": "object", "description": "By the form's field: `maximum` or `values`, where this model takes less than the field does"},
            "name": {"type": "string"},
            "steps": {"type": ["integer", "null"], "description": "Updates of the whole run, where known"},
            "epoch_seconds": number,
            "run_seconds": number,
            "samples_per_s": {"type": "number"},
            "settings": {"type": "object", "description": "Every setting, defaults filled in, by its dotted key"},
            "unready": unready_schema(),
        },
    });
}

/// Of the form's fields.
fn add_defaults(described: &mut Value) {
    let keys = reference::keys().unwrap_or_default();
    for field in fields() {
        if let Some(usual) = usual(&field, &keys) {
            described[field.name]["default"] = usual;
        }
    }
}

/// What holds where nothing is said: by the form, or else by the recipe's own reader.
fn usual(field: &Field, keys: &[reference::Key]) -> Option<Value> {
    let key = || keys.iter().find(|key| key.key == field.keys[0])?.uses.first()?.default.as_ref();
    let own = || serde_json::to_value(key()?).ok();
    let found = if field.default.is_null() { own()? } else { field.default.clone() };
    match (field.kind, found) {
        // The machine's choice is to use it wherever it can.
        ("boolean", Value::String(auto)) if auto == "auto" => Some(Value::Bool(true)),
        (kind, found) if found.is_boolean() == (kind == "boolean") => Some(found),
        _ => None,
    }
}

fn unready_schema() -> Value {
    use utoipa::PartialSchema;
    let mut finding = serde_json::to_value(crate::problem::Finding::schema()).unwrap_or_default();
    finding["description"] = json!(
        "Why it cannot be trained here, though it can be planned: a file that is not there, data that cannot be used"
    );
    finding
}

/// Any request may be refused: by the guard, by limits, by what it asks for.
fn add_problems(operation: &mut Value) {
    let problem = json!({
        "description": "Why it was not answered as asked",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    });
    for status in ["4XX", "5XX"] {
        operation["responses"][status] = problem.clone();
    }
}

fn problem_schema() -> Value {
    use utoipa::PartialSchema;
    let mut schema = serde_json::to_value(crate::problem::Problem::schema()).unwrap_or_default();
    // A finding is described where it stands.
    let finding = serde_json::to_value(crate::problem::Finding::schema()).unwrap_or_default();
    schema["properties"]["findings"]["items"] = finding;
    schema
}

/// As this server has it: one that asks for its token is not to be asked without.
pub(super) async fn document(State(state): State<Shared>) -> Result<Response, Problem> {
    // Made when it is first asked for, of every key that there is.
    let made = tokio::task::spawn_blocking(|| openapi().clone()).await;
    let mut document = made.map_err(|_| Problem::failed("the document cannot be made"))?;
    if !state.gate.is_open() {
        document["security"] = json!([{"token": []}, {"cookie": []}]);
    }
    Ok(([(header::CONTENT_TYPE, "application/json")], document.to_string()).into_response())
}
