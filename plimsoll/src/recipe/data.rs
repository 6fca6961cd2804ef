//! `[data]`: where samples come from and how they are cut.

mod batches;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::model::{Input, Model};
use super::names::named;
use super::section::{Range, Section};
use super::train::Task;
use super::tree::Value;
pub use batches::{Batching, Buckets, Compose};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Data {
    #[serde(flatten)]
    pub source: Source,
    pub validation: Validation,
    #[serde(flatten)]
    pub kind: Kind,
    /// Threads that prepare batches; with 0 the training thread does.
    pub workers: usize,
    /// Effective batches prepared ahead, at most.
    pub prefetch: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Source {
    /// As written in the recipe; `Recipe::resolve_path` finds it.
    File { train: PathBuf, format: Format },
    Synthetic {
        #[serde(rename = "source")]
        name: Synthetic,
        /// Rows of the series, or lines of the corpus.
        samples: usize,
        seed: u64,
    },
}

named! {
    pub enum Format { Csv = "csv", Jsonl = "jsonl", Parquet = "parquet", Text = "text" }
}

named! {
    pub enum Synthetic { Regimes = "synthetic:regimes", Grammar = "synthetic:grammar" }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Validation {
    /// The last part of the training data, in time or in file order; 0 is none.
    Fraction(f64),
    File(PathBuf),
}

impl Validation {
    pub fn is_none(&self) -> bool {
        *self == Self::Fraction(0.0)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Kind {
    Series(Series),
    Text(Text),
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Feature columns in this order; none given: all numeric columns but label and time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// A column that must ascend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Present exactly when the source is a file.
    #[serde(flatten)]
    pub label: Option<Label>,
    /// Rows from one window to the next.
    pub stride: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Label {
    /// A column with the class at each row.
    #[serde(rename = "label")]
    Column(String),
    #[serde(rename = "label_from")]
    Derived(DerivedLabel),
}

/// Classes down, flat, up: the relative change of `column` over the next `horizon` rows against ±`threshold`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DerivedLabel {
    pub column: String,
    pub horizon: usize,
    pub threshold: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Text {
    /// Tokens per sample.
    pub max_length: usize,
    /// The field of a JSONL record that holds the text.
    pub text_field: String,
    /// A `tokenizer.json`; none given: bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
}

const SYNTHETIC_KEYS: [&str; 2] = ["samples", "seed"];
const SERIES_KEYS: [&str; 5] = ["columns", "time", "label", "label_from", "stride"];
const TEXT_KEYS: [&str; 3] = ["max_length", "text_field", "tokenizer"];

/// Ids of the byte-level vocabulary: every byte, and the end of a text.
pub const BYTE_VOCABULARY: usize = 257;

impl Data {
    /// `None` where there is no source; where other values were refused, defaults stand in for them.
    pub(super) fn read(section: &Section<'_>, task: Task, model: Option<&Model>) -> Option<Self> {
        let input = model.map(|m| m.family().input());
        let source = Source::read(section, task);
        let (kind, part) = match task {
            Task::Series => (Kind::Series(Series::read(section, source.as_ref())), 0.2),
            _ => (Kind::Text(Text::read(section, task, input)), 0.1),
        };
        let validation = Validation::read(section, part);
        let workers = section.size("workers", 0..=256).unwrap_or(2);
        let prefetch = section.size("prefetch", 1..=1024).unwrap_or(2);
        section.finish();
        Some(Self { source: source?, validation, kind, workers, prefetch })
    }

    /// How samples share batches.
    pub fn batching(&self) -> Batching {
        match &self.kind {
            Kind::Series(_) | Kind::Text(_) => Batching::EQUAL,
        }
    }

    /// Reports data that does not go with the model.
    pub(super) fn check(&self, section: &Section<'_>, input: Input) {
        match (&self.kind, input) {
            (Kind::Series(series), Input::Series { features, classes, .. }) => series.check(section, features, classes),
            (Kind::Text(text), Input::Tokens { max_length, vocab }) => text.check(section, max_length, vocab),
            // The task, already checked against the family, decides both sides.
            _ => {}
        }
    }
}

impl Source {
    fn read(section: &Section<'_>, task: Task) -> Option<Self> {
        let train = section.file("train");
        let synthetic = section.choice::<Synthetic>("source");
        section.know(&["format"]);
        section.know(&SYNTHETIC_KEYS);
        match (section.has("train"), section.has("source")) {
            (true, false) => Self::file(section, task, train?),
            (false, true) => Self::synthetic(section, task, synthetic?),
            (true, true) => {
                let hint = "keep `train` for a file, or `source` for data made by code";
                section.refuse("source", "`train` and `source` exclude each other", hint);
                None
            }
            (false, false) => {
                let hint =
                    "name a file, train = \"data/train.csv\", or data made by code, source = \"synthetic:regimes\"";
                section.require::<()>("train", None, hint);
                None
            }
        }
    }

    fn file(section: &Section<'_>, task: Task, train: PathBuf) -> Option<Self> {
        for key in SYNTHETIC_KEYS {
            section.not_with(key, "data from a file");
        }
        let format = match section.get("format") {
            Some(node) => section.choice_of("format", node, &[])?,
            None => Format::of(section, &train)?,
        };
        let fits = match task {
            Task::Series => format != Format::Text,
            _ => matches!(format, Format::Text | Format::Jsonl),
        };
        if !fits {
            let at = if section.has("format") { "format" } else { "train" };
            section.refuse(
                at,
                format!("task `{task}` cannot read {format}"),
                "series: csv, jsonl, parquet; text: text, jsonl",
            );
        }
        Some(Self::File { train, format })
    }

    fn synthetic(section: &Section<'_>, task: Task, name: Synthetic) -> Option<Self> {
        section.not_with("format", "data made by code");
        let fits = match name {
            Synthetic::Regimes => task == Task::Series,
            Synthetic::Grammar => task == Task::LanguageModel,
        };
        if !fits {
            let hint = "series: \"synthetic:regimes\"; language-model: \"synthetic:grammar\"";
            section.refuse("source", format!("\"{name}\" does not go with task `{task}`"), hint);
        }
        let samples = section.size("samples", 1..=100_000_000).unwrap_or(20_000);
        Some(Self::Synthetic { name, samples, seed: section.seed("seed").unwrap_or(1) })
    }
}

impl Format {
    /// By the extension of the file.
    fn of(section: &Section<'_>, path: &Path) -> Option<Self> {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
        let format = match extension.as_str() {
            "csv" => Some(Self::Csv),
            "jsonl" | "ndjson" => Some(Self::Jsonl),
            "parquet" => Some(Self::Parquet),
            "txt" | "text" | "md" => Some(Self::Text),
            _ => None,
        };
        if format.is_none() {
            let hint = "say it with format = \"csv\", \"jsonl\", \"parquet\" or \"text\"";
            section.refuse("train", "the format does not follow from the file's extension", hint);
        }
        format
    }
}

impl Validation {
    fn read(section: &Section<'_>, default: f64) -> Self {
        let Some(node) = section.get("validation") else { return Self::Fraction(default) };
        let read = match &node.value {
            Value::Text(_) => section.file("validation").map(Self::File),
            _ => section.number_of("validation", node, Range::closed(0.0, 0.9)).map(Self::Fraction),
        };
        read.unwrap_or(Self::Fraction(default))
    }
}

impl Series {
    fn read(section: &Section<'_>, source: Option<&Source>) -> Self {
        section.know(&SERIES_KEYS);
        for key in TEXT_KEYS {
            section.not_with(key, "a series");
        }
        if let Some(Source::Synthetic { .. }) = source {
            for key in ["columns", "time", "label", "label_from"] {
                section.not_with(key, "data made by code");
            }
        }
        Self {
            columns: section.names("columns", 1..=65_536),
            time: section.name("time"),
            label: if let Some(Source::File { .. }) = source { Label::read(section) } else { None },
            stride: section.size("stride", 1..=1_000_000).unwrap_or(1),
        }
    }

    fn check(&self, section: &Section<'_>, features: usize, classes: usize) {
        if let Some(columns) = &self.columns {
            self.check_columns(section, columns, features);
        }
        if matches!(self.label, Some(Label::Derived(_))) && classes != 3 {
            let cause = format!("a derived label has 3 classes (down, flat, up), the model has {classes}");
            section.refuse("label_from", cause, "set model.classes = 3");
        }
    }

    fn check_columns(&self, section: &Section<'_>, columns: &[String], features: usize) {
        let mut seen = HashSet::new();
        if let Some(twice) = columns.iter().find(|c| !seen.insert(c.as_str())) {
            section.refuse("columns", format!("column `{twice}` is listed twice"), "list each column once");
        }
        let label = match &self.label {
            Some(Label::Column(label)) => Some(label),
            _ => None,
        };
        if let Some(label) = label.filter(|l| columns.contains(l)) {
            let cause = format!("the label `{label}` is among the features: the model would see the answer");
            section.refuse("columns", cause, "remove it from `columns`");
        }
        if columns.len() != features {
            let cause = format!("{} columns are listed, the model has {features} features", columns.len());
            section.refuse("columns", cause, format!("set model.features = {}", columns.len()));
        }
    }
}

impl Label {
    /// Exactly one of `label` and `label_from`.
    fn read(section: &Section<'_>) -> Option<Self> {
        let column = section.name("label").map(Self::Column);
        let derived = section.section("label_from").map(|s| Self::Derived(DerivedLabel::read(&s)));
        match (section.has("label"), section.has("label_from")) {
            (true, true) => {
                section.refuse("label_from", "`label` and `label_from` exclude each other", "keep one of them");
            }
            (false, false) => {
                let hint = "name the column with the classes, label = \"target\", or derive them, \
                            label_from = { column = \"close\", horizon = 1 }";
                section.require::<()>("label", None, hint);
            }
            _ => {}
        }
        column.or(derived)
    }
}

impl DerivedLabel {
    fn read(section: &Section<'_>) -> Self {
        let column = section.name("column");
        let label = Self {
            column: section.require("column", column, "for example column = \"close\"").unwrap_or_default(),
            horizon: section.size("horizon", 1..=1_000_000).unwrap_or(1),
            threshold: section.number("threshold", Range::closed(0.0, 1e6)).unwrap_or(0.0),
        };
        section.finish();
        label
    }
}

impl Text {
    fn read(section: &Section<'_>, task: Task, input: Option<Input>) -> Self {
        section.know(&TEXT_KEYS);
        for key in SERIES_KEYS {
            section.not_with(key, format!("task `{task}`"));
        }
        let longest = match input {
            Some(Input::Tokens { max_length, .. }) => max_length,
            _ => 512,
        };
        Self {
            max_length: section.size("max_length", 2..=1 << 20).unwrap_or(longest),
            text_field: section.name("text_field").unwrap_or_else(|| "text".into()),
            tokenizer: section.file("tokenizer"),
        }
    }

    fn check(&self, section: &Section<'_>, max_length: usize, vocab: usize) {
        if self.max_length > max_length {
            let cause = format!("{} tokens are more than the model's max_length of {max_length}", self.max_length);
            section.refuse("max_length", cause, format!("at most {max_length}, or a larger model.max_length"));
        }
        if self.tokenizer.is_none() && vocab < BYTE_VOCABULARY {
            let cause = format!("bytes need a vocabulary of {BYTE_VOCABULARY}, the model has {vocab}");
            section.refuse(
                "tokenizer",
                cause,
                format!("set model.vocab = {BYTE_VOCABULARY}, or name a tokenizer.json"),
            );
        }
    }
}
