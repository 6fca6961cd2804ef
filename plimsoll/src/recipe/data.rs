//! `[data]`: where samples come from and how they are cut.

use std::path::PathBuf;

use serde::Serialize;

use super::names::named;
use super::section::{Range, Section};
use super::train::Task;
use super::tree::Node;
use super::{Model, model::Input};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Data {
    #[serde(flatten)]
    pub source: Source,
    pub validation: Validation,
    #[serde(flatten)]
    pub kind: Kind,
    /// Threads that prepare batches.
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
    pub columns: Option<Vec<String>>,
    /// A column that must ascend.
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
    pub tokenizer: Option<PathBuf>,
}
