//! Files of the data folder that a training can begin with: data, folders of images, checkpoints.

use super::Allowed;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use utoipa::ToSchema;

/// Something to train on, or to start from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
pub(crate) struct DataFile {
    /// As a recipe names it: from the data folder.
    pub path: String,
    /// data, images or checkpoint
    pub kind: &'static str,
    /// Of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// What the data folder has.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct DataFiles {
    pub files: Vec<DataFile>,
    /// There are more than are listed.
    pub cut: bool,
}

const MOST_LISTED: usize = 500;
const MOST_LOOKED_AT: usize = 20_000;
const DEEPEST: usize = 4;
/// Endings of the formats that data is read from.
const ENDINGS: [&str; 11] = ["csv", "tsv", "tab", "json", "jsonl", "ndjson", "parquet", "pq", "txt", "text", "md"];
const IMAGES: [&str; 5] = ["jpg", "jpeg", "png", "webp", "gif"];
/// Parts of models and texts about a folder: nothing to learn from.
const OTHERS: [&str; 3] = ["tokenizer.json", "readme.md", "license.txt"];

/// By their paths, the shallow ones first where there are too many.
pub(crate) fn files(allowed: &Allowed) -> DataFiles {
    let mut walk = Walk { allowed, found: BTreeMap::new(), folders: BTreeSet::new(), looked_at: 0 };
    walk.folder(allowed.data(), "", 0);
    let cut = walk.looked_at >= MOST_LOOKED_AT || walk.found.len() > MOST_LISTED;
    let mut files: Vec<DataFile> = walk.found.into_values().collect();
    files.sort_by_key(|file| file.path.matches('/').count());
    files.truncate(MOST_LISTED);
    files.sort();
    DataFiles { files, cut }
}

struct Walk<'a> {
    allowed: &'a Allowed,
    found: BTreeMap<String, DataFile>,
    /// Links may lead in circles.
    folders: BTreeSet<PathBuf>,
    looked_at: usize,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Path, prefix: &str, depth: usize) {
        if !self.folders.insert(folder.into()) {
            return;
        }
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries.take(MOST_LOOKED_AT) {
            self.looked_at += 1;
            if self.looked_at >= MOST_LOOKED_AT {
                return;
            }
            let Ok(name) = entry.file_name().into_string() else { continue };
            let is_hidden = name.starts_with('.') || name.chars().any(char::is_control);
            let path = format!("{prefix}{name}");
            // A link may lead out of the folder.
            if !is_hidden && let Ok(real) = self.allowed.check_path("file", path.as_ref()) {
                self.entry(&real, &path, &name, depth);
            }
        }
    }

    fn entry(&mut self, real: &Path, path: &str, name: &str, depth: usize) {
        let Ok(there) = fs::metadata(real) else { return };
        match there.is_dir() {
            true if real.join("config.json").is_file() => self.add(path, "checkpoint", None),
            // What runs wrote is no data.
            true if self.allowed.is_runs(real) => {}
            true if depth < DEEPEST => self.folder(real, &format!("{path}/"), depth + 1),
            false if there.is_file() => self.file(path, name, there.len()),
            _ => {}
        }
    }

    fn file(&mut self, path: &str, name: &str, bytes: u64) {
        let name = name.to_ascii_lowercase();
        let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
        if IMAGES.contains(&ending) {
            // Images stand for their folder.
            if let Some((folder, _)) = path.rsplit_once('/') {
                self.add(folder, "images", None);
            }
        } else if ENDINGS.contains(&ending) && !OTHERS.contains(&name.as_str()) {
            self.add(path, "data", Some(bytes));
        }
    }

    fn add(&mut self, path: &str, kind: &'static str, bytes: Option<u64>) {
        self.found.insert(path.into(), DataFile { path: path.into(), kind, bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_base::formats::Format;
    use plimsoll_base::names::Named;

    #[test]
    fn every_format_that_can_be_read_is_listed() {
        let known: Vec<&str> = Format::ALL.iter().flat_map(|format| format.extensions()).copied().collect();
        assert_eq!(known, ENDINGS);
    }

    #[test]
    fn data_images_and_checkpoints_are_listed_and_nothing_of_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (data, runs) = (root.join("data"), root.join("data/runs"));
        let write = |path: &str| {
            let path = data.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        };
        let there = ["a.csv", "deep/er/b.JSONL", "cars/1.jpg", "cars/2.jpg", "bert/config.json", "bert/tokenizer.json"];
        let not_listed = ["notes.pdf", ".hidden.csv", "recipe.toml", "runs/r-1/events.jsonl", "tokenizer.json"];
        there.into_iter().chain(not_listed).for_each(write);
        fs::write(root.join("secret.csv"), "x").unwrap();
        std::os::unix::fs::symlink(root.join("secret.csv"), data.join("link.csv")).unwrap();
        std::os::unix::fs::symlink(&data, data.join("loop")).unwrap();
        let found = files(&Allowed::new(data, runs));
        let told: Vec<(&str, &str)> = found.files.iter().map(|file| (file.path.as_str(), file.kind)).collect();
        let expected = [("a.csv", "data"), ("bert", "checkpoint"), ("cars", "images"), ("deep/er/b.JSONL", "data")];
        assert_eq!((told, found.cut), (expected.to_vec(), false));
    }
}
