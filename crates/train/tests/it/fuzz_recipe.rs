//! 100,000 damaged recipes: each is read or refused in words, never with a panic, and what is read can be stored.
//! The seed is printed; `PLIMSOLL_FUZZ_SEED` repeats a run.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_models::recipe::Recipe;

const INPUTS: usize = 100_000;

/// xorshift64*: enough to choose damage by.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n.max(1)
    }

    fn span(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length);
        start..(start + 1 + self.below(12)).min(length)
    }
}

/// Values that hurt readers of numbers, strings and structure.
const HOSTILE: [&str; 20] = [
    "0",
    "-1",
    "18446744073709551616",
    "9223372036854775807",
    "1e400",
    "nan",
    "-inf",
    "0.0",
    "\"\"",
    "[]",
    "{}",
    "true",
    "\"auto\"",
    "1979-05-27",
    "[[[[[[[[[[[[[[",
    "'''",
    "\"\\u0000\"",
    "0x7fffffffffffffff",
    "65536",
    "\"99999999999TiB\"",
];

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    if bytes.is_empty() {
        return;
    }
    match random.below(6) {
        0 => {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        1 => drop(bytes.drain(random.span(bytes.len()))),
        2 => {
            let piece = bytes[random.span(bytes.len())].to_vec();
            let at = random.below(bytes.len());
            bytes.splice(at..at, piece);
        }
        3 => swap_tokens(bytes, random),
        4 => replace_value(bytes, random),
        _ => duplicate_line(bytes, random),
    }
}

/// Ranges of words and of what stands between them.
fn tokens(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b"_-.\"".contains(&b);
    let mut start = 0;
    let mut tokens = Vec::new();
    for i in 1..=bytes.len() {
        if i == bytes.len() || is_word(bytes[i]) != is_word(bytes[i - 1]) {
            tokens.push(start..i);
            start = i;
        }
    }
    tokens
}

fn swap_tokens(bytes: &mut Vec<u8>, random: &mut Random) {
    let tokens = tokens(bytes);
    let (a, b) = (random.below(tokens.len()), random.below(tokens.len()));
    let (first, second) = (tokens[a.min(b)].clone(), tokens[a.max(b)].clone());
    if first == second {
        return;
    }
    let (left, right) = (bytes[first.clone()].to_vec(), bytes[second.clone()].to_vec());
    bytes.splice(second, left);
    bytes.splice(first, right);
}

fn replace_value(bytes: &mut Vec<u8>, random: &mut Random) {
    let starts: Vec<usize> = (0..bytes.len()).filter(|&i| bytes[i] == b'=').map(|i| i + 1).collect();
    if starts.is_empty() {
        return;
    }
    let start = starts[random.below(starts.len())];
    let end = (start..bytes.len()).find(|&i| b",}#\n".contains(&bytes[i])).unwrap_or(bytes.len());
    bytes.splice(start..end, HOSTILE[random.below(HOSTILE.len())].bytes());
}

fn duplicate_line(bytes: &mut Vec<u8>, random: &mut Random) {
    let lines: Vec<Vec<u8>> = bytes.split(|&b| b == b'\n').map(<[u8]>::to_vec).collect();
    let (from, to) = (random.below(lines.len()), random.below(lines.len()));
    let mut moved = lines.clone();
    moved.insert(to, lines[from].clone());
    *bytes = moved.join(&b'\n');
}

fn shipped() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|p| std::fs::read(p).unwrap()).collect()
}

/// Half of the settings are damage too.
fn settings(random: &mut Random) -> Vec<String> {
    const KEYS: [&str; 6] =
        ["model.heads", "train.optimizer.lr", "data", "train.schedule.warmup", "memory.budget", "a.b.c.d"];
    (0..random.below(3))
        .map(|_| {
            let text = format!("{}={}", KEYS[random.below(KEYS.len())], HOSTILE[random.below(HOSTILE.len())]);
            let mut bytes = text.into_bytes();
            if random.below(2) == 0 {
                mutate(&mut bytes, random);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
        .collect()
}

fn check(text: &str, sets: &[String]) -> bool {
    match Recipe::parse(text, "fuzz.toml", sets) {
        Ok(recipe) => {
            let stored = recipe.to_toml().unwrap_or_else(|e| panic!("{e}\n{sets:?}\n{text}"));
            let again = Recipe::parse(&stored, "fuzz.toml", &[]).unwrap_or_else(|e| panic!("{e}\n{stored}"));
            assert_eq!(again, recipe, "{stored}");
            true
        }
        Err(error) => {
            let words = error.to_string();
            assert!(words.contains("fuzz.toml:") || words.contains("--set"), "no place: {words}");
            false
        }
    }
}

#[test]
fn damaged_recipes_are_read_or_refused() {
    let fresh = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
    let seed = std::env::var("PLIMSOLL_FUZZ_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(fresh);
    println!("seed {seed}");
    let mut random = Random(seed | 1);
    let originals = shipped();
    let mut accepted = 0;
    for _ in 0..INPUTS {
        let mut bytes = originals[random.below(originals.len())].clone();
        for _ in 0..=random.below(4) {
            mutate(&mut bytes, &mut random);
        }
        let sets = settings(&mut random);
        accepted += usize::from(check(&String::from_utf8_lossy(&bytes), &sets));
    }
    println!("{accepted} of {INPUTS} were still recipes");
    // Were all refused, or none, the damage would test only one side.
    assert!(accepted > INPUTS / 100 && accepted < INPUTS * 99 / 100, "{accepted}");
}
