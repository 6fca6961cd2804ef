//! What tokenizer_config.json says beside a tokenizer.json: transformers goes by it, so numbers depend on it.

use crate::DataError;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// Keys of tokenizer_config.json that change what a text becomes.
#[derive(Clone, Debug, Default)]
pub(super) struct Beside {
    truncation_side: Option<String>,
    /// Of BERT's normalizer: `lowercase`, `strip_accents`, `handle_chinese_chars`, in its own words.
    normalizer: Vec<(&'static str, Value)>,
}

/// What a tokenizer.json says of this itself.
#[derive(Deserialize)]
struct Own {
    truncation: Option<OwnTruncation>,
}

#[derive(Deserialize)]
struct OwnTruncation {
    direction: Option<String>,
}

impl Own {
    fn cuts_left(&self) -> bool {
        self.truncation.as_ref().and_then(|own| own.direction.as_deref()) == Some("Left")
    }
}

/// As tokenizer_config.json calls it, and as BERT's normalizer does.
const NORMALIZER: [(&str, &str); 3] = [
    ("do_lower_case", "lowercase"),
    ("strip_accents", "strip_accents"),
    ("tokenize_chinese_chars", "handle_chinese_chars"),
];

/// Such a file is a page of text.
const MOST_BYTES: u64 = 16 << 20;

impl Beside {
    /// What lies beside a tokenizer.json; nothing where there is no such file.
    pub(super) fn read(tokenizer: &Path) -> Result<Beside, DataError> {
        let file = tokenizer.with_file_name("tokenizer_config.json");
        if !std::fs::metadata(&file).is_ok_and(|m| m.is_file() && m.len() <= MOST_BYTES) {
            return Ok(Beside::default());
        }
        let text = std::fs::read(&file).map_err(|source| DataError::Unreadable { file: file.clone(), source })?;
        let config: Value =
            serde_json::from_slice(&text).map_err(|error| DataError::Tokenizer { file, cause: error.to_string() })?;
        Ok(Beside::of(&config))
    }

    fn of(config: &Value) -> Beside {
        let said = |(key, ours): &(&str, &'static str)| Some((*ours, config.get(*key)?.clone()));
        Beside {
            truncation_side: config.get("truncation_side").and_then(Value::as_str).map(String::from),
            normalizer: NORMALIZER.iter().filter_map(said).collect(),
        }
    }

    /// The tokenizer.json as transformers uses it, where that is another than it is written.
    pub(super) fn applied(&self, json: &str) -> Option<String> {
        if self.normalizer.is_empty() {
            return None;
        }
        let mut tokenizer: Value = serde_json::from_str(json).ok()?;
        let normalizer = tokenizer.get_mut("normalizer")?.as_object_mut()?;
        if normalizer.get("type").and_then(Value::as_str) != Some("BertNormalizer") {
            return None;
        }
        let mut changed = false;
        for (key, value) in &self.normalizer {
            changed |= normalizer.get(*key).unwrap_or(&Value::Null) != value;
            normalizer.insert((*key).into(), value.clone());
        }
        changed.then(|| tokenizer.to_string())
    }

    /// Whether what is too long loses its beginning: as said here, or else by the tokenizer itself.
    pub(super) fn cuts_left(&self, json: &str) -> bool {
        match &self.truncation_side {
            Some(side) => side == "left",
            None => serde_json::from_str(json).is_ok_and(|own: Own| own.cuts_left()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::TextTokenizer;
    use super::super::tokenizer::tests::ENCODER;

    fn ids(config: Option<&str>, change: impl Fn(String) -> String, text: &str) -> Vec<u32> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, change(ENCODER.into())).unwrap();
        if let Some(config) = config {
            std::fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
        }
        let mut tokenizer = TextTokenizer::open(&path).unwrap();
        tokenizer.limit(4, false).unwrap();
        let mut ids = Vec::new();
        tokenizer.encode_into(text, None, 8, &mut ids).unwrap();
        ids
    }

    #[test]
    fn texts_are_cut_on_the_side_that_the_checkpoint_says() {
        let same = |json: String| json;
        assert_eq!(ids(None, same, "a b c d"), [2, 4, 5, 3]);
        assert_eq!(ids(Some("{\"truncation_side\": \"left\"}"), same, "a b c d"), [2, 6, 7, 3]);
        let own = |json: String| {
            let truncation =
                "{\"direction\": \"Left\", \"max_length\": 9, \"strategy\": \"LongestFirst\", \"stride\": 0}";
            json.replace("\"truncation\": null", &format!("\"truncation\": {truncation}"))
        };
        assert_eq!(ids(None, own, "a b c d"), [2, 6, 7, 3]);
        assert_eq!(ids(Some("{\"truncation_side\": \"right\"}"), own, "a b c d"), [2, 4, 5, 3], "the config counts");
    }

    #[test]
    fn letters_are_lowered_as_the_checkpoint_says() {
        let bert = |json: String| {
            let normalizer = "{\"type\": \"BertNormalizer\", \"clean_text\": true, \"handle_chinese_chars\": true, \
                              \"strip_accents\": null, \"lowercase\": false}";
            json.replace("\"normalizer\": null", &format!("\"normalizer\": {normalizer}"))
        };
        assert_eq!(ids(None, bert, "A b"), [2, 1, 5, 3], "an unknown word");
        assert_eq!(ids(Some("{\"do_lower_case\": true}"), bert, "A b"), [2, 4, 5, 3]);
        assert_eq!(ids(Some("{\"do_lower_case\": true}"), |json| json, "A b"), [2, 1, 5, 3], "no normalizer of BERT's");
    }
}
