//! The OpenAPI document, made from the types; what every route has in common is added here.

use super::api;
use axum::http::header;
use axum::response::{IntoResponse, Response};
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
    document["components"]["schemas"]["Problem"] = problem_schema();
    add_plan_schema(document);
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
        },
    });
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

pub(super) async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], openapi().to_string()).into_response()
}
