//! 100,000 damaged checkpoints: the readers say what is wrong or read what is there, and never panic.

use crate::common::{fresh_seed, rounds};
use plimsoll_base::safetensors::{TensorFile, TensorHead, TensorWriter};
use plimsoll_core::ops::SampleRng;
use plimsoll_train::checkpoints::parse_state;
use std::collections::BTreeMap;
use std::path::Path;

const ROUNDS: usize = 100_000;

fn whole_file(path: &Path) -> Vec<u8> {
    let head = |name: &str, dtype, shape: &[usize]| TensorHead { name: name.into(), dtype, shape: shape.into() };
    let heads = [
        head("head.weight", "F32", &[4, 6]),
        head("head.bias", "F32", &[4]),
        head("moment1.head.weight", "F16", &[4, 6]),
        head("steps", "I64", &[1]),
    ];
    let bytes: u64 = heads.iter().map(|head| head.bytes().unwrap()).sum();
    let mut writer = TensorWriter::create(path, heads, &BTreeMap::from([("format".into(), "pt".into())])).unwrap();
    writer.write(&vec![1; bytes as usize]).unwrap();
    writer.finish().unwrap();
    std::fs::read(path).unwrap()
}

const STATE: &str = r#"{"step":150,"position":{"epoch":2,"index":0},"recipe_hash":"ab12","samples_seen":9600,
"best":{"step":75,"loss":0.37,"accuracy":0.88},"without_improvement":1,"last":{"loss":0.4,"f1":0.5}}"#;

/// Flips, cuts, repeats or overwrites a few bytes; numbers become other numbers.
fn damage(bytes: &[u8], rng: &mut SampleRng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..rng.size(1, 4) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.size(0, bytes.len() - 1);
        match rng.size(0, 6) {
            0 => bytes[at] ^= 1 << rng.size(0, 7),
            1 => bytes.truncate(at),
            2 => drop(bytes.drain(at..(at + rng.size(1, 9)).min(bytes.len()))),
            3 => {
                let part = bytes[at..(at + rng.size(1, 40)).min(bytes.len())].to_vec();
                bytes.splice(at..at, part);
            }
            4 => bytes[at] = rng.word() as u8,
            5 => {
                let digit = bytes.iter().skip(at).position(u8::is_ascii_digit).map(|i| at + i);
                let number = ["-1", "0", "18446744073709551615", "1e99", "99999999999", "null"][rng.size(0, 5)];
                if let Some(digit) = digit {
                    bytes.splice(digit..=digit, number.bytes());
                }
            }
            _ => {
                let front = at.min(7);
                bytes[front] = rng.word() as u8;
            }
        }
    }
    bytes
}

#[test]
fn damaged_checkpoints_never_panic() {
    let seed = fresh_seed();
    println!("PLIMSOLL_TEST_SEED={seed}");
    let mut rng = SampleRng::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.safetensors");
    let whole = whole_file(&path);
    let (mut read, mut refused) = (0, 0);
    let rounds = rounds(ROUNDS);
    for round in 0..rounds {
        if round % 2 == 0 {
            std::fs::write(&path, damage(&whole, &mut rng)).unwrap();
            match TensorFile::open(&path) {
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    refused += 1;
                }
                Ok(file) => {
                    for info in file.tensors().values() {
                        // Offsets were checked against the file, so every tensor can be read.
                        assert_eq!(file.read(info).unwrap().len() as u64, info.data_offsets.1 - info.data_offsets.0);
                    }
                    read += 1;
                }
            }
        } else {
            match parse_state(&damage(STATE.as_bytes(), &mut rng)) {
                Ok(_) => read += 1,
                Err(_) => refused += 1,
            }
        }
    }
    println!("{read} read, {refused} refused");
    assert!(
        read > rounds / 1000 && refused > rounds / 10,
        "{read} read, {refused} refused: the damage is too little or too much"
    );
}
