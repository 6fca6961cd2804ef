//! Using what was trained, and advice: the same binary, called for a moment.

use super::runs::{Nothing, found};
use crate::folders::RunId;
use crate::jobs::Output;
use crate::planning::Question;
use crate::problem::{Named, Problem, Sent, argument};
use crate::state::Shared;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use utoipa::ToSchema;

/// A model as a folder.
#[derive(Serialize, ToSchema)]
pub(crate) struct Export {
    /// What loads it: transformers, or any reader of safetensors.
    loads_in: String,
    /// Its files, with their sizes.
    files: Vec<ExportedFile>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct ExportedFile {
    name: String,
    bytes: u64,
}

/// Where an export stands in a run's folder.
const EXPORT: &str = "export";

/// Writes the model of a run as a folder
///
/// As `plimsoll export`, into the run's folder; its files can be fetched one by one.
#[utoipa::path(post, path = "/runs/{id}/export", tag = "use", params(("id" = RunId, Path, description = "The run's name")), request_body = Nothing,
    responses((status = 200, description = "What was written", body = Export)))]
pub(super) async fn export(
    State(state): State<Shared>,
    Named(id): Named<String>,
    Sent(Nothing {}): Sent<Nothing>,
) -> Result<Json<Export>, Problem> {
    let (_, folder) = found(&state, &id)?;
    let out = folder.join(EXPORT);
    let arguments = ["export".into(), folder.display().to_string(), out.display().to_string(), "--json".into()];
    let answer: Value = parsed(&state.tools.run(&arguments, None).await?.answer()?)?;
    let files = fs::read_dir(&out).into_iter().flatten().flatten();
    let mut files: Vec<ExportedFile> = files
        .filter_map(|file| {
            let bytes = file.metadata().ok().filter(fs::Metadata::is_file)?.len();
            Some(ExportedFile { name: file.file_name().into_string().ok()?, bytes })
        })
        .collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    let loads_in = answer.get("loads_in").and_then(Value::as_str).unwrap_or("safetensors").into();
    Ok(Json(Export { loads_in, files }))
}

/// A file of an export
#[utoipa::path(get, path = "/runs/{id}/export/{file}", tag = "use",
    params(("id" = RunId, Path, description = "The run's name"), ("file" = RunId, Path, description = "The file's name")),
    responses((status = 200, description = "Its bytes", content_type = "application/octet-stream", body = String)))]
pub(super) async fn exported(
    State(state): State<Shared>,
    Named((id, file)): Named<(String, String)>,
) -> Result<Response, Problem> {
    let missing = || Problem::not_found("there is no such file").field("file");
    let (_, folder) = found(&state, &id)?;
    let name = RunId::parse(&file).ok_or_else(missing)?;
    let path = folder.join(EXPORT).join(name.as_str());
    let there = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file).ok_or_else(missing)?;
    let inside = path.canonicalize().is_ok_and(|real| real.starts_with(folder.join(EXPORT)));
    let file = tokio::fs::File::open(&path).await.ok().filter(|_| inside).ok_or_else(missing)?;
    let body = Body::from_stream(pieces(file));
    let mut response = ([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response();
    response.headers_mut().insert(header::CONTENT_LENGTH, there.len().into());
    response.headers_mut().insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    Ok(response)
}

/// A file piece by piece.
fn pieces(file: tokio::fs::File) -> impl futures_util::Stream<Item = std::io::Result<Vec<u8>>> {
    use tokio::io::AsyncReadExt;
    futures_util::stream::unfold(file, |mut file| async move {
        let mut piece = Vec::with_capacity(256 << 10);
        match (&mut file).take(256 << 10).read_to_end(&mut piece).await {
            Ok(0) => None,
            Ok(_) => Some((Ok(piece), file)),
            Err(cause) => Some((Err(cause), file)),
        }
    })
}

/// What to write.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prompt {
    /// The text to continue or to answer.
    #[serde(default)]
    #[schema(max_length = 20000)]
    prompt: String,
    /// Tokens to write at most.
    #[serde(default = "usual_tokens")]
    #[schema(minimum = 1, maximum = 4096, default = 100)]
    tokens: usize,
    /// 0 always takes the likeliest token.
    #[schema(minimum = 0, maximum = 100)]
    temperature: Option<f64>,
    /// Continuations followed at once.
    #[serde(default = "usual_beams")]
    #[schema(minimum = 1, maximum = 64, default = 1)]
    beams: usize,
    #[serde(default)]
    seed: u64,
}

