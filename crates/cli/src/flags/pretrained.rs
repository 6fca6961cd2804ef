//! `--pretrained-model NAME`: a folder, or a model that Hugging Face's tools have downloaded. Nothing is downloaded here.

use super::quoted;
use crate::failure::Failure;
use plimsoll_models::families::presets;
use std::env;
use std::path::{Path, PathBuf};

/// The setting that starts from this model.
pub(super) fn setting(name: &str, weights: bool) -> Result<String, Failure> {
    let found = folder(Path::new(name)).or_else(|| cached(&hub_cache()?, name));
    match (found, preset(name)) {
        (Some(folder), _) => Ok(format!("model.checkpoint={}", quoted(&folder.to_string_lossy()))),
        // Sizes are all that a plan needs.
        (None, Some(preset)) if !weights => Ok(format!("model.preset={}", quoted(preset))),
        (None, preset) => Err(missing(name, preset)),
    }
}

fn folder(path: &Path) -> Option<PathBuf> {
    path.join("config.json").is_file().then(|| std::path::absolute(path).unwrap_or_else(|_| path.into()))
}

fn preset(name: &str) -> Option<&'static str> {
    let short = name.rsplit('/').next().unwrap_or(name);
    presets().iter().find(|preset| preset.name == short || preset.names.contains(&name)).map(|preset| preset.name)
}

/// Where `hf download` and transformers keep what they fetch.
fn hub_cache() -> Option<PathBuf> {
    let named = env::var_os("HF_HUB_CACHE").map(PathBuf::from);
    let home = || env::var_os("HF_HOME").map(|home| PathBuf::from(home).join("hub"));
    let usual = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/huggingface/hub"));
    named.or_else(home).or_else(usual)
}

/// The latest snapshot that is whole enough to have sizes and weights.
fn cached(cache: &Path, name: &str) -> Option<PathBuf> {
    if name.starts_with('/') || name.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return None;
    }
    let snapshots = cache.join(format!("models--{}", name.replace('/', "--"))).join("snapshots");
    let snapshots = std::fs::read_dir(snapshots).ok()?.flatten().map(|entry| entry.path());
    let has_weights = |folder: &Path| {
        ["model.safetensors", "model.safetensors.index.json"].iter().any(|file| folder.join(file).is_file())
    };
    let whole = snapshots.filter(|path| folder(path).is_some() && has_weights(path));
    whole.max_by_key(|path| path.metadata().and_then(|facts| facts.modified()).ok())
}

fn missing(name: &str, preset: Option<&str>) -> Failure {
    let local = name.rsplit('/').next().unwrap_or(name);
    let mut failure = Failure::bad_input(
        format!("--pretrained-model {name}: neither a folder with config.json nor in Hugging Face's cache"),
        format!("`hf download {name} --local-dir {local}`, then `--pretrained-model {local}`"),
    );
    if let Some(preset) = preset {
        failure.hints.push(format!("its sizes are known: `--set model.preset={preset}` trains it from random weights"));
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_latest_whole_snapshot_of_the_cache_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = dir.path().join("models--google--flan-t5-xl/snapshots");
        for (name, files) in [("a", &["config.json"][..]), ("b", &["config.json", "model.safetensors"])] {
            fs::create_dir_all(snapshots.join(name)).unwrap();
            files.iter().for_each(|file| fs::write(snapshots.join(name).join(file), "{}").unwrap());
        }
        assert_eq!(cached(dir.path(), "google/flan-t5-xl"), Some(snapshots.join("b")));
        for stranger in ["google/flan-t5-xxl", "../models--google--flan-t5-xl", "/etc", "google//x", ""] {
            assert_eq!(cached(dir.path(), stranger), None, "{stranger}");
        }
    }

    #[test]
    fn a_name_that_is_not_here_says_how_to_get_it_and_plans_by_its_sizes() {
        assert_eq!(setting("google/flan-t5-xl", false).unwrap(), "model.preset=\"flan-t5-xl\"");
        let failure = setting("nobody/nothing-at-all", false).unwrap_err();
        assert!(failure.hints[0].contains("hf download nobody/nothing-at-all"), "{failure:?}");
        assert_eq!(missing("google/flan-t5-xl", preset("google/flan-t5-xl")).hints.len(), 2);
    }
}
