//! A `tokenizer.json` with its special tokens: [CLS] and [SEP], or the end of a text.

use super::wordpiece::WordPiece;
use crate::vocabulary::parse_tokenizer;
use crate::{DataError, guarded};
use std::path::{Path, PathBuf};
use tokenizers::{EncodeInput, PostProcessor, Tokenizer, TruncationParams, TruncationStrategy};

pub struct TextTokenizer {
    file: PathBuf,
    tokenizer: Tokenizer,
    json: String,
    size: usize,
    /// The short way, where there is one.
    short: Option<WordPiece>,
    /// Tokens of a text at most.
    limit: usize,
}

/// What tokenizing a text gave, beside its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoded {
    /// Tokens.
    pub length: usize,
    /// The first token of the second segment; `length` where there is none.
    pub split: usize,
    /// The text was longer than allowed.
    pub truncated: bool,
}

impl std::fmt::Debug for TextTokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} ids)", self.file.display(), self.size)
    }
}

impl TextTokenizer {
    pub fn open(file: &Path) -> Result<Self, DataError> {
        let unreadable = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::NotFound => {
                DataError::NoTokenizer { cause: format!("{} is not there", file.display()) }
            }
            _ => DataError::Unreadable { file: file.into(), source },
        };
        let json = std::fs::read_to_string(file).map_err(unreadable)?;
        Self::from_json(file, json)
    }

    /// `name` is what messages call it.
    pub fn from_json(name: &Path, json: String) -> Result<Self, DataError> {
        let (tokenizer, size) = parse_tokenizer(name, json.as_bytes())?;
        let short = WordPiece::new(&json, &tokenizer);
        Ok(TextTokenizer { file: name.into(), tokenizer, json, size, short, limit: usize::MAX })
    }

    /// Its file, as it was read: belongs into the folder of what was trained with it.
    pub fn json(&self) -> &str {
        &self.json
    }

    pub fn name(&self) -> String {
        self.file.display().to_string()
    }

    /// Ids are below this.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The id of a token by its text.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    /// Cuts texts (of pairs the longer one first) so that they have at most `max_length` tokens with special ones.
    pub fn limit(&mut self, max_length: usize, pair: bool) -> Result<(), DataError> {
        let added = self.tokenizer.get_post_processor().map_or(0, |p| p.added_tokens(pair).max(p.added_tokens(false)));
        if max_length <= added {
            let cause = format!("{max_length} leaves no room beside the {added} special tokens of {}", self.name());
            return Err(DataError::option("max_length", cause));
        }
        let strategy = TruncationStrategy::LongestFirst;
        let limit = TruncationParams { max_length, strategy, stride: 0, ..TruncationParams::default() };
        let refused = |e: tokenizers::Error| DataError::Tokenizer { file: self.file.clone(), cause: e.to_string() };
        self.tokenizer.with_truncation(Some(limit)).map(|_| ()).map_err(refused)?;
        self.limit = max_length;
        Ok(())
    }

    /// Appends the ids of a text or a pair, with special tokens. `vocab`: ids that the model knows.
    pub(crate) fn encode_into(
        &self,
        text: &str,
        pair: Option<&str>,
        vocab: usize,
        ids: &mut Vec<u32>,
    ) -> Result<Encoded, DataError> {
        let start = ids.len();
        if let (None, Some(short)) = (pair, &self.short)
            && let Some(truncated) = short.encode_into(text, self.limit, ids)
        {
            self.check(&ids[start..], vocab)?;
            let length = ids.len() - start;
            return Ok(Encoded { length, split: length, truncated });
        }
        let input: EncodeInput<'_> = match pair {
            Some(pair) => (text, pair).into(),
            None => text.into(),
        };
        self.encode(input, true, vocab, ids)
    }

    #[cfg(test)]
    pub(super) fn is_short(&self) -> bool {
        self.short.is_some()
    }

    #[cfg(test)]
    pub(super) fn encode_long_into(&self, text: &str, vocab: usize, ids: &mut Vec<u32>) -> Result<Encoded, DataError> {
        self.encode(text.into(), true, vocab, ids)
    }

    /// Refuses ids that the model does not know.
    fn check(&self, ids: &[u32], vocab: usize) -> Result<(), DataError> {
        let Some(&id) = ids.iter().find(|&&id| id as usize >= vocab) else { return Ok(()) };
        let token = self.tokenizer.id_to_token(id).unwrap_or_default();
        Err(DataError::TokenBeyondVocabulary { file: self.file.clone(), token, id, vocab })
    }

    /// Appends the ids of a text without special tokens.
    pub(super) fn encode_plain_into(&self, text: &str, vocab: usize, ids: &mut Vec<u32>) -> Result<Encoded, DataError> {
        self.encode(text.into(), false, vocab, ids)
    }

    fn encode(
        &self,
        input: EncodeInput<'_>,
        special: bool,
        vocab: usize,
        ids: &mut Vec<u32>,
    ) -> Result<Encoded, DataError> {
        let refused = |cause| DataError::Tokenizer { file: self.file.clone(), cause };
        let encoding = guarded(|| self.tokenizer.encode_fast(input, special))
            .map_err(refused)?
            .map_err(|error| refused(error.to_string()))?;
        let found = encoding.get_ids();
        self.check(found, vocab)?;
        ids.extend_from_slice(found);
        Ok(Encoded {
            length: found.len(),
            split: encoding.get_type_ids().iter().position(|&kind| kind > 0).unwrap_or(found.len()),
            truncated: !encoding.get_overflowing().is_empty(),
        })
    }

    /// Text of ids, without special tokens; ids that mean nothing are left out.
    pub fn decode(&self, ids: &[i32]) -> Result<String, DataError> {
        let known: Vec<u32> = ids.iter().filter_map(|&id| u32::try_from(id).ok()).collect();
        let refused = |cause| DataError::Tokenizer { file: self.file.clone(), cause };
        guarded(|| self.tokenizer.decode(&known, true)).map_err(refused)?.map_err(|error| refused(error.to_string()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Words with [CLS] and [SEP], as BERT's.
    pub const ENCODER: &str = r#"{
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [
            {"id": 0, "content": "[PAD]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
            {"id": 2, "content": "[CLS]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
            {"id": 3, "content": "[SEP]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
        "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}, "decoder": null,
        "model": {"type": "WordLevel", "unk_token": "[UNK]",
                  "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4, "b": 5, "c": 6, "d": 7}}
    }"#;

    pub fn encoder() -> TextTokenizer {
        TextTokenizer::from_json(Path::new("tokenizer.json"), ENCODER.into()).unwrap()
    }

    #[test]
    fn pairs_have_segments_and_the_longer_text_is_cut_first() {
        let mut tokenizer = encoder();
        let mut ids = Vec::new();
        let encoded = tokenizer.encode_into("a b", Some("c"), 8, &mut ids).unwrap();
        assert_eq!((ids.as_slice(), encoded.split, encoded.truncated), (&[2, 4, 5, 3, 6, 3][..], 4, false));
        tokenizer.limit(6, true).unwrap();
        ids.clear();
        let encoded = tokenizer.encode_into("a b a b", Some("c"), 8, &mut ids).unwrap();
        assert_eq!((ids.as_slice(), encoded.truncated), (&[2, 4, 5, 3, 6, 3][..], true));
        assert_eq!(tokenizer.decode(&[2, 4, 5, 3, -1]).unwrap(), "a b");
        assert!(matches!(tokenizer.limit(3, true), Err(DataError::BadOption { .. })));
    }

    #[test]
    fn ids_that_the_model_lacks_are_named() {
        let error = encoder().encode_into("a d", None, 7, &mut Vec::new()).unwrap_err();
        assert!(matches!(&error, DataError::TokenBeyondVocabulary { token, id: 7, .. } if token == "d"), "{error}");
        let missing = TextTokenizer::open(Path::new("/nowhere/tokenizer.json")).unwrap_err();
        assert!(matches!(missing, DataError::NoTokenizer { .. }) && missing.hint().contains("data.tokenizer"));
    }
}
