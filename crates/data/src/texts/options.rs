//! What to read, and what the model makes of it.

use super::{Composition, LabelKind};
use crate::{
    DataError,
    formats::{self, Columns, RowReader, Wanted},
    series::check_fraction,
};
use plimsoll_base::formats::Format;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq)]
pub struct LabelledOptions {
    pub train: PathBuf,
    /// Of the training file; `None`: as its extension says.
    pub format: Option<Format>,
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
    /// What the model calls its classes already; they count where the file's labels are among them.
    pub known_labels: Option<Vec<String>>,
    pub kind: LabelKind,
    /// Outputs of the model.
    pub num_labels: usize,
    /// Tokens per text.
    pub max_length: usize,
    /// Ids that the model knows.
    pub vocab: usize,
    /// The id behind a text.
    pub pad: i32,
    /// Whether that token stands at no position of its own, so that the model cannot read it within a text.
    pub pad_has_no_place: bool,
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
            format: None,
            validation: None,
            validation_fraction: 0.1,
            text: "text".into(),
            text_pair: None,
            label: vec!["label".into()],
            labels: None,
            known_labels: None,
            kind: LabelKind::Single,
            num_labels,
            max_length,
            vocab,
            pad: 0,
            pad_has_no_place: false,
            types: false,
            skip_bad_rows: false,
            threads: all_threads(),
            memory_bytes: MEMORY_BYTES,
            composition,
        }
    }

    /// Columns of the texts, then those of the label.
    pub(super) fn columns(&self) -> Columns {
        Columns::new([&self.text].into_iter().chain(&self.text_pair).chain(&self.label).cloned())
    }

    /// Columns of the texts, then what rows are called.
    pub(super) fn asked_columns(&self, id: Option<&str>) -> Columns {
        let texts = [&self.text].into_iter().chain(&self.text_pair).cloned();
        with_id(texts.collect(), id)
    }

    /// Opens a file that is read as the training file is.
    pub(super) fn open(&self, file: &Path) -> Result<Box<dyn RowReader>, DataError> {
        self.open_for(file, &self.columns())
    }

    pub(super) fn open_for(&self, file: &Path, columns: &Columns) -> Result<Box<dyn RowReader>, DataError> {
        let format = Format::beside(file, &self.train, self.format);
        let pair = self.text_pair.iter().map(|name| (name.as_str(), "text_pair"));
        let label = self.label.iter().map(|name| (name.as_str(), "label"));
        let keys: Vec<_> = [(self.text.as_str(), "text")].into_iter().chain(pair).chain(label).collect();
        formats::open(file, format, Wanted::TEXTS, columns).map_err(|error| error.named_by(&keys))
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

/// Columns, and last the one with what rows are called.
pub(super) fn with_id(mut names: Vec<String>, id: Option<&str>) -> Columns {
    match id {
        None => Columns::new(names),
        Some(id) => {
            names.push(id.into());
            Columns::new(names).with_exact_last()
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct PairsOptions {
    pub train: PathBuf,
    /// Of the training file; `None`: as its extension says.
    pub format: Option<Format>,
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
            format: None,
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

    pub(super) fn columns(&self) -> Columns {
        Columns::new([self.source.clone(), self.target.clone()])
    }

    /// Opens a file that is read as the training file is.
    pub(super) fn open(&self, file: &Path, columns: &Columns) -> Result<Box<dyn RowReader>, DataError> {
        let format = Format::beside(file, &self.train, self.format);
        let keys = [(self.source.as_str(), "text"), (self.target.as_str(), "target")];
        formats::open(file, format, Wanted::TEXTS, columns).map_err(|error| error.named_by(&keys))
    }

    pub(super) fn check(&self) -> Result<(), DataError> {
        check_fraction(self.validation_fraction)?;
        if self.max_length < 2 || self.max_target_length < 2 {
            return Err(DataError::option("max_length", "a text needs room for a token and its end"));
        }
        Ok(())
    }
}
