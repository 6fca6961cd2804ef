//! What a training can begin with, and a recipe for it.

use super::tools::{Draft, LONGEST_PATH, blocking, parsed};
use crate::jobs::Output;
use crate::planning::{Allowed, DataFiles, files};
use crate::problem::{Problem, Sent, argument};
use crate::state::Shared;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Data, folders of images and checkpoints
///
/// Those of the data folder, as a recipe names them.
#[utoipa::path(get, path = "/files", tag = "recipes", responses((status = 200, description = "By their paths", body = DataFiles)))]
pub(super) async fn list(State(state): State<Shared>) -> Result<Json<DataFiles>, Problem> {
    let found = tokio::task::spawn_blocking(move || files(&state.planner.allowed)).await;
    found.map(Json).map_err(|_| Problem::failed("the data folder cannot be read"))
}

const LONGEST_FAMILY: usize = 64;

/// What to propose a recipe for: data, a checkpoint, or both.
/// A family by itself is one too: its data is made by code.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Beginning {
    /// A data file or a folder of images under the data folder.
    #[schema(max_length = 4095)]
    data: Option<String>,
    /// A Hugging Face folder under the data folder.
    #[schema(max_length = 4095)]
    checkpoint: Option<String>,
    /// The architecture, where not the checkpoint or the data is to choose it.
    #[schema(max_length = 64)]
    family: Option<String>,
}

/// A recipe that was proposed.
#[derive(Serialize, ToSchema)]
pub(crate) struct Proposal {
    /// Commented TOML text.
    recipe: String,
    family: String,
    task: String,
}

/// What `plimsoll init --json` says.
#[derive(Deserialize)]
struct Written {
    family: String,
    task: String,
}

/// A recipe for data, a checkpoint or a family
///
/// As `plimsoll init`: it looks at what is there and proposes family, columns and sizes. Nothing is kept.
#[utoipa::path(post, path = "/plan/proposal", tag = "recipes", request_body = Beginning,
    responses((status = 200, description = "The recipe", body = Proposal)))]
pub(super) async fn propose(
    State(state): State<Shared>,
    Sent(beginning): Sent<Beginning>,
) -> Result<Json<Proposal>, Problem> {
    let asked = state.clone();
    let (beginning, draft, arguments) = blocking(move || {
        let draft = Draft::empty("recipe.toml")?;
        let arguments = beginning.arguments(&asked.planner.allowed, &draft)?;
        Ok((beginning, draft, arguments))
    })
    .await?;
    let output = state.tools.run(&arguments, None).await?;
    blocking(move || beginning.proposal(output, &draft, &state.planner.allowed)).await.map(Json)
}

impl Beginning {
    fn arguments(&self, allowed: &Allowed, draft: &Draft) -> Result<Vec<String>, Problem> {
        let mut arguments = vec!["init".to_string(), "--json".into(), format!("--out={}", draft.path().display())];
        for (name, path) in [("data", &self.data), ("checkpoint", &self.checkpoint)] {
            let Some(path) = path else { continue };
            argument(name, path, LONGEST_PATH)?;
            let real = allowed.check_path(name, path.as_ref())?;
            arguments.push(format!("--{name}={}", real.display()));
        }
        if arguments.len() == 3 && self.family.is_none() {
            return Err(Problem::bad("data", "data: name data, a checkpoint or a family")
                .hint("GET /files lists what there is, GET /presets the families"));
        }
        if let Some(family) = &self.family {
            argument("family", family, LONGEST_FAMILY)?;
            if !family.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
                return Err(unknown_family(family));
            }
            arguments.push(format!("--family={family}"));
        }
        Ok(arguments)
    }

    /// What was written, in the words of who asked.
    fn proposal(&self, output: Output, draft: &Draft, allowed: &Allowed) -> Result<Proposal, Problem> {
        let output = output.reworded(|words| allowed.without_folders(&draft.without_folder(words)));
        let Written { family, task } = parsed(&output.answer().map_err(|problem| self.explain(problem))?)?;
        let written = std::fs::read_to_string(draft.path());
        let recipe = written.map_err(|cause| Problem::failed(format!("the recipe cannot be read: {cause}")))?;
        Ok(Proposal { recipe: allowed.relative(&recipe), family, task })
    }

    /// Whose fault it is, and what can be done about it from here.
    fn explain(&self, problem: Problem) -> Problem {
        if let Some(family) = self.family.as_ref().filter(|_| problem.error.contains("--family")) {
            return unknown_family(family);
        }
        if problem.status != StatusCode::UNPROCESSABLE_ENTITY.as_u16() {
            return problem;
        }
        let told = problem.hint.is_some();
        let problem = problem.field(if self.data.is_some() { "data" } else { "checkpoint" });
        if told { problem } else { problem.hint("name the family, or begin with a recipe of that family") }
    }
}

fn unknown_family(family: &str) -> Problem {
    let shown: String = family.chars().filter(|c| !c.is_control()).take(64).collect();
    Problem::bad("family", format!("family: there is no architecture `{shown}`"))
        .hint("GET /presets names one for each model")
}
