//! The recipes that ship: they read, they say what they promise, and they survive being stored.

use std::path::{Path, PathBuf};

use plimsoll_models::families::Input;
use plimsoll_models::recipe::{Budget, Choice, DataKind, Every, Model, Recipe, Rule, Source, Task, Validation, Warmup};

fn recipes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes")
}

fn load(name: &str, sets: &[&str]) -> Recipe {
    let sets: Vec<String> = sets.iter().map(|s| s.to_string()).collect();
    Recipe::load(&recipes().join(name), &sets).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn every_shipped_recipe_reads_and_stores() {
    let mut count = 0;
    for entry in std::fs::read_dir(recipes()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let recipe = Recipe::load(&path, &[]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(recipe.name, path.file_stem().unwrap().to_str().unwrap());
        let stored = recipe.to_toml().unwrap();
        let again = Recipe::parse(&stored, "runs/x-1/recipe.toml", &[]).unwrap_or_else(|e| panic!("{stored}\n{e}"));
        assert_eq!(again, recipe);
        assert_eq!(again.hash().unwrap(), recipe.hash().unwrap());
        count += 1;
    }
    assert!(count >= 5);
}

#[test]
fn full_sizes_are_those_of_the_reference() {
    let hybrid = load("hybrid.toml", &[]);
    assert_eq!(hybrid.model.family().parameters(), Some(5_907_587));
    assert_eq!((hybrid.train.effective_batch, hybrid.train.task), (256, Task::Series));
    let mu = load("mu-sota.toml", &[]);
    assert_eq!(mu.model.family().parameters(), Some(26_721_024));
    assert_eq!(mu.model.family().input(), Input::Tokens { max_length: 512, vocab: 50_257 });
    assert_eq!((mu.train.effective_batch, mu.train.task), (32, Task::LanguageModel));
}

#[test]
fn defaults_are_those_of_the_reference() {
    let shared = "[data]\nsource = \"synthetic:NAME\"\n[train]\neffective_batch = 4\n";
    let hybrid = format!("[model]\nfamily = \"hybrid-cnn-lstm\"\n{}", shared.replace("NAME", "regimes"));
    let hybrid = Recipe::parse(&hybrid, "a/h.toml", &[]).unwrap();
    assert_eq!(hybrid.model, load("hybrid.toml", &[]).model);
    assert_eq!((hybrid.dir.to_str(), hybrid.name.as_str()), (Some("a"), "h"));
    assert_eq!(hybrid.train.schedule.warmup, Warmup::Steps(0));
    assert_eq!(hybrid.train.evaluate.every, Every::Epoch);
    assert_eq!(hybrid.data.validation, Validation::Fraction(0.2));
    assert!(hybrid.memory.sharing && hybrid.memory.micro_batch == Choice::Auto);
    let mu = format!("[model]\nfamily = \"mu-sota\"\n{}", shared.replace("NAME", "grammar"));
    let mu = Recipe::parse(&mu, "m.toml", &[]).unwrap();
    assert_eq!(mu.model, load("mu-sota.toml", &[]).model);
    assert!(matches!(mu.data.kind, DataKind::Text(text) if text.max_length == 512));
}

#[test]
fn sets_reach_every_depth_and_need_no_quotes() {
    let recipe = load(
        "mu-sota-small.toml",
        &[
            "model.layers=6",
            "train.optimizer.lr=1e-4",
            "train.optimizer.name=adafactor",
            "train.schedule={name=\"linear\",warmup=10}",
            "train.evaluate.every=50",
            "train.steps=5",
            "memory.budget=12GiB",
            "memory.micro_batch=2",
            "data.samples=7",
            "data.samples=9",
        ],
    );
    assert!(matches!(&recipe.model, Model::MuSota(m) if m.layers == 6));
    assert_eq!(recipe.train.optimizer.lr, 1e-4);
    assert_eq!(recipe.train.optimizer.rule, Rule::Adafactor);
    assert_eq!(recipe.train.schedule.warmup, Warmup::Steps(10));
    assert_eq!(recipe.train.evaluate.every, Every::Steps(50));
    assert_eq!(recipe.train.steps, Some(5));
    assert_eq!(recipe.memory.budget, Budget::Bytes(12 << 30));
    assert_eq!(recipe.memory.micro_batch, Choice::Pinned(2));
    assert!(matches!(recipe.data.source, Source::Synthetic { samples: 9, .. }));
}

#[test]
fn the_hash_sees_what_matters_and_nothing_else() {
    let hash = |sets: &[&str]| load("quickstart.toml", sets).hash().unwrap();
    let plain = hash(&[]);
    assert_eq!(plain.len(), 64);
    for same in ["data.workers=4", "data.prefetch=9", "train.checkpoint.keep=5", "name=other", "train.seed=1"] {
        assert_eq!(hash(&[same]), plain, "{same}");
    }
    for other in ["model.hidden=32", "data.seed=2", "train.seed=2", "train.epochs=4", "memory.sharing=false"] {
        assert_ne!(hash(&[other]), plain, "{other}");
    }
}

#[test]
fn data_is_looked_for_beside_the_recipe_first() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[model]\nfamily=\"mu-sota\"\n[data]\ntrain=\"c.txt\"\n[train]\neffective_batch=2\n";
    let file = folder.path().join("r.toml");
    std::fs::write(&file, text).unwrap();
    let recipe = Recipe::load(&file, &[]).unwrap();
    let beside = folder.path().join("c.txt");
    // In neither place: the recipe's folder, so that a message names it.
    assert_eq!(recipe.resolve_path(Path::new("c.txt")), beside);
    // The tests run in the crate's folder, where this file exists.
    assert_eq!(recipe.resolve_path(Path::new("Cargo.toml")), Path::new("Cargo.toml"));
    std::fs::write(folder.path().join("Cargo.toml"), "").unwrap();
    assert_eq!(recipe.resolve_path(Path::new("Cargo.toml")), folder.path().join("Cargo.toml"));
    // Stored elsewhere, it still finds its data.
    let stored = Recipe::parse(&recipe.to_toml().unwrap(), "/runs/r-1/recipe.toml", &[]).unwrap();
    assert_eq!(stored.resolve_path(Path::new("c.txt")), beside);
}
