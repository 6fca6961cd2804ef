//! Every key of the recipe as data: what it may be, its default, where it applies, what it means.
//!
//! Nothing is listed twice. The reader itself is run on small recipes of every family and task, and what it asks for
//! is written down; the defaults are those of the recipes it resolves. Only the sentence about each key is written by
//! hand, beside the code that reads it, and a test compares both lists.

mod markdown;
mod scenarios;
mod schema;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

pub use markdown::markdown;
pub use schema::schema;

use super::{Recipe, RecipeError, data, memory, optimizer, raw_tree, search, track, train};
use crate::families::{self, FamilyName, Task};
use crate::reading::about::{About, about};
use crate::reading::error::Sources;
use crate::reading::kind::KeyKind;
use crate::reading::section::{Issues, Record};
use plimsoll_base::names::Named;

const ROOT: &[About] = &[
    about("name", "What runs of this recipe are called.").unset("the file's name without its extension"),
    about("dir", "Where relative paths of the recipe start.").unset("the recipe's folder"),
];

/// The sentences about every table but `[model]`, whose keys are the families' own.
const TABLES: [&[About]; 13] = [
    ROOT,
    data::ABOUT,
    data::BATCHES_ABOUT,
    data::CAPTIONS_ABOUT,
    data::LABELLED_ABOUT,
    data::PAIRS_ABOUT,
    data::SERIES_ABOUT,
    data::TEXT_ABOUT,
    train::ABOUT,
    optimizer::ABOUT,
    memory::ABOUT,
    search::ABOUT,
    track::ABOUT,
];

/// One key of the recipe.
#[derive(Clone, Debug, Serialize)]
pub struct Key {
    /// The dotted path, as `--set` takes it.
    pub key: String,
    /// What it means, in a sentence.
    pub about: &'static str,
    /// A recipe without it is refused.
    pub required: bool,
    /// What holds where the key is not written, if that is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unset: Option<&'static str>,
    /// Where it applies; more than one where types or defaults differ.
    pub uses: Vec<Use>,
}

/// A key as some families and tasks have it.
#[derive(Clone, Debug, Serialize)]
pub struct Use {
    /// Families that have it so.
    pub families: Vec<&'static str>,
    /// Tasks that have it so.
    pub tasks: Vec<&'static str>,
    /// In words.
    #[serde(rename = "type", serialize_with = "in_words")]
    pub kind: KeyKind,
    /// What holds where it is not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
}

fn in_words<S: serde::Serializer>(kind: &KeyKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(kind)
}

impl Key {
    /// The families that know it, where not all do.
    pub fn families(&self) -> Option<Vec<&'static str>> {
        only(self.uses.iter().flat_map(|u| &u.families), FamilyName::names())
    }

    /// The tasks that know it, where not all do.
    pub fn tasks(&self) -> Option<Vec<&'static str>> {
        only(self.uses.iter().flat_map(|u| &u.tasks), Task::names())
    }

    /// What it applies to, in words; empty where that is everything.
    pub fn scope(&self) -> String {
        let of_model = self.key.starts_with("model.");
        let names = if of_model { self.families() } else { self.tasks() };
        names.map(|names| names.join(", ")).unwrap_or_default()
    }

    /// Everything it may be, each once.
    pub fn kinds(&self) -> Vec<&KeyKind> {
        let mut kinds: Vec<&KeyKind> = Vec::new();
        for used in &self.uses {
            if !kinds.contains(&&used.kind) {
                kinds.push(&used.kind);
            }
        }
        kinds
    }

    /// The default in words, with what it is the default of where there are several.
    pub fn default_words(&self) -> String {
        if self.required {
            return "required".into();
        }
        let mut seen: Vec<(String, Vec<&str>)> = Vec::new();
        for used in &self.uses {
            let Some(value) = &used.default else { continue };
            let (value, of) = (value.to_string(), self.of(used));
            match seen.iter_mut().find(|(other, _)| *other == value) {
                Some((_, names)) => names.extend(of),
                None => seen.push((value, of.to_vec())),
            }
        }
        let lacking = self.uses.iter().any(|used| used.default.is_none());
        let values: Vec<String> = match seen.as_slice() {
            [(value, _)] if !lacking => vec![value.clone()],
            several => several.iter().map(|(value, of)| format!("{value} ({})", of.join(", "))).collect(),
        };
        let unset = self.unset.or(values.is_empty().then_some("none")).map(String::from);
        values.into_iter().chain(unset).collect::<Vec<_>>().join(", ")
    }

    fn of<'a>(&self, used: &'a Use) -> &'a [&'static str] {
        if self.key.starts_with("model.") { &used.families } else { &used.tasks }
    }
}

