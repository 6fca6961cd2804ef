//! Images with captions.

use std::path::PathBuf;

use serde::Serialize;

use super::{refuse_keys, usual_length};
use crate::families::Input;
use crate::reading::about::{About, about};
use crate::reading::section::Section;
use plimsoll_base::batching::BadRows;

/// Images with captions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Captions {
    /// Tokens of a caption, special ones included; shorter ones are padded to it.
    pub max_length: usize,
    /// A `tokenizer.json`; none given: that of the checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
    /// Column with the image's path, relative to the file.
    pub image: String,
    /// The column of the caption.
    pub caption: String,
    /// The caption of an image in a class folder that has no text beside it; `{}` is the folder's name.
    pub template: String,
    /// What becomes of rows that cannot be read.
    pub on_bad_row: BadRows,
}

/// What each key means.
pub(in crate::recipe) const ABOUT: &[About] = &[
    about("data.image", "The column with the image's path, relative to the file."),
    about("data.caption", "The column with the caption."),
    about(
        "data.template",
        "The caption of an image in a class folder that has no text beside it; `{}` is the folder's name.",
    ),
];

pub(super) const KEYS: [&str; 6] = ["max_length", "tokenizer", "image", "caption", "template", "on_bad_row"];

impl Captions {
    pub(super) fn read(section: &Section<'_>, input: Option<Input>) -> Self {
        refuse_keys(section, &KEYS, "images with captions");
        let template = section.name("template").unwrap_or_else(|| "a picture of a {}".into());
        if !template.contains("{}") {
            section.refuse("template", "has no place for the name", "write {} where the folder's name belongs");
        }
        Self {
            max_length: section.size("max_length", 2..=1 << 20).unwrap_or(usual_length(input)),
            tokenizer: section.file("tokenizer"),
            image: section.name("image").unwrap_or_else(|| "image".into()),
            caption: section.name("caption").unwrap_or_else(|| "caption".into()),
            template,
            on_bad_row: section.choice("on_bad_row").unwrap_or(BadRows::Error),
        }
    }
}
