//! 10,000 damaged config.json and index files each: read or refused with the file's name, never with a panic.

use crate::common::{fresh_seed, rounds};
use plimsoll_core::ops::SampleRng;
use plimsoll_models::hf::{Checkpoint, HfError};
use plimsoll_models::recipe::Recipe;
use std::fs;
use std::path::Path;

const ROUNDS: usize = 10_000;

const HOSTILE: [&str; 14] = [
    "-1",
    "0",
    "18446744073709551616",
    "1e400",
    "1e-400",
    "null",
    "true",
    "\"\"",
    "[]",
    "{}",
    "[[[[[[[[",
    "65537",
    "\"../x\"",
    "\"\\u0000\"",
];

/// Flips, cuts or repeats a few bytes; values become hostile ones.
fn damage(text: &[u8], rng: &mut SampleRng) -> Vec<u8> {
    let mut bytes = text.to_vec();
    for _ in 0..rng.size(1, 4) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.size(0, bytes.len() - 1);
        let end = (at + rng.size(1, 12)).min(bytes.len());
        match rng.size(0, 8) {
            0 => bytes[at] ^= 1 << rng.size(0, 7),
            1 => bytes.truncate(at),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let colon = bytes.iter().skip(at).position(|&b| b == b':').map(|i| at + i + 1);
                let value = HOSTILE[rng.size(0, HOSTILE.len() - 1)];
                if let Some(start) = colon {
                    let end = (start..bytes.len()).find(|&i| b",}\n".contains(&bytes[i])).unwrap_or(bytes.len());
                    bytes.splice(start..end, value.bytes());
                }
            }
        }
    }
    bytes
}

fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/hf").join(name)
}

#[test]
fn damaged_configs_are_read_or_refused() {
    let seed = fresh_seed();
    println!("PLIMSOLL_TEST_SEED={seed}");
    let mut rng = SampleRng::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let families = [
        ("bert", "bert"),
        ("roberta", "roberta-regression"),
        ("deberta-v3", "deberta-v3"),
        ("distilbert", "distilbert"),
        ("t5", "t5-tied"),
        ("clip", "clip"),
    ];
    let originals = families.map(|(_, name)| fs::read(golden(name).join("config.json")).unwrap());
    let (mut read, mut refused) = (0, 0);
    let rounds = rounds(ROUNDS);
    for round in 0..rounds {
        let (family, _) = families[round % families.len()];
        fs::write(dir.path().join("config.json"), damage(&originals[round % families.len()], &mut rng)).unwrap();
        let text = format!(
            "[model]\nfamily = \"{family}\"\ncheckpoint = {:?}\n[data]\ntrain = \"a.jsonl\"\ntokenizer = \"t.json\"\n\
             max_length = 2\n[train]\neffective_batch = 1\n",
            dir.path().display().to_string()
        );
        match Recipe::parse(&text, "fuzz.toml", &[]) {
            Ok(recipe) => {
                let stored = recipe.to_toml().unwrap();
                let again = Recipe::parse(&stored, "fuzz.toml", &[]).unwrap_or_else(|e| panic!("{e}\n{stored}"));
                assert_eq!(again, recipe);
                read += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("fuzz.toml:"), "{error}");
                refused += 1;
            }
        }
    }
    println!("{read} read, {refused} refused");
    assert!(read > rounds / 20 && refused > rounds / 20, "{read} read, {refused} refused");
}

#[test]
fn damaged_indices_are_read_or_refused() {
    let seed = fresh_seed();
    println!("PLIMSOLL_TEST_SEED={seed}");
    let mut rng = SampleRng::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let shard = "model-00001-of-00001.safetensors";
    fs::copy(golden("bert").join("model.safetensors"), dir.path().join(shard)).unwrap();
    let names: Vec<String> = Checkpoint::open(&golden("bert")).unwrap().names().map(String::from).collect();
    let map: serde_json::Map<String, serde_json::Value> =
        names.iter().take(6).map(|name| (name.clone(), shard.into())).collect();
    let whole = serde_json::json!({ "metadata": { "total_size": 1 }, "weight_map": map }).to_string();
    let (mut read, mut refused) = (0, 0);
    let rounds = rounds(ROUNDS);
    for _ in 0..rounds {
        fs::write(dir.path().join("model.safetensors.index.json"), damage(whole.as_bytes(), &mut rng)).unwrap();
        match Checkpoint::open(dir.path()) {
            Ok(checkpoint) => {
                assert!(checkpoint.names().all(|name| checkpoint.info(name).is_some()));
                read += 1;
            }
            Err(HfError::Json { .. } | HfError::Shard { .. } | HfError::Tensors(_)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    println!("{read} read, {refused} refused");
    assert!(read > rounds / 500 && refused > rounds / 20, "{read} read, {refused} refused");
}
