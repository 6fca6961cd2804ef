//! Files that a recipe may name: those under the data folder and the runs, and nothing else of this machine. It is
//! checked before the recipe is read, for reading one already looks at its checkpoint.

use crate::problem::Problem;
use plimsoll::{Draft, reference};
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

/// Where Hugging Face's programs keep the models and data that they fetched: hidden, and no secrets (those are beside it).
const HUB: &str = ".cache/huggingface/hub";

/// The folders that clients reach into.
#[derive(Clone, Debug)]
pub(crate) struct Allowed {
    data: PathBuf,
    runs: PathBuf,
}

impl Allowed {
    /// Both are canonical.
    pub(crate) fn new(data: PathBuf, runs: PathBuf) -> Allowed {
        Allowed { data, runs }
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// Refuses a recipe that would look elsewhere.
    pub(crate) fn check(&self, draft: &Draft) -> Result<(), Problem> {
        for (key, value) in draft.strings()? {
            if path_keys().contains(&key) {
                self.check_path(&key, Path::new(&value))?;
            }
        }
        Ok(())
    }

    /// Where a path of a client leads, if it may be followed. One that leads nowhere yet is taken as it is written.
    pub(crate) fn check_path(&self, field: &str, path: &Path) -> Result<PathBuf, Problem> {
        let refused = || {
            Problem::bad(field, format!("{field}: this is outside of the folders that this server may read"))
                .hint("name a file under the data folder (--data), relative to it")
        };
        // No file has such a name, and no program takes it.
        if path.as_os_str().as_encoded_bytes().contains(&0) {
            return Err(Problem::bad(field, format!("{field}: a path has no zero byte")));
        }
        if path.components().any(|part| matches!(part, Component::ParentDir | Component::Prefix(_))) {
            return Err(refused());
        }
        let wanted = self.data.join(path);
        // A relative path that is not in the data folder would be looked for where the server was started.
        let started = if path.is_relative() { std::path::absolute(path).ok() } else { None };
        for place in [Some(wanted.clone()), started].into_iter().flatten() {
            match place.canonicalize() {
                Ok(real) if self.contains(&real) && !self.is_private(&real) => return Ok(real),
                Ok(_) => return Err(refused()),
                Err(_) => {}
            }
        }
        if self.contains(&wanted) && !self.is_private(&wanted) { Ok(wanted) } else { Err(refused()) }
    }

    /// Hidden files and what is in hidden folders, such as .env and .ssh, are settings of whoever lives here, and the
    /// server's own folder beside the runs is its own: messages about data show some of what stands in it.
    fn is_private(&self, path: &Path) -> bool {
        let inside = path.strip_prefix(&self.data).or_else(|_| path.strip_prefix(&self.runs)).unwrap_or(path);
        let inside = inside.strip_prefix(HUB).unwrap_or(inside);
        inside.components().any(|part| part.as_os_str().to_string_lossy().starts_with('.'))
    }

    /// Words without the places where this server keeps files: they are nobody's business.
    pub(crate) fn without_folders(&self, words: &str) -> String {
        let folders = [&self.data, &self.runs].map(|folder| format!("{}/", folder.display()));
        folders.iter().fold(words.to_string(), |words, folder| words.replace(folder, ""))
    }

    /// A recipe whose paths start at the data folder.
    pub(crate) fn relative(&self, recipe: &str) -> String {
        recipe.replace(&format!("\"{}/", self.data.display()), "\"")
    }

    /// Whether this is the folder of the runs.
    pub(super) fn is_runs(&self, path: &Path) -> bool {
        path == self.runs
    }

    fn contains(&self, path: &Path) -> bool {
        path.starts_with(&self.data) || path.starts_with(&self.runs)
    }
}

/// The keys of a recipe that are paths, by the recipe's own reader.
fn path_keys() -> &'static [String] {
    static KEYS: OnceLock<Vec<String>> = OnceLock::new();
    KEYS.get_or_init(|| {
        let keys = reference::keys().unwrap_or_default();
        let names_path = |key: &&reference::Key| key.kinds().iter().any(|kind| kind.to_string().contains("path"));
        keys.iter().filter(names_path).map(|key| key.key.clone()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_that_are_paths_are_known() {
        for key in ["dir", "model.checkpoint", "data.train", "data.validation", "data.tokenizer"] {
            assert!(path_keys().iter().any(|known| known == key), "{key}: {:?}", path_keys());
        }
        assert!(!path_keys().iter().any(|key| key == "data.label"));
    }

    #[test]
    fn words_do_not_tell_where_files_are_kept() {
        let allowed = Allowed::new("/srv/data".into(), "/srv/runs".into());
        let told = allowed.without_folders("/srv/data/a.csv: as in /srv/runs/x-1/recipe.toml and /srv/other");
        assert_eq!(told, "a.csv: as in x-1/recipe.toml and /srv/other");
    }

    #[test]
    fn nothing_outside_is_reached() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (data, runs) = (root.join("data"), root.join("runs"));
        std::fs::create_dir_all(data.join("deep")).unwrap();
        std::fs::create_dir_all(&runs).unwrap();
        std::fs::write(root.join("secret"), "x").unwrap();
        std::fs::write(data.join("deep/a.csv"), "x").unwrap();
        std::os::unix::fs::symlink(root.join("secret"), data.join("link")).unwrap();
        std::os::unix::fs::symlink(&root, data.join("up")).unwrap();
        let allowed = Allowed::new(data.clone(), runs);
        for good in ["deep/a.csv", "not/yet.csv", data.join("deep/a.csv").to_str().unwrap()] {
            assert!(allowed.check_path("data.train", Path::new(good)).is_ok(), "{good}");
        }
        std::fs::write(data.join(".env"), "TOKEN=x").unwrap();
        for file in [".git/config", ".cache/huggingface/token", "deep/.keys/id", ".cache/huggingface/hub/m/config.json"]
        {
            std::fs::create_dir_all(data.join(file).parent().unwrap()).unwrap();
            std::fs::write(data.join(file), "x").unwrap();
        }
        std::os::unix::fs::symlink(data.join(".git"), data.join("shown")).unwrap();
        assert!(allowed.check_path("model.checkpoint", Path::new(".cache/huggingface/hub/m")).is_ok());
        std::os::unix::fs::symlink(data.join(".env"), data.join("plain.csv")).unwrap();
        for bad in [
            ".env",
            "plain.csv",
            "deep/.hidden",
            ".git/config",
            "shown/config",
            "deep/.keys/id",
            ".ssh/not/yet",
            ".cache/huggingface/token",
            ".cache/huggingface/hub/.locks",
            "a\0b",
            "../secret",
            "deep/../../secret",
            "/etc/passwd",
            "link",
            "up/secret",
            "/nowhere/at/all",
            "Cargo.toml",
        ] {
            assert!(allowed.check_path("data.train", Path::new(bad)).is_err(), "{bad}");
        }
        assert!(allowed.check_path("dir", Path::new(".")).is_ok());
        let own = root.join("runs").join(crate::folders::OWN).join("a-1/log.txt");
        assert!(allowed.check_path("data.train", &own).is_err() && allowed.check_path("dir", &data).is_ok());
        let text = "dir = \"/etc\"\n[model]\nlayers = 1\n";
        assert_eq!(allowed.check(&Draft::of_text(text, "r.toml")).unwrap_err().field.as_deref(), Some("dir"));
        let set = ["data.validation=/etc/passwd".to_string()];
        assert!(allowed.check(&Draft::of_text("[model]\n", "r.toml").and(set)).is_err());
    }
}
