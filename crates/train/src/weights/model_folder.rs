//! The folder of a trained model: in Hugging Face's layout where the family has one, otherwise weights, sizes and what
//! turns inputs and outputs into something readable.

use crate::RunError;
use crate::checkpoints;
use crate::loaded::Extras;
use crate::weights::export::{CONFIG, NORMALIZER, TOKENIZER, WEIGHTS, copy_into, is_exported};
use crate::weights::{Export, LoadReport, SHARD_BYTES, check_names, load_into};
use plimsoll_base::folders::FolderDraft;
use plimsoll_core::plan::Program;
use plimsoll_data::Normalizer;
use plimsoll_exec::Executor;
use plimsoll_models::families::HuggingFace;
use plimsoll_models::hf::{Checkpoint, HfError};
use plimsoll_models::recipe::Recipe;
use plimsoll_planner::Device;
use plimsoll_planner::choose as setup;
use std::io;
use std::path::{Path, PathBuf};

/// Where the weights of a recipe start, if not at random.
pub(crate) fn source_checkpoint(recipe: &Recipe) -> Option<PathBuf> {
    let folder = recipe.model.origin()?.checkpoint.as_ref()?;
    Some(recipe.resolve_path(folder))
}

/// Fills the program's weights from a folder in Hugging Face's layout.
pub(crate) fn load_folder(
    dir: &Path,
    names: &HuggingFace,
    program: &Program,
    executor: &mut dyn Executor,
) -> Result<LoadReport, RunError> {
    load_into(&Checkpoint::open(dir)?, program, names, executor)
}

/// Refuses a checkpoint that lacks tensors of the recipe's model before anything is planned for it.
pub(crate) fn check_folder(recipe: &Recipe, device: &Device) -> Result<(), RunError> {
    let (Some(folder), Some(names)) = (source_checkpoint(recipe), recipe.model.family().hugging_face()) else {
        return Ok(());
    };
    check_names(&Checkpoint::open(&folder)?, &setup::parameters(recipe, device)?, &names)
}

/// What goes into the folder beside weights and sizes.
pub struct Companions<'a> {
    /// A folder in Hugging Face's layout that the model came from.
    pub source: Option<PathBuf>,
    pub tokenizer: Option<TokenizerSource>,
    /// Names of labels, by number; none: those of the source.
    pub labels: &'a [String],
    pub normalizer: Option<&'a Normalizer>,
}

pub enum TokenizerSource {
    File(PathBuf),
    /// Made by code.
    Json(String),
}

impl<'a> Companions<'a> {
    /// Those of a run that ends now; `named` is the tokenizer that its recipe names.
    pub(crate) fn of_run(recipe: &Recipe, extras: &'a Extras, named: Option<&Path>) -> Companions<'a> {
        let source = source_checkpoint(recipe).filter(|folder| folder.exists());
        let named = named.map(|file| TokenizerSource::File(recipe.resolve_path(file)));
        let made = || match source {
            // A checkpoint brings its tokenizer's other files too: they are copied together.
            Some(_) => None,
            None => extras.tokenizer.as_ref().map(|t| t.json().to_string()).or_else(|| extras.made_tokenizer.clone()),
        };
        let tokenizer = named.or_else(|| made().map(TokenizerSource::Json));
        Companions { source, tokenizer, labels: &extras.classes, normalizer: extras.normalizer.as_ref() }
    }
}

/// Writes the folder `dir`, whole or not at all.
pub(crate) fn write_folder(
    dir: &Path,
    recipe: &Recipe,
    program: &Program,
    executor: &dyn Executor,
    companions: &Companions<'_>,
) -> Result<(), RunError> {
    let Some(names) = setup::family(&recipe.model).hugging_face() else {
        return Ok(write_own(dir, recipe, program, executor, companions)?);
    };
    let (file, made): (Option<&Path>, Vec<(&str, &[u8])>) = match &companions.tokenizer {
        Some(TokenizerSource::File(file)) => (Some(file), Vec::new()),
        Some(TokenizerSource::Json(json)) => (None, vec![(TOKENIZER, json.as_bytes())]),
        None => (None, Vec::new()),
    };
    let export = Export {
        program,
        executor,
        names: &names,
        model: &recipe.model,
        source: companions.source.as_deref(),
        tokenizer: file,
        labels: companions.labels,
        extras: &made,
        shard_bytes: SHARD_BYTES,
    };
    export.write(dir)?;
    Ok(())
}

/// The layout of the families that are ours alone.
fn write_own(
    dir: &Path,
    recipe: &Recipe,
    program: &Program,
    executor: &dyn Executor,
    companions: &Companions<'_>,
) -> Result<(), HfError> {
    let draft = FolderDraft::begin(dir, &is_exported)?;
    let io = |cause: io::Error| HfError::Write { path: dir.into(), cause };
    checkpoints::write_model(&draft.path().join(WEIGHTS), program, executor).map_err(io)?;
    let config = serde_json::to_vec_pretty(&recipe.model).map_err(|e| io(e.into()))?;
    draft.write(CONFIG, &config).map_err(io)?;
    if let Some(normalizer) = companions.normalizer {
        let text = serde_json::to_vec_pretty(normalizer).map_err(|e| io(e.into()))?;
        draft.write(NORMALIZER, &text).map_err(io)?;
    }
    if let Some(TokenizerSource::File(file)) = &companions.tokenizer {
        copy_into(&draft, TOKENIZER, file)?;
    }
    Ok(draft.publish()?)
}
