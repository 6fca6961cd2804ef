//! What went wrong, as every answer of the API says it: problem JSON with the field at fault, the cause and a hint.

use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use plimsoll::{Explain, Fault, RecipeError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

/// Why a request was not answered as asked (RFC 9457, `application/problem+json`).
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// What the status means.
    pub title: String,
    /// The cause, for people.
    pub error: String,
    /// The field or recipe key at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Every finding about a recipe, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    #[serde(skip)]
    pub retry_after_s: Option<u64>,
}

/// One thing that is wrong with a recipe.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Finding {
    /// The recipe's key, empty where none is at fault.
    pub field: String,
    pub error: String,
    /// Of the recipe's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Problem {
        Problem {
            status: status.as_u16(),
            title: status.canonical_reason().unwrap_or("Problem").into(),
            error: error.into(),
            field: None,
            hint: None,
            findings: Vec::new(),
            retry_after_s: None,
        }
    }

    pub(crate) fn field(mut self, field: impl Into<String>) -> Problem {
        self.field = Some(field.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u64) -> Problem {
        self.retry_after_s = Some(seconds);
        self
    }

    pub(crate) fn bad(field: &str, error: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error).field(field)
    }

    pub(crate) fn not_found(what: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, what)
    }

    /// There is no room now; the hint says who has to go first.
    pub(crate) fn busy(what: impl Into<String>, hint: &str) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, what).retry_after(5).hint(hint)
    }

    pub(crate) fn conflict(error: impl Into<String>) -> Problem {
        Problem::new(StatusCode::CONFLICT, error)
    }

    pub(crate) fn failed(error: impl Into<String>) -> Problem {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    }

    /// The same with other words for what it names.
    pub(crate) fn reworded(self, reword: impl Fn(&str) -> String) -> Problem {
        let hint = |hint: Option<String>| hint.map(|hint| reword(&hint));
        let findings = self.findings.into_iter().map(|finding| Finding {
            error: reword(&finding.error),
            hint: hint(finding.hint),
            ..finding
        });
        Problem { error: reword(&self.error), hint: hint(self.hint), findings: findings.collect(), ..self }
    }

    /// An error of the library: whose fault it is decides the status.
    pub(crate) fn explained<E: Explain>(error: &E) -> Problem {
        let status = match error.fault() {
            Fault::Failed => StatusCode::INTERNAL_SERVER_ERROR,
            Fault::BadInput => StatusCode::UNPROCESSABLE_ENTITY,
            Fault::DoesNotFit => StatusCode::CONFLICT,
        };
        let problem = Problem::new(status, error.message());
        match error.hints().into_iter().next() {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }
}

/// Refuses text that cannot be an argument of a child: the system takes neither a NUL in one nor one without end.
pub(crate) fn argument(field: &str, text: &str, longest: usize) -> Result<(), Problem> {
    match text {
        _ if text.contains('\0') => {
            Err(Problem::bad(field, format!("{field}: a NUL character stands in it")).hint("leave it out"))
        }
        _ if text.len() > longest => Err(Problem::bad(field, format!("{field}: at most {longest} bytes"))
            .hint(format!("it has {}: shorten it", text.len()))),
        _ => Ok(()),
    }
}

impl From<Finding> for Problem {
    fn from(finding: Finding) -> Problem {
        let error = format!("{}: {}", finding.field, finding.error);
        Problem {
            field: Some(finding.field.clone()),
            hint: finding.hint.clone(),
            findings: vec![finding],
            ..Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error)
        }
    }
}

/// A recipe's problems, each with its key.
impl From<RecipeError> for Problem {
    fn from(error: RecipeError) -> Problem {
        let RecipeError::Invalid(problems) = &error else { return Problem::explained(&error) };
        let findings: Vec<Finding> = problems
            .findings()
            .map(|finding| Finding {
                field: finding.key.into(),
                error: finding.cause.into(),
                line: finding.line,
                allowed: finding.allowed.map(Into::into),
                hint: finding.hint.map(Into::into),
            })
            .collect();
        let Some(first) = findings.first().cloned() else { return Problem::explained(&error) };
        // A text that cannot be read has no keys yet: it is itself at fault.
        let whole = if first.line.is_some() { "recipe" } else { "set" };
        let allowed = first.allowed.map(|allowed| format!("; allowed: {allowed}")).unwrap_or_default();
        let key = if first.field.is_empty() { String::new() } else { format!("{}: ", first.field) };
        Problem {
            field: Some(if first.field.is_empty() { whole.into() } else { first.field }),
            hint: first.hint,
            findings,
            ..Problem::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{key}{}{allowed}", first.error))
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let kind = HeaderValue::from_static("application/problem+json");
        let mut response = (status, [(header::CONTENT_TYPE, kind)], body).into_response();
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// A body that is JSON of a type, or a problem that names the place. It has to say so: forms of other pages can send text
/// and form data without asking, JSON they cannot.
pub(crate) struct Sent<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Sent<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Sent<T>, Problem> {
        match axum::Json::<T>::from_request(request, state).await {
            Ok(axum::Json(sent)) => Ok(Sent(sent)),
            Err(rejection) => Err(explain(&rejection)),
        }
    }
}

/// What stands behind the `?` of an address.
pub(crate) struct Asked<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Asked<T>, Problem> {
        let read = Query::<T>::from_request_parts(parts, state).await;
        read.map(|Query(asked)| Asked(asked)).map_err(|rejection| {
            // `Failed to deserialize query string: points: invalid digit …`
            let words = rejection.body_text();
            let cause = words.split_once(": ").map_or(words.as_str(), |(_, cause)| cause);
            Problem::bad(named_in(cause).unwrap_or("query"), cause)
        })
    }
}

/// The names in an address.
pub(crate) struct Named<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Named<T>, Problem> {
        let read = Path::<T>::from_request_parts(parts, state).await;
        read.map(|Path(named)| Named(named)).map_err(|rejection| Problem::not_found(rejection.body_text()))
    }
}

/// The field that a cause begins with, as in `set[0]: invalid type: …`. What is said of the whole begins with a sentence,
/// as in `invalid type: null, …`: names have no spaces.
fn named_in(cause: &str) -> Option<&str> {
    cause.split_once(": ").map(|(field, _)| field).filter(|field| !field.contains(char::is_whitespace))
}

fn explain(rejection: &JsonRejection) -> Problem {
    let words = rejection.body_text();
    match rejection {
        // `Failed to deserialize …: set[0]: invalid type …`
        JsonRejection::JsonDataError(_) => {
            let cause = words.split_once(": ").map_or(words.as_str(), |(_, cause)| cause);
            Problem::bad(named_in(cause).unwrap_or("body"), cause)
        }
        JsonRejection::MissingJsonContentType(_) => {
            Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a body is JSON here")
                .field("content-type")
                .hint("send Content-Type: application/json")
        }
        JsonRejection::JsonSyntaxError(_) => Problem::new(StatusCode::BAD_REQUEST, words),
        _ => Problem::new(rejection.status(), words),
    }
}
