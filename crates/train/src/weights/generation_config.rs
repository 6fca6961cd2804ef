//! What a checkpoint's generation_config.json asks for and texts written here do not follow: it is said, for texts of
//! transformers would be others.

use serde_json::{Map, Value};
use std::fs;
use std::path::Path;

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
    let text = fs::read(folder.join("generation_config.json")).unwrap_or_default();
    let keys: Map<String, Value> = serde_json::from_slice(&text).unwrap_or_default();
    let counts = |(key, usual): &&(&str, &[f64])| {
        let value = keys.get(*key).filter(|value| !value.is_null());
        value.is_some_and(|value| !value.as_f64().is_some_and(|number| usual.contains(&number)))
    };
    let mut found: Vec<String> = KEYS.iter().filter(counts).map(|(key, _)| key.to_string()).collect();
    if keys.get("eos_token_id").and_then(Value::as_array).is_some_and(|ids| ids.len() > 1) {
        found.push("eos_token_id".into());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(of("not json").is_empty() && unfollowed("/nowhere".as_ref()).is_empty());
    }
}
