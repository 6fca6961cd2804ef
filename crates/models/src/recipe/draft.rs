//! A recipe file as read: what recipes under other settings are made from.

use std::path::{Path, PathBuf};

use super::search::{Search, Searching};
use super::{Recipe, RecipeError, read_text};

/// The text of a recipe and the settings laid over it. "The same, but" is a draft with more settings, so whatever is
/// compared is checked like the recipe itself, and its settings can be passed back in with `--set`.
#[derive(Clone, Debug)]
pub struct Draft {
    file: PathBuf,
    text: String,
    sets: Vec<String>,
}

impl Draft {
    /// Reads the file once, for it may be a pipe.
    pub fn read(path: &Path, sets: &[String]) -> Result<Self, RecipeError> {
        Ok(Self { file: path.to_path_buf(), text: read_text(path)?, sets: sets.to_vec() })
    }

    pub fn of_text(text: &str, file: &str) -> Self {
        Self { file: file.into(), text: text.into(), sets: Vec::new() }
    }

    /// The recipe under all settings; `more` come last and win.
    pub fn with(&self, more: &[String]) -> Result<Recipe, RecipeError> {
        let sets = [&self.sets[..], more].concat();
        let mut recipe = Recipe::parse(&self.text, &self.file.display().to_string(), &sets)?;
        // A stored recipe must find its data from any working directory.
        if let Ok(absolute) = std::path::absolute(&recipe.dir) {
            recipe.dir = absolute;
        }
        Ok(recipe)
    }
    /// What its `[search]` varies, every end and every choice held against what the key itself allows.
    ///
    /// # Errors
    /// Also where nothing is searched.
    pub fn search(&self) -> Result<Search, RecipeError> {
        Searching { file: &self.file.display().to_string(), text: &self.text, sets: &self.sets }.read()
    }

    /// The file it was read from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The settings laid over it.
    pub fn sets(&self) -> &[String] {
        &self.sets
    }
}
