//! What a checkpoint's generation_config.json asks for and texts written here do not follow: it is said, for texts of
//! transformers would be others.

use plimsoll_base::files::open_to_read;
use serde_json::{Map, Value};
use std::io::Read;
use std::path::Path;

/// Of a file of settings.
const MOST_BYTES: u64 = 16 << 20;

/// Keys that change which texts are written, and the values at which they do not.
const KEYS: [(&str, &[f64]); 12] = [
    ("no_repeat_ngram_size", &[0.0]),
    ("encoder_no_repeat_ngram_size", &[0.0]),
    ("repetition_penalty", &[1.0]),
    ("encoder_repetition_penalty", &[1.0]),
    ("diversity_penalty", &[0.0]),
    ("min_length", &[0.0]),
    ("min_new_tokens", &[0.0]),
    ("forced_bos_token_id", &[]),
    ("forced_eos_token_id", &[]),
    ("suppress_tokens", &[]),
    ("begin_suppress_tokens", &[]),
    ("bad_words_ids", &[]),
];

/// The keys of a folder's generation_config.json that count for nothing here.
pub(crate) fn unfollowed(folder: &Path) -> Vec<String> {
    let keys = keys_of(&folder.join("generation_config.json"));
    let counts = |(key, usual): &&(&str, &[f64])| {
        let value = keys.get(*key).filter(|value| !value.is_null());
        value.is_some_and(|value| !value.as_f64().is_some_and(|number| usual.contains(&number)))
    };
    let mut found: Vec<String> = KEYS.iter().filter(counts).map(|(key, _)| key.to_string()).collect();
    if keys.get("eos_token_id").and_then(Value::as_array).is_some_and(|ids| ids.len() > 1) {
        found.push("eos_token_id".into());
    }
    let start = |keys: &Map<String, Value>| keys.get("decoder_start_token_id").and_then(Value::as_i64);
    if start(&keys).is_some_and(|id| start(&keys_of(&folder.join("config.json"))).is_some_and(|other| other != id)) {
        found.push("decoder_start_token_id".into());
    }
    found
}

/// Nothing where there is no such file, or it holds something else.
fn keys_of(file: &Path) -> Map<String, Value> {
    let mut text = Vec::new();
    let read = open_to_read(file).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut text));
    read.ok().and_then(|_| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_what_changes_texts_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let of = |json: &str| {
            fs::write(folder.path().join("generation_config.json"), json).unwrap();
            unfollowed(folder.path())
        };
        assert_eq!(
            of("{\"no_repeat_ngram_size\": 3, \"repetition_penalty\": 1.0, \"eos_token_id\": [1, 2]}"),
            ["no_repeat_ngram_size", "eos_token_id"]
        );
        assert!(
            of(
                "{\"decoder_start_token_id\": 0, \"eos_token_id\": 1, \"min_length\": 0, \"forced_bos_token_id\": null}"
            )
            .is_empty()
        );
        fs::write(folder.path().join("config.json"), "{\"decoder_start_token_id\": 0}").unwrap();
        assert_eq!(of("{\"decoder_start_token_id\": 5}"), ["decoder_start_token_id"]);
        assert!(of("{\"decoder_start_token_id\": 0}").is_empty());
        assert!(of("not json").is_empty() && unfollowed("/nowhere".as_ref()).is_empty());
    }
}
