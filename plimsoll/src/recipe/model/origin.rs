//! Where the sizes and the first weights of a Hugging Face model come from.

use std::path::PathBuf;

use serde::Serialize;

use crate::recipe::section::Section;

/// A preset gives sizes, a checkpoint sizes and weights; with neither, sizes are spelled out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Origin {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// A folder with config.json and model.safetensors, as written in the recipe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<PathBuf>,
}

impl Origin {
    pub fn read(section: &Section<'_>) -> Self {
        Self { preset: section.name("preset"), checkpoint: section.file("checkpoint") }
    }
}
