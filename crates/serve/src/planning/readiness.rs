//! Whether a recipe can be trained here: a plan needs lengths and sizes, a training the files themselves.

use super::{Allowed, Checked};
use crate::problem::Finding;
use serde_json::Value;
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

/// Keys with files that a training reads.
const FILES: [&str; 3] = ["data.train", "data.validation", "data.tokenizer"];

/// The same, and the folder that a tokenizer comes from where none is named: what an answer depends on beside the recipe.
const LOOKED_AT: [&str; 4] = ["data.train", "data.validation", "data.tokenizer", "model.checkpoint"];

/// Files of a folder that are looked at: what is read whole to answer a question has fewer.
const MOST_STAMPED: usize = 512;

/// What tells a file or a folder from another one of its name, key by key. What a question was answered with holds as long
/// as these stay the same.
pub(super) fn stamps(question: &Checked) -> Vec<String> {
    let named = LOOKED_AT.iter().filter_map(|key| question.settings.get(*key)?.as_str());
    named.map(|path| stamp(&question.recipe.resolve_path(path.as_ref()))).collect()
}

/// Length and time; of a folder also those of what is in it, the shallow first: a folder's own time does not change with
/// what happens to the images of a class.
fn stamp(path: &Path) -> String {
    let (mut stamp, mut left) = (String::new(), MOST_STAMPED);
    let mut wanted = VecDeque::from([path.to_path_buf()]);
    while let Some(path) = wanted.pop_front() {
        let there = fs::metadata(&path).ok();
        stamp +=
            &format!("{:?} {:?}\n", path.file_name(), there.as_ref().map(|there| (there.len(), there.modified().ok())));
        if there.is_some_and(|there| there.is_dir()) {
            let inside = entries(&path, left);
            left -= inside.len();
            wanted.extend(inside);
        }
    }
    stamp
}

fn entries(folder: &Path, most: usize) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().take(most).map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

/// The first file of the recipe that is not there.
pub(super) fn missing_file(question: &Checked) -> Option<Finding> {
    let named = FILES.iter().filter_map(|key| Some((*key, question.settings.get(*key)?.as_str()?)));
    let mut missing = named.filter(|(_, path)| !question.recipe.resolve_path(path.as_ref()).exists());
    missing.next().map(|(key, path)| Finding {
        field: key.into(),
        error: format!("{path}: there is no such file in the data folder"),
        line: None,
        allowed: None,
        hint: Some("put it there, or name one that is: GET /files lists them".into()),
    })
}

/// What a look at the data found wrong with it. The key is that of the file which the sentence begins with.
pub(super) fn unusable_data(question: &Checked, problem: &str, allowed: &Allowed) -> Finding {
    let names = |key: &&&str| {
        let path = question.settings.get(**key).and_then(Value::as_str);
        path.is_some_and(|path| problem.starts_with(&question.recipe.resolve_path(path.as_ref()).display().to_string()))
    };
    Finding {
        field: FILES.iter().find(names).unwrap_or(&FILES[0]).to_string(),
        error: allowed.without_folders(problem),
        line: None,
        allowed: None,
        hint: Some("correct the file, or what the recipe says of it under [data]".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planning::Question;
    use serde_json::json;

    const RECIPE: &str = include_str!("../../../../recipes/encoder.toml");

    #[test]
    fn the_file_that_is_missing_is_named_by_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let allowed = Allowed::new(root.clone(), root.clone());
        let missing = |set: &[&str]| {
            let question = json!({"recipe": RECIPE, "set": set});
            let checked = serde_json::from_value::<Question>(question).unwrap().check(&allowed).unwrap();
            missing_file(&checked).map(|finding| finding.field)
        };
        assert_eq!(missing(&[]).as_deref(), Some("data.train"));
        std::fs::create_dir(root.join("data")).unwrap();
        std::fs::write(root.join("data/train.jsonl"), "{}").unwrap();
        assert_eq!(missing(&[]).as_deref(), Some("data.tokenizer"));
        std::fs::write(root.join("data/tokenizer.json"), "{}").unwrap();
        assert_eq!(missing(&[]), None);
        assert_eq!(missing(&["data.validation=held.jsonl"]).as_deref(), Some("data.validation"));
    }

    #[test]
    fn whatever_changes_in_a_file_or_a_folder_changes_its_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let (images, class) = (folder.path().join("images"), folder.path().join("images/cats"));
        let mut seen = std::collections::BTreeSet::new();
        let mut changes = |what: &str| assert!(seen.insert(stamp(&images)), "{what} is not seen");
        changes("nothing");
        fs::create_dir_all(&class).unwrap();
        changes("a folder");
        fs::write(class.join("1.png"), "x").unwrap();
        changes("an image of a class");
        fs::write(class.join("1.png"), "longer").unwrap();
        changes("another image of its name");
        (0..2 * MOST_STAMPED).for_each(|n| fs::write(class.join(format!("{n}.jpg")), "x").unwrap());
        changes("many");
        assert!(stamp(&images).lines().count() <= MOST_STAMPED + 1);
        assert_eq!(stamp(&images), stamp(&images));
    }

    #[test]
    fn every_file_that_a_training_reads_is_looked_at() {
        assert!(FILES.iter().all(|key| LOOKED_AT.contains(key)));
    }
}
