//! A corpus for a language model.

use std::path::PathBuf;

use serde::Serialize;

use super::refuse_keys;
use crate::families::Input;
use crate::reading::about::{About, about};
use crate::reading::section::Section;

/// Windows of a corpus.
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

/// What each key means.
pub(in crate::recipe) const ABOUT: &[About] =
    &[about("data.text_field", "The field of a JSONL record that holds the text.")];

pub(super) const KEYS: [&str; 3] = ["max_length", "text_field", "tokenizer"];

/// Ids of the byte-level vocabulary: every byte, and the end of a text.
pub const BYTE_VOCABULARY: usize = 257;

impl Text {
    pub(super) fn read(section: &Section<'_>, input: Option<Input>) -> Self {
        refuse_keys(section, &KEYS, "a corpus");
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

    pub(super) fn check(&self, section: &Section<'_>, max_length: usize, vocab: usize) {
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
