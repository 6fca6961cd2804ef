//! What to read, and what the model makes of it.

use super::{Composition, LabelKind};
use crate::DataError;
use crate::series::check_fraction;
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq)]
pub struct LabelledOptions {
    /// JSONL, CSV or Parquet.
    pub train: PathBuf,
    /// Without it, a shuffled `validation_fraction` of the training file.
    pub validation: Option<PathBuf>,
    pub validation_fraction: f64,
    /// The column of the text.
    pub text: String,
    /// The column of a second text.
    pub text_pair: Option<String>,
    /// The columns of the label: one, or one per output.
    pub label: Vec<String>,
    /// Names of the classes in order; `None`: those of the training file, sorted.
    pub labels: Option<Vec<String>>,
    pub kind: LabelKind,
    /// Outputs of the model.
    pub num_labels: usize,
    /// Tokens per text.
    pub max_length: usize,
    /// Ids that the model knows.
    pub vocab: usize,
    /// The id behind a text.
    pub pad: i32,
    /// Whether the model tells segments apart.
    pub types: bool,
    /// Leave out rows that cannot be used.
    pub skip_bad_rows: bool,
    /// Threads that tokenize before training.
    pub threads: usize,
    /// Larger files are not tokenized before training.
    pub memory_bytes: u64,
    /// For the report.
    pub composition: Composition,
}

/// Files up to this size are tokenized before training.
const MEMORY_BYTES: u64 = 1 << 30;

/// Threads that this machine has.
fn all_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl LabelledOptions {
    /// One class per text, a tenth held out, and the columns `text` and `label`.
    pub fn new(
        train: impl Into<PathBuf>,
        num_labels: usize,
        max_length: usize,
        vocab: usize,
        composition: Composition,
    ) -> Self {
        LabelledOptions {
            train: train.into(),
            validation: None,
            validation_fraction: 0.1,
            text: "text".into(),
            text_pair: None,
            label: vec!["label".into()],
            labels: None,
            kind: LabelKind::Single,
            num_labels,
            max_length,
            vocab,
            pad: 0,
            types: false,
            skip_bad_rows: false,
            threads: all_threads(),
            memory_bytes: MEMORY_BYTES,
            composition,
        }
    }

    /// Columns of the texts, then those of the label.
    pub(super) fn columns(&self) -> Vec<String> {
        [&self.text].into_iter().chain(&self.text_pair).chain(&self.label).cloned().collect()
    }

    pub(super) fn check(&self) -> Result<(), DataError> {
        check_fraction(self.validation_fraction)?;
        let (columns, outputs) = (self.label.len(), self.num_labels);
        let named = |cause: String| Err(DataError::option("label", cause));
        match self.kind {
            LabelKind::Single if columns > 1 => named("one class per text needs one column".into()),
            _ if columns > 1 && columns != outputs => {
                named(format!("{columns} columns are named, the model has {outputs} outputs"))
            }
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct PairsOptions {
    /// JSONL, CSV or Parquet.
    pub train: PathBuf,
    /// Without it, a shuffled `validation_fraction` of the training file.
    pub validation: Option<PathBuf>,
    pub validation_fraction: f64,
    /// The columns of the two texts.
    pub source: String,
    pub target: String,
    /// Written before every source.
    pub prefix: String,
    pub max_length: usize,
    pub max_target_length: usize,
    /// Ids that the model knows.
    pub vocab: usize,
    /// Ids of the model: behind a text, at its end, and where the decoder starts.
    pub pad: i32,
    pub eos: u32,
    pub decoder_start: i32,
    /// Leave out rows that cannot be used.
    pub skip_bad_rows: bool,
    /// Threads that tokenize before training.
    pub threads: usize,
    /// Larger files are not tokenized before training.
    pub memory_bytes: u64,
    /// For the report.
    pub composition: Composition,
}

impl PairsOptions {
    /// Columns `source` and `target`, a tenth held out, T5's ids.
    pub fn new(
        train: impl Into<PathBuf>,
        max_length: usize,
        max_target_length: usize,
        vocab: usize,
        composition: Composition,
    ) -> Self {
        PairsOptions {
            train: train.into(),
            validation: None,
            validation_fraction: 0.1,
            source: "source".into(),
            target: "target".into(),
            prefix: String::new(),
            max_length,
            max_target_length,
            vocab,
            pad: 0,
            eos: 1,
            decoder_start: 0,
            skip_bad_rows: false,
            threads: all_threads(),
            memory_bytes: MEMORY_BYTES,
            composition,
        }
    }

    pub(super) fn columns(&self) -> Vec<String> {
        vec![self.source.clone(), self.target.clone()]
    }

    pub(super) fn check(&self) -> Result<(), DataError> {
        check_fraction(self.validation_fraction)?;
        if self.max_length < 2 || self.max_target_length < 2 {
            return Err(DataError::option("max_length", "a text needs room for a token and its end"));
        }
        Ok(())
    }
}
