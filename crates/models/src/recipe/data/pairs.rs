//! Source and target texts.

use std::path::PathBuf;

use serde::Serialize;

use super::{Source, batches, refuse_keys, usual_length};
use crate::families::Input;
use crate::reading::about::{About, about};
use crate::reading::section::Section;
use plimsoll_base::batching::{BadRows, Batching};

/// Texts and what they are to become.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pairs {
    /// Tokens of a source, special ones included; what is longer is cut.
    pub max_length: usize,
    /// Tokens of a target, its end included.
    pub max_target_length: usize,
    /// Written before every source: "summarize: ".
    pub prefix: String,
    /// Present exactly when the source is a file.
    #[serde(flatten)]
    pub columns: Option<PairColumns>,
    /// A `tokenizer.json`; none given: that of the checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
    /// How samples share batches.
    #[serde(flatten)]
    pub batching: Batching,
}

/// Where a file has its texts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PairColumns {
    /// The column of the source; `source` is the key for data made by code.
    pub text: String,
    /// The column of what the text is to become.
    pub target: String,
    /// What becomes of rows that cannot be read.
    pub on_bad_row: BadRows,
}

/// What each key means.
pub(in crate::recipe) const ABOUT: &[About] = &[
    about("data.max_target_length", "Tokens of a target, its end included; what is longer is cut."),
    about("data.prefix", "Written before every source, such as `summarize: `."),
    about("data.target", "The column with the target."),
];

pub(super) const KEYS: [&str; 9] =
    ["max_length", "max_target_length", "prefix", "tokenizer", "text", "target", "on_bad_row", "buckets", "compose"];

impl Pairs {
    pub(super) fn read(section: &Section<'_>, source: Option<&Source>, input: Option<Input>) -> Self {
        refuse_keys(section, &KEYS, "pairs of texts");
        let columns = match source {
            Some(Source::Synthetic { .. }) => {
                ["text", "target", "on_bad_row"].into_iter().for_each(|k| section.not_with(k, "data made by code"));
                None
            }
            _ => Some(PairColumns {
                text: section.name("text").unwrap_or_else(|| "source".into()),
                target: section.name("target").unwrap_or_else(|| "target".into()),
                on_bad_row: section.choice("on_bad_row").unwrap_or(BadRows::Error),
            }),
        };
        Self {
            max_length: section.size("max_length", 2..=1 << 20).unwrap_or(usual_length(input)),
            max_target_length: section.size("max_target_length", 2..=1 << 20).unwrap_or(128),
            prefix: section.text("prefix").unwrap_or_default(),
            columns,
            tokenizer: section.file("tokenizer"),
            batching: batches::batching(section),
        }
    }
}
