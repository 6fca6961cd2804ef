//! Recipes to start from: those that come with plimsoll, and those that lie in the data folder.

use std::fs;
use std::path::Path;

use serde::Serialize;
use utoipa::ToSchema;

/// A recipe to start from.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct RecipeEntry {
    pub name: String,
    /// The TOML text, with its comments.
    pub text: String,
    /// Whether it came with plimsoll; others lie in the data folder.
    pub built_in: bool,
}

macro_rules! built_in {
    ($($name:literal),*) => { [$(($name, include_str!(concat!("../../../../recipes/", $name, ".toml")))),*] };
}

const BUILT_IN: [(&str, &str); 11] = built_in![
    "quickstart",
    "hybrid-small",
    "hybrid",
    "encoder-small",
    "encoder",
    "mu-sota-small",
    "mu-sota",
    "clip-small",
    "clip",
    "flan-t5-xl-small",
    "flan-t5-xl"
];

const MOST: usize = 200;
const LONGEST: u64 = 64 << 10;

pub(crate) fn recipes(data: &Path) -> Vec<RecipeEntry> {
    let built_in = BUILT_IN.map(|(name, text)| RecipeEntry { name: name.into(), text: text.into(), built_in: true });
    let mut own: Vec<RecipeEntry> = ["", "recipes"].iter().flat_map(|folder| in_folder(&data.join(folder))).collect();
    own.retain(|entry| !BUILT_IN.iter().any(|(_, text)| *text == entry.text));
    own.sort_by(|a, b| a.name.cmp(&b.name));
    own.dedup();
    built_in.into_iter().chain(own.into_iter().take(MOST)).collect()
}

/// Files that look like recipes: TOML with the three tables.
fn in_folder(folder: &Path) -> Vec<RecipeEntry> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().take(10 * MOST);
    files.filter_map(|file| read(&file)).collect()
}

fn read(file: &fs::DirEntry) -> Option<RecipeEntry> {
    let name = file.file_name().into_string().ok()?.strip_suffix(".toml")?.to_string();
    let there = file.metadata().ok().filter(|there| there.is_file() && there.len() <= LONGEST);
    let text = fs::read_to_string(there.map(|_| file.path())?).ok()?;
    let table: toml::Table = toml::from_str(&text).ok()?;
    let is_recipe = ["model", "data", "train"].iter().all(|name| table.contains_key(*name));
    is_recipe.then_some(RecipeEntry { name, text, built_in: false })
}
