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
use std::path::{Path, PathBuf};
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
    let answer: Value = parsed(&called(&state, &arguments, None).await?.answer()?)?;
    let loads_in = answer.get("loads_in").and_then(Value::as_str).unwrap_or("safetensors").into();
    let files = blocking(move || Ok(files_in(&out))).await?;
    Ok(Json(Export { loads_in, files }))
}

fn files_in(folder: &Path) -> Vec<ExportedFile> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<ExportedFile> = files
        .filter_map(|file| {
            let bytes = file.metadata().ok().filter(fs::Metadata::is_file)?.len();
            Some(ExportedFile { name: file.file_name().into_string().ok()?, bytes })
        })
        .collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files
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
pub(super) const LONGEST_PATH: usize = 4095;

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
    parsed(&called(&state, &arguments, None).await?.answer()?).map(Json)
}

/// A tool's output, without the places where files are kept.
async fn called(state: &Shared, arguments: &[String], input: Option<Vec<u8>>) -> Result<Output, Problem> {
    let output = state.tools.run(arguments, input).await?;
    Ok(output.reworded(|words| state.planner.allowed.without_folders(words)))
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
    /// What is to be said of rows that have no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
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
    let arguments = ["predict".into(), folder.display().to_string()];
    let asked = state.clone();
    let (path, draft) = blocking(move || rows.kept(&asked, &folder)).await?;
    let arguments: Vec<String> = arguments.into_iter().chain([path.display().to_string()]).collect();
    let output = called(&state, &arguments, None).await?;
    // Until here the child may read it.
    let output = output.reworded(|words| draft.as_ref().map_or(words.into(), |draft| draft.without_folder(words)));
    let cut = output.cut;
    let (bytes, note) = output.lines()?;
    let lines = bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let predictions = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    Ok(Json(Predictions { predictions, cut, note }))
}

impl Rows {
    /// The file that they are in, and what keeps it there where they were sent.
    fn kept(&self, state: &Shared, run: &Path) -> Result<(PathBuf, Option<Draft>), Problem> {
        match (&self.file, &self.rows) {
            (Some(file), None) => Ok((data_file(state, file)?, None)),
            (None, Some(text)) => {
                refuse_named_images(run)?;
                let draft = Draft::of_rows(text)?;
                Ok((draft.path(), Some(draft)))
            }
            _ => Err(Problem::bad("rows", "rows: name a file, or send rows").hint("one of them, not both")),
        }
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
fn refuse_named_images(run: &Path) -> Result<(), Problem> {
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

/// A file that goes away with its holder, alone in a folder: what it names is looked for beside it, where nothing else is.
pub(super) struct Draft {
    folder: tempfile::TempDir,
    name: String,
}

impl Draft {
    pub(super) fn empty(name: &str) -> Result<Draft, Problem> {
        let folder = tempfile::Builder::new().prefix("plimsoll-").tempdir().map_err(|cause| unkept(&cause))?;
        Ok(Draft { folder, name: name.into() })
    }

    fn of(name: &str, text: &str) -> Result<Draft, Problem> {
        let draft = Draft::empty(name)?;
        fs::write(draft.path(), text).map_err(|cause| unkept(&cause))?;
        Ok(draft)
    }

    fn of_rows(text: &str) -> Result<Draft, Problem> {
        Draft::of(if text.trim_start().starts_with(['{', '[']) { "rows.jsonl" } else { "rows.csv" }, text)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// Words that name it as its sender would.
    pub(super) fn without_folder(&self, words: &str) -> String {
        words.replace(&format!("{}/", self.folder.path().display()), "")
    }
}

fn unkept(cause: &std::io::Error) -> Problem {
    Problem::failed(format!("what was sent cannot be kept: {cause}"))
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
    if complaint.text.is_none() && complaint.question.is_none() {
        return Err(Problem::bad("text", "text: there is nothing to advise on")
            .hint("send the end of a log with an out-of-memory error, a recipe, or both"));
    }
    let asked = state.clone();
    let (arguments, draft, text) = blocking(move || {
        let (arguments, draft) = complaint.arguments(&asked)?;
        Ok((arguments, draft, complaint.text))
    })
    .await?;
    let output = called(&state, &arguments, text.map(String::into_bytes)).await?;
    let output = output.reworded(|words| draft.as_ref().map_or(words.into(), |draft| draft.without_folder(words)));
    match parsed::<Value>(&output.stdout) {
        // Settings that do not fit are an answer too.
        Ok(answer) => Ok(Json(answer)),
        Err(_) => parsed(&output.answer().map_err(about_text)?).map(Json),
    }
}

/// A log that came through a pipe has no name.
fn about_text(problem: Problem) -> Problem {
    match problem.error.strip_prefix("-: ") {
        Some(cause) => Problem { error: format!("text: {cause}"), field: Some("text".into()), ..problem },
        None => problem,
    }
}

impl Complaint {
    /// What `plimsoll advise` is called with. The recipe's file lives until it is done.
    fn arguments(&self, state: &Shared) -> Result<(Vec<String>, Option<Draft>), Problem> {
        let allowed = &state.planner.allowed;
        let mut arguments = vec!["advise".to_string(), "--json".into(), "--explain".into()];
        arguments.extend(self.text.is_some().then(|| "--log=-".to_string()));
        let Some(question) = &self.question else { return Ok((arguments, None)) };
        let checked = question.check(allowed)?;
        state.planner.devices.find(&checked.device)?;
        let draft = Draft::of(&format!("{}.toml", question.stem()), &checked.text)?;
        arguments.push(draft.path().display().to_string());
        let dir = toml::Value::String(allowed.data().display().to_string());
        arguments.extend(checked.set.iter().cloned().chain([format!("dir={dir}")]).map(|set| format!("--set={set}")));
        arguments.extend(question.device.iter().filter(|name| *name != "auto").map(|name| format!("--device={name}")));
        Ok((arguments, Some(draft)))
    }
}

/// What looks at files or devices, or writes: elsewhere than where connections are answered.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let worked = tokio::task::spawn_blocking(work).await;
    worked.unwrap_or_else(|_| {
        Err(Problem::failed("plimsoll broke on this").hint("this is a defect of plimsoll: please report it"))
    })
}

pub(super) fn parsed<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|_| Problem::failed("plimsoll did not answer as it should"))
}