/// The names used, in the order of `all`; `None` where that is all of them.
fn only<'a>(
    used: impl Iterator<Item = &'a &'static str>,
    all: impl Iterator<Item = &'static str>,
) -> Option<Vec<&'static str>> {
    let used: Vec<&str> = used.copied().collect();
    let all: Vec<&str> = all.collect();
    let found: Vec<&'static str> = all.iter().copied().filter(|name| used.contains(name)).collect();
    (found.len() < all.len()).then_some(found)
}

/// Every key, in the order of tables and paths.
///
/// # Errors
/// Only where a recipe made for this purpose is refused, which is a defect.
pub fn keys() -> Result<Vec<Key>, RecipeError> {
    let mut keys: BTreeMap<(usize, String), Key> = BTreeMap::new();
    for observed in observe_all()? {
        for (path, asked) in &observed.record {
            let Some(kind) = asked.kind.clone().filter(|kind| !asked.refused && *kind != KeyKind::Table) else {
                continue;
            };
            let note = observed.about(path);
            let key = keys.entry((table_rank(path), path.clone())).or_insert_with(|| Key {
                key: path.clone(),
                about: note.map_or("", |note| note.says),
                required: true,
                unset: note.and_then(|note| note.unset),
                uses: Vec::new(),
            });
            key.required &= asked.required;
            let fixed = !asked.present && note.is_none_or(|note| !note.derived);
            let default = fixed.then(|| observed.default(path)).flatten();
            key.add(&observed, kind, default);
        }
    }
    Ok(keys.into_values().collect())
}

/// Tables in the order in which recipes have them.
fn table_rank(path: &str) -> usize {
    const ORDER: [&str; 7] = ["model", "data", "train", "memory", "search", "track", "notify"];
    let table = path.split_once('.').map_or("", |(table, _)| table);
    ORDER.iter().position(|name| *name == table).map_or(0, |at| at + 1)
}

impl Key {
    /// The first recipe of a family and task to know the key decides; later ones only show other keys.
    fn add(&mut self, observed: &Observed, kind: KeyKind, default: Option<Value>) {
        let (family, task) = (observed.recipe.model.name(), observed.recipe.train.task.name());
        if self.uses.iter().any(|used| used.families.contains(&family) && used.tasks.contains(&task)) {
            return;
        }
        match self.uses.iter_mut().find(|used| used.kind == kind && used.default == default) {
            Some(used) => used.join(family, task),
            None => self.uses.push(Use { families: vec![family], tasks: vec![task], kind, default }),
        }
    }
}

impl Use {
    fn join(&mut self, family: &'static str, task: &'static str) {
        if !self.families.contains(&family) {
            self.families.push(family);
        }
        if !self.tasks.contains(&task) {
            self.tasks.push(task);
        }
    }
}

/// One recipe, what reading it asked for, and what became of it.
struct Observed {
    recipe: Recipe,
    record: Record,
    resolved: Value,
}

impl Observed {
    /// What the resolved recipe has at a path.
    fn default(&self, path: &str) -> Option<Value> {
        // Outside of the tables stands what follows from the file's name.
        path.split_once('.')?;
        path.split('.').try_fold(&self.resolved, |value, part| value.get(part)).cloned()
    }

    fn about(&self, path: &str) -> Option<&'static About> {
        let model = families::ABOUT.iter().chain(self.recipe.model.family().about());
        model.chain(TABLES.into_iter().flatten()).find(|about| about.key == path)
    }
}

fn observe_all() -> Result<Vec<Observed>, RecipeError> {
    scenarios::texts().iter().map(|text| observe(text)).collect()
}

/// Reads a recipe and writes down every key that the reader asks for.
fn observe(text: &str) -> Result<Observed, RecipeError> {
    let sources = Sources::new("scenario.toml", text, &[]);
    let issues = Issues::recording(&sources);
    let root = raw_tree(&sources, 0, &issues);
    let recipe = root.as_ref().and_then(|root| Recipe::resolve(root, Path::new("scenario.toml"), &issues));
    let record = issues.record();
    match recipe {
        Some(recipe) if issues.count() == 0 => {
            let stored = recipe.to_toml()?;
            let resolved = toml::from_str(&stored).map_err(|e| RecipeError::Store(e.to_string()))?;
            Ok(Observed { recipe, record, resolved })
        }
        _ => Err(issues.into_error()),
    }
}
