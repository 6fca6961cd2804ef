//! A recipe file as read: what recipes under other settings are made from.

use std::path::{Path, PathBuf};

use super::search::{Search, Searching};
use super::{Recipe, RecipeError, raw_tree, read_text};
use crate::reading::error::Sources;
use crate::reading::section::Issues;
use crate::reading::tree::{Table, Value};

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

    /// A recipe that is no file; `file` is what messages call it, and its folder is where relative paths start.
    pub fn of_text(text: &str, file: &str) -> Self {
        Self { file: file.into(), text: text.into(), sets: Vec::new() }
    }

    /// The same under more settings.
    pub fn and(mut self, sets: impl IntoIterator<Item = String>) -> Self {
        self.sets.extend(sets);
        self
    }

    /// Every string that is written in it, settings laid over the text, with its dotted key. Nothing is looked up or
    /// checked yet: whoever has to know what a recipe would read asks here first.
    pub fn strings(&self) -> Result<Vec<(String, String)>, RecipeError> {
        let sources = Sources::new(&self.file.display().to_string(), &self.text, &self.sets);
        let issues = Issues::new(&sources);
        let root = raw_tree(&sources, self.sets.len(), &issues);
        let mut found = Vec::new();
        match root {
            Some(root) if issues.count() == 0 => collect(&root, "", &mut found),
            _ => return Err(issues.into_error()),
        }
        Ok(found)
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

fn collect(table: &Table, prefix: &str, found: &mut Vec<(String, String)>) {
    for (name, node) in &table.entries {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        collect_value(&node.value, key, found);
    }
}

fn collect_value(value: &Value, key: String, found: &mut Vec<(String, String)>) {
    match value {
        Value::Text(text) => found.push((key, text.clone())),
        Value::Table(table) => collect(table, &key, found),
        Value::List(items) => items.iter().for_each(|item| collect_value(&item.value, key.clone(), found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_string_is_found_wherever_it_is_written() {
        let text = "name = \"a\"\n[data]\ntrain = \"x.csv\"\nlist = [\"p\", {q = \"r\"}]\n[model]\nlayers = 2\n";
        let sets = ["data.train=/etc/passwd", "model={checkpoint=\"../b\"}"].map(String::from);
        let strings = Draft::of_text(text, "f.toml").and(sets).strings().unwrap();
        let found = |key: &str| strings.iter().filter(|(k, _)| k == key).map(|(_, v)| v.as_str()).collect::<Vec<_>>();
        assert_eq!(found("data.train"), ["/etc/passwd"]);
        assert_eq!(found("model.checkpoint"), ["../b"]);
        assert_eq!((found("data.list"), found("data.list.q"), found("name")), (vec!["p"], vec!["r"], vec!["a"]));
        assert!(Draft::of_text("= 1", "f.toml").strings().is_err());
    }
}
