//! Texts with labels.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::Serialize;

use super::{Source, batches, refuse_keys, usual_length};
use crate::families::Input;
use crate::reading::about::{About, about};
use crate::reading::kind::KeyKind;
use crate::reading::section::Section;
use crate::reading::tree::Value;
use plimsoll_base::batching::BadRows;
use plimsoll_base::batching::Batching;

/// Texts with labels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Labelled {
    /// Tokens per text, special ones included; what is longer is cut.
    pub max_length: usize,
    /// Present exactly when the source is a file.
    #[serde(flatten)]
    pub columns: Option<LabelledColumns>,
    /// A `tokenizer.json`; none given: that of the checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
    /// How samples share batches.
    #[serde(flatten)]
    pub batching: Batching,
}

/// Where a file has its texts and labels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LabelledColumns {
    /// The column of the text.
    pub text: String,
    /// A second text, separated from the first as the tokenizer says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_pair: Option<String>,
    /// The column of the label, or one for each output.
    pub label: Columns,
    /// Names of the classes in the order of the model's outputs; none given: those of the training file, sorted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    /// What becomes of rows that cannot be read.
    pub on_bad_row: BadRows,
}

impl LabelledColumns {
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let texts = [Some(&self.text), self.text_pair.as_ref()];
        texts.into_iter().flatten().chain(self.label.names()).map(String::as_str)
    }
}

/// One column with a label, a number or a list of them; or a column per output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Columns {
    /// A column.
    One(String),
    /// A column for each output.
    Many(Vec<String>),
}

impl Columns {
    /// Their names.
    pub fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Many(names) => names,
        }
    }
}

/// What each key means.
pub(in crate::recipe) const ABOUT: &[About] = &[
    about("data.text_pair", "The column with a second text, separated from the first as the tokenizer says.")
        .unset("there is no second text"),
    about("data.labels", "Names of the classes in the order of the model's outputs.")
        .unset("those of the training file, sorted"),
];

pub(super) const KEYS: [&str; 9] =
    ["max_length", "tokenizer", "text", "text_pair", "label", "labels", "on_bad_row", "buckets", "compose"];
/// Columns with one output each.
const OUTPUTS: RangeInclusive<usize> = 1..=65_536;
const COLUMN_KEYS: [&str; 5] = ["text", "text_pair", "label", "labels", "on_bad_row"];

impl Labelled {
    pub(super) fn read(section: &Section<'_>, source: Option<&Source>, input: Option<Input>) -> Self {
        refuse_keys(section, &KEYS, "labelled texts");
        let columns = match source {
            Some(Source::Synthetic { .. }) => {
                COLUMN_KEYS.into_iter().for_each(|key| section.not_with(key, "data made by code"));
                None
            }
            _ => Some(LabelledColumns::read(section)),
        };
        Self {
            max_length: section.size("max_length", 2..=1 << 20).unwrap_or(usual_length(input)),
            columns,
            tokenizer: section.file("tokenizer"),
            batching: batches::batching(section),
        }
    }
}

impl LabelledColumns {
    fn read(section: &Section<'_>) -> Self {
        let columns = Self {
            text: section.name("text").unwrap_or_else(|| "text".into()),
            text_pair: section.name("text_pair"),
            label: Columns::read(section).unwrap_or_else(|| Columns::One("label".into())),
            labels: section.names("labels", 1..=1_000_000),
            on_bad_row: section.choice("on_bad_row").unwrap_or(BadRows::Error),
        };
        let twice = columns.labels.iter().flatten().enumerate();
        for (at, label) in twice {
            if columns.labels.iter().flatten().take(at).any(|other| other == label) {
                section.refuse("labels", format!("label `{label}` is listed twice"), "list each label once");
                break;
            }
        }
        columns
    }
}

impl Columns {
    fn read(section: &Section<'_>) -> Option<Self> {
        section.declare("label", || KeyKind::any([KeyKind::Name, KeyKind::list(KeyKind::Name, &OUTPUTS)]));
        match section.get("label")?.value {
            Value::List(_) => section.names("label", OUTPUTS).map(Self::Many),
            _ => section.name("label").map(Self::One),
        }
    }
}