fn usual_tokens() -> usize {
    100
}

fn usual_beams() -> usize {
    1
}

const LONGEST_PROMPT: usize = 20_000;
/// As the system has it.
const LONGEST_PATH: usize = 4095;

/// Lets the model of a run write
#[utoipa::path(post, path = "/runs/{id}/generate", tag = "use", params(("id" = RunId, Path, description = "The run's name")), request_body = Prompt,
    responses((status = 200, description = "The text, and what it took", body = Object)))]
pub(super) async fn generate(
    State(state): State<Shared>,
    Named(id): Named<String>,
    Sent(prompt): Sent<Prompt>,
) -> Result<Json<Value>, Problem> {
    let (_, folder) = found(&state, &id)?;
    prompt.check()?;
    let mut arguments = vec![
        "generate".into(),
        folder.display().to_string(),
        "--json".into(),
        format!("--prompt={}", prompt.prompt),
        format!("--tokens={}", prompt.tokens),
        format!("--beams={}", prompt.beams),
        format!("--seed={}", prompt.seed),
    ];
    arguments.extend(prompt.temperature.map(|t| format!("--temperature={t}")));
    parsed(&state.tools.run(&arguments, None).await?.answer()?).map(Json)
}

impl Prompt {
    fn check(&self) -> Result<(), Problem> {
        let bad = |field: &str, wanted: &str| Err(Problem::bad(field, format!("{field} must be {wanted}")));
        argument("prompt", &self.prompt, LONGEST_PROMPT)?;
        match self {
            _ if !(1..=4096).contains(&self.tokens) => bad("tokens", "an integer from 1 to 4096"),
            _ if !(1..=64).contains(&self.beams) => bad("beams", "an integer from 1 to 64"),
            _ if self.temperature.is_some_and(|t| !(0.0..=100.0).contains(&t)) => {
                bad("temperature", "a number from 0 to 100")
            }
            _ => Ok(()),
        }
    }
}

/// What to answer.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rows {
    /// A file under the data folder.
    file: Option<String>,
    /// Rows themselves: JSON lines, or CSV with a header.
    #[schema(max_length = 500000)]
    rows: Option<String>,
}

/// Answers of a model, one per row.
#[derive(Serialize, ToSchema)]
pub(crate) struct Predictions {
    #[schema(value_type = Vec<Object>)]
    predictions: Vec<Value>,
    /// There were more than are shown.
    cut: bool,
    /// What the answers lack: rows may have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

/// Answers rows with the model of a run
#[utoipa::path(post, path = "/runs/{id}/predict", tag = "use", params(("id" = RunId, Path, description = "The run's name")), request_body = Rows,
    responses((status = 200, description = "One answer per row", body = Predictions)))]
pub(super) async fn predict(
    State(state): State<Shared>,
    Named(id): Named<String>,
    Sent(rows): Sent<Rows>,
) -> Result<Json<Predictions>, Problem> {
    let (_, folder) = found(&state, &id)?;
    // Held until the child is done with it.
    let (path, _draft) = match (&rows.file, &rows.rows) {
        (Some(file), None) => (data_file(&state, file)?, None),
        (None, Some(text)) => {
            refuse_named_images(&folder)?;
            let draft = draft(text)?;
            (draft.path().to_path_buf(), Some(draft))
        }
        _ => return Err(Problem::bad("rows", "rows: name a file, or send rows")),
    };
    let arguments = ["predict".into(), folder.display().to_string(), path.display().to_string()];
    predictions(state.tools.run(&arguments, None).await?).map(Json)
}

/// One line is one answer. Rows without one have the reason in its place, and the tool fails for them: the others stand.
fn predictions(output: Output) -> Result<Predictions, Problem> {
    let lines = output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let predictions: Vec<Value> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let (cut, failed) = (output.cut, output.code == Some(1));
    let has_reasons = predictions.iter().any(|line| line.get("error").is_some());
    match output.answer() {
        Ok(_) => Ok(Predictions { predictions, cut, warning: None }),
        Err(problem) if failed && has_reasons => Ok(Predictions { predictions, cut, warning: Some(problem.error) }),
        Err(problem) => Err(problem),
    }
}

