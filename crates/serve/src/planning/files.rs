//! Files of the data folder that a training can begin with: data, folders of images, checkpoints.

use super::Allowed;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::PathBuf;
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
/// Files and folders that are asked what they are.
const MOST_LOOKED_AT: usize = 20_000;
/// Names that are read: of images all but the first of a folder are not looked at.
const MOST_NAMED: usize = 500_000;
const DEEPEST: usize = 4;
/// Endings of the formats that data is read from.
const ENDINGS: [&str; 11] = ["csv", "tsv", "tab", "json", "jsonl", "ndjson", "parquet", "pq", "txt", "text", "md"];
const IMAGES: [&str; 5] = ["jpg", "jpeg", "png", "webp", "gif"];
/// Parts of models and texts about a folder: nothing to learn from.
const OTHERS: [&str; 3] = ["tokenizer.json", "readme.md", "license.txt"];

/// By their paths, the shallow ones first where there are too many.
pub(crate) fn files(allowed: &Allowed) -> DataFiles {
    let mut walk = Walk::of(allowed);
    walk.go();
    let cut = walk.is_over() || walk.found.len() > MOST_LISTED;
    let mut files: Vec<DataFile> = walk.found.into_values().collect();
    files.sort_by_key(|file| file.path.matches('/').count());
    files.truncate(MOST_LISTED);
    files.sort();
    DataFiles { files, cut }
}

/// A folder that is to be looked through.
struct Folder {
    real: PathBuf,
    /// As a recipe names what is in it.
    prefix: String,
    depth: usize,
}

/// Level by level, so that a folder with very much in it hides nothing that lies beside it.
struct Walk<'a> {
    allowed: &'a Allowed,
    found: BTreeMap<String, DataFile>,
    /// Links may lead in circles.
    seen: BTreeSet<PathBuf>,
    wanted: VecDeque<Folder>,
    looked_at: usize,
    named: usize,
}

impl Walk<'_> {
    fn of(allowed: &Allowed) -> Walk<'_> {
        let root = Folder { real: allowed.data().into(), prefix: String::new(), depth: 0 };
        Walk {
            allowed,
            found: BTreeMap::new(),
            seen: BTreeSet::new(),
            wanted: VecDeque::from([root]),
            looked_at: 0,
            named: 0,
        }
    }

    fn is_over(&self) -> bool {
        self.looked_at >= MOST_LOOKED_AT || self.named >= MOST_NAMED
    }

    fn go(&mut self) {
        while let Some(folder) = self.wanted.pop_front() {
            if self.seen.insert(folder.real.clone()) {
                self.folder(&folder);
            }
        }
    }

    fn folder(&mut self, folder: &Folder) {
        let mut shows_image = false;
        for entry in fs::read_dir(&folder.real).into_iter().flatten().flatten() {
            if self.is_over() {
                return;
            }
            self.named += 1;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let is_image = is_image(&name);
            // One image stands for the folder.
            if !(is_image && shows_image) {
                self.looked_at += 1;
                shows_image |= self.entry(folder, &name) && is_image;
            }
        }
    }

    /// False where it is nobody's to see.
    fn entry(&mut self, folder: &Folder, name: &str) -> bool {
        let is_hidden = name.starts_with('.') || name.chars().any(char::is_control);
        let path = format!("{}{name}", folder.prefix);
        // A link may lead out of the folder.
        let real = self.allowed.check_path("file", path.as_ref()).ok().filter(|_| !is_hidden);
        let Some(real) = real else { return false };
        let Ok(there) = fs::metadata(&real) else { return false };
        match there.is_dir() {
            true if real.join("config.json").is_file() => self.add(&path, "checkpoint", None),
            // What runs wrote is no data.
            true if self.allowed.is_runs(&real) => {}
            true if folder.depth < DEEPEST => {
                self.wanted.push_back(Folder { real, prefix: format!("{path}/"), depth: folder.depth + 1 });
            }
            false if there.is_file() => self.file(&path, name, there.len()),
            _ => {}
        }
        true
    }

    fn file(&mut self, path: &str, name: &str, bytes: u64) {
        if is_image(name) {
            // Images stand for their folder.
            if let Some((folder, _)) = path.rsplit_once('/') {
                self.add(folder, "images", None);
            }
        } else if ENDINGS.contains(&&*ending(name)) && !OTHERS.contains(&&*name.to_ascii_lowercase()) {
            self.add(path, "data", Some(bytes));
        }
    }

    fn add(&mut self, path: &str, kind: &'static str, bytes: Option<u64>) {
        self.found.insert(path.into(), DataFile { path: path.into(), kind, bytes });
    }
}

fn ending(name: &str) -> String {
    name.rsplit_once('.').map_or(String::new(), |(_, ending)| ending.to_ascii_lowercase())
}

fn is_image(name: &str) -> bool {
    IMAGES.contains(&&*ending(name))
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
    #[test]
    fn a_folder_of_many_images_hides_nothing_that_is_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().canonicalize().unwrap();
        for name in ["a/cats", "a/dogs", "b/deep"] {
            fs::create_dir_all(data.join(name)).unwrap();
        }
        for n in 0..MOST_LOOKED_AT + 10 {
            fs::write(data.join(format!("a/cats/{n}.jpg")), "").unwrap();
        }
        for file in ["a/cats/labels.csv", "a/dogs/1.png", "b/deep/rows.csv"] {
            fs::write(data.join(file), "x").unwrap();
        }
        let found = files(&Allowed::new(data.clone(), data.join("runs")));
        let told: Vec<&str> = found.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!((told, found.cut), (vec!["a/cats", "a/cats/labels.csv", "a/dogs", "b/deep/rows.csv"], false));
    }
}
