//! What several tasks need of a recipe: options of its loader, files, tokenizers, what its family can do.

use super::Task;
use crate::RunError;
use plimsoll_base::formats::Format;
use plimsoll_data::{Composition, DataError, Dataset, LoaderOptions, TextTokenizer};
use plimsoll_models::families::{Decoder, Input};
use plimsoll_models::recipe::{Budget, Recipe, Source, Synthetic, Validation};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How batches come: shuffled by the recipe's seed, a bounded number ahead.
pub fn loader_options(recipe: &Recipe) -> LoaderOptions {
    LoaderOptions {
        batch: recipe.train.effective_batch,
        workers: recipe.data.workers,
        prefetch: recipe.data.prefetch,
        shuffle: Some(recipe.train.seed),
        epochs: None,
        compose: recipe.data.batching().compose,
        buckets: recipe.data.batching().buckets,
    }
}

pub(super) fn refused<T>(cause: impl Into<String>, hint: impl Into<String>) -> Result<T, RunError> {
    Err(RunError::Refused { cause: cause.into(), hint: hint.into() })
}

pub(super) fn fraction(recipe: &Recipe) -> f64 {
    if let Validation::Fraction(fraction) = recipe.data.validation { fraction } else { 0.0 }
}

pub(super) fn validation_file(recipe: &Recipe) -> Option<PathBuf> {
    match &recipe.data.validation {
        Validation::File(file) => Some(recipe.resolve_path(file)),
        Validation::Fraction(_) => None,
    }
}

pub(super) fn optional(dataset: impl Dataset + 'static) -> Option<Arc<dyn Dataset>> {
    if dataset.is_empty() { None } else { Some(Arc::new(dataset)) }
}

/// What samples may take in memory, where the recipe that loads them says so.
pub(super) fn most_bytes(recipe: &Recipe) -> Option<u64> {
    if let Budget::Bytes(bytes) = recipe.memory.budget { Some(bytes) } else { None }
}

/// A source of another kind than the model reads.
pub(super) fn wrong_source<T>(name: Synthetic, use_instead: &str) -> Result<T, RunError> {
    refused(format!("{name} is not what this model reads"), format!("use source = \"{use_instead}\""))
}

/// A family that cannot do what the data is for.
pub(super) fn unsuited(recipe: &Recipe) -> RunError {
    RunError::Refused {
        cause: format!("{} does not learn from this kind of data", recipe.model.name()),
        hint:
            "series for hybrid-cnn-lstm, text for mu-sota, labelled texts for encoders, pairs for t5, images for clip"
                .into(),
    }
}

pub(super) fn decoder(recipe: &Recipe) -> Result<&dyn Decoder, RunError> {
    recipe.model.family().decoder().ok_or_else(|| unsuited(recipe))
}

pub(super) fn vocabulary_size(recipe: &Recipe) -> Result<usize, RunError> {
    match recipe.model.family().input() {
        Input::Tokens { vocab, .. } => Ok(vocab),
        _ => Err(unsuited(recipe)),
    }
}

/// Where the tokenizer of a recipe is: what it names, or what its checkpoint brings.
pub(super) fn tokenizer_file(task: &dyn Task) -> Result<PathBuf, RunError> {
    let recipe = task.recipe();
    if let Some(file) = task.tokenizer() {
        return Ok(recipe.resolve_path(file));
    }
    let checkpoint = recipe.model.origin().and_then(|origin| origin.checkpoint.as_ref());
    match checkpoint {
        Some(folder) => Ok(recipe.resolve_path(folder).join("tokenizer.json")),
        None => Err(DataError::NoTokenizer {
            cause: "the recipe names neither data.tokenizer nor a checkpoint that brings one".into(),
        }
        .into()),
    }
}

/// None for data made by code, unless the recipe names one: its words make their own.
pub(super) fn tokenizer(task: &dyn Task) -> Result<Option<TextTokenizer>, RunError> {
    match (&task.recipe().data.source, task.tokenizer()) {
        (Source::Synthetic { .. }, None) => Ok(None),
        _ => Ok(Some(TextTokenizer::open(&tokenizer_file(task)?)?)),
    }
}

/// The run's own copy, or what the recipe's data brings.
pub(super) fn tokenizer_of_run(task: &dyn Task, run: &Path) -> Result<TextTokenizer, RunError> {
    let own = run.join("model/tokenizer.json");
    if own.exists() {
        return Ok(TextTokenizer::open(&own)?);
    }
    match task.load()?.extras.tokenizer {
        Some(tokenizer) => Ok(TextTokenizer::from_json(&own, tokenizer.json().to_string())?),
        None => Err(damaged(&own, "the run has no tokenizer")),
    }
}

pub(super) fn damaged(path: &Path, cause: &str) -> RunError {
    RunError::Refused { cause: format!("{}: {cause}", path.display()), hint: "train again, or restore the file".into() }
}

pub(super) fn composition(recipe: &Recipe) -> Composition {
    Composition { batch: recipe.train.effective_batch, seed: recipe.train.seed, batching: recipe.data.batching() }
}

/// The training file and what is said of its format; neither for data made by code.
pub(super) fn file(recipe: &Recipe) -> (PathBuf, Option<Format>) {
    match &recipe.data.source {
        Source::File { train, format } => (recipe.resolve_path(train), *format),
        Source::Synthetic { .. } => (PathBuf::new(), None),
    }
}