/// A file or a folder of images that a client names and that is there.
fn data_file(state: &Shared, file: &str) -> Result<PathBuf, Problem> {
    argument("file", file, LONGEST_PATH)?;
    let path = state.planner.allowed.check_path("file", file.as_ref())?;
    fs::metadata(&path).map_err(|cause| {
        Problem::bad("file", format!("file: {file}: {cause}")).hint("name a file under the data folder (--data)")
    })?;
    Ok(path)
}

/// Rows of captions name image files, and a client's rows could name any of this machine.
fn refuse_named_images(run: &std::path::Path) -> Result<(), Problem> {
    let text = fs::read_to_string(run.join("recipe.toml")).unwrap_or_default();
    let table: toml::Table = toml::from_str(&text).unwrap_or_default();
    let task = table.get("train").and_then(|train| train.get("task")).and_then(toml::Value::as_str);
    match task {
        Some("contrastive") => {
            Err(Problem::bad("rows", "rows: this model reads images")
                .hint("name a file or a folder under the data folder"))
        }
        _ => Ok(()),
    }
}

/// Rows as a file that goes away with its holder. What a row names is looked for beside it, where nothing else is.
fn draft(text: &str) -> Result<tempfile::NamedTempFile, Problem> {
    let ending = if text.trim_start().starts_with(['{', '[']) { ".jsonl" } else { ".csv" };
    let failed = |cause: std::io::Error| Problem::failed(format!("the rows cannot be kept: {cause}"));
    let mut file = tempfile::Builder::new().prefix("plimsoll-rows-").suffix(ending).tempfile().map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    Ok(file)
}

/// An error to explain, a recipe to advise on, or both.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Complaint {
    /// The end of a log with an out-of-memory error in it.
    #[schema(max_length = 800000)]
    text: Option<String>,
    /// A recipe with edits; its `device` is the card.
    question: Option<Question>,
}

/// Advice for a training that stays in PyTorch
///
/// As `plimsoll advise --json`: what an out-of-memory error means, which tensor it was, settings that fit.
#[utoipa::path(post, path = "/advise", tag = "use", request_body = Complaint,
    responses((status = 200, description = "Causes, tensors, remedies, settings", body = Object)))]
pub(super) async fn advise(
    State(state): State<Shared>,
    Sent(complaint): Sent<Complaint>,
) -> Result<Json<Value>, Problem> {
    let mut arguments = vec!["advise".to_string(), "--json".into(), "--explain".into()];
    let mut held = None;
    if let Some(question) = &complaint.question {
        let checked = question.check(&state.planner.allowed)?;
        state.planner.devices.find(&checked.device)?;
        let mut file = draft(&checked.text)?;
        let _ = file.flush();
        arguments.push(file.path().display().to_string());
        let dir = toml::Value::String(state.planner.allowed.data().display().to_string());
        arguments.extend(checked.set.iter().cloned().chain([format!("dir={dir}")]).map(|set| format!("--set={set}")));
        arguments.extend(question.device.iter().filter(|name| *name != "auto").map(|name| format!("--device={name}")));
        held = Some(file);
    }
    if complaint.text.is_some() {
        arguments.push("--log=-".into());
    }
    let output = state.tools.run(&arguments, complaint.text.map(String::into_bytes)).await?;
    drop(held);
    match parsed::<Value>(&output.stdout) {
        // Settings that do not fit are an answer too.
        Ok(answer) => Ok(Json(answer)),
        Err(_) => parsed(&output.answer()?).map(Json),
    }
}

fn parsed<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|_| Problem::failed("plimsoll did not answer as it should"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(stdout: &str, code: i32) -> Output {
        let stderr = "error: 1 of 2 rows have no answer\n  hint: correct it\n".into();
        Output { stdout: stdout.into(), stderr, code: Some(code), cut: false }
    }

    #[test]
    fn rows_without_an_answer_leave_the_others_theirs() {
        let lines = "{\"row\":1,\"label\":\"a\"}\n{\"row\":2,\"error\":\"no number\"}\n";
        let some = predictions(output(lines, 1)).unwrap_or_else(|problem| panic!("{problem:?}"));
        assert_eq!(some.predictions.len(), 2);
        assert!(some.warning.is_some_and(|warning| warning.contains("1 of 2")));
        assert!(predictions(output("", 1)).is_err_and(|problem| problem.status == 500));
        assert!(predictions(output(lines, 2)).is_err_and(|problem| problem.status == 422));
        assert!(predictions(output("{\"row\":1}\n", 0)).is_ok_and(|all| all.warning.is_none()));
    }
}
