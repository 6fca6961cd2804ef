//! A `tokenizer.json` with its special tokens: [CLS] and [SEP], or the end of a text.

use super::beside::Beside;
use super::wordpiece::WordPiece;
use crate::DataError;
use crate::vocabulary::parse_tokenizer;
use plimsoll_base::guard::guarded;
use std::path::{Path, PathBuf};
use tokenizers::{Encoding, PostProcessor, Tokenizer, TruncationDirection, TruncationParams, TruncationStrategy};

pub struct TextTokenizer {
    file: PathBuf,
    tokenizer: Tokenizer,
    json: String,
    size: usize,
    /// The short way, where there is one.
    short: Option<WordPiece>,
    /// Tokens of a text at most.
    limit: usize,
    /// Texts that are too long lose their beginning.
    cuts_left: bool,
}

/// Bytes of a text that are looked at for each token that is kept; most tokens have four or five.
const BYTES_PER_TOKEN: usize = 32;
/// Texts up to this size are tokenized whole.
const LEAST_BYTES: usize = 16 << 10;

/// The end of a piece of about `bytes` bytes: between two words where there is such a place, or between two characters.
pub(crate) fn cut_between_words(text: &str, bytes: usize) -> usize {
    let end = text.floor_char_boundary(bytes);
    let word = text[..end].rfind(|c: char| c.is_ascii_whitespace());
    word.filter(|at| 2 * at >= end && *at > 0).unwrap_or(end)
}

/// The largest vocabularies that exist take some tens of MiB.
const MOST_BYTES: u64 = 1 << 30;

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
        // A pipe would wait for a writer for ever, and a device never end.
        let metadata = std::fs::metadata(file).map_err(unreadable)?;
        if !metadata.is_file() || metadata.len() > MOST_BYTES {
            let cause = format!("it is no file of at most {} MiB", MOST_BYTES >> 20);
            return Err(DataError::Tokenizer { file: file.into(), cause });
        }
        let json = std::fs::read_to_string(file).map_err(unreadable)?;
        Self::with_beside(file, json, &Beside::read(file)?)
    }

    /// `name` is what messages call it.
    pub fn from_json(name: &Path, json: String) -> Result<Self, DataError> {
        Self::with_beside(name, json, &Beside::default())
    }

    fn with_beside(name: &Path, json: String, beside: &Beside) -> Result<Self, DataError> {
        let used = beside.applied(&json);
        let used = used.as_deref().unwrap_or(&json);
        let (tokenizer, size) = parse_tokenizer(name, used)?;
        let cuts_left = beside.cuts_left(used);
        // The short way cuts at the end.
        let short = WordPiece::new(used, &tokenizer).filter(|_| !cuts_left);
        Ok(TextTokenizer { file: name.into(), tokenizer, json, size, short, limit: usize::MAX, cuts_left })
    }

    /// Whether texts that are too long lose their beginning, not their end.
    pub(crate) fn cuts_left(&self) -> bool {
        self.cuts_left
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
        self.limit = max_length;
        // Pairs are cut here: the library would cut each text to the limit first, and forget which was the longer one.
        let limit = (!pair).then(|| TruncationParams {
            max_length,
            strategy: TruncationStrategy::LongestFirst,
            stride: 0,
            direction: self.direction(),
        });
        let refused = |e: tokenizers::Error| DataError::Tokenizer { file: self.file.clone(), cause: e.to_string() };
        self.tokenizer.with_truncation(limit).map(|_| ()).map_err(refused)
    }

    fn direction(&self) -> TruncationDirection {
        if self.cuts_left { TruncationDirection::Left } else { TruncationDirection::Right }
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
        let text = self.beginning(text)?;
        let pair = pair.map(|pair| self.beginning(pair)).transpose()?;
        let encoding = match pair {
            Some(pair) => guarded(|| self.encode_pair(text, pair)),
            None => guarded(|| self.tokenizer.encode_fast(text, true)),
        };
        self.take(encoding, vocab, ids)
    }

    /// Both texts with special tokens, the longer one cut first until they fit.
    fn encode_pair(&self, text: &str, pair: &str) -> tokenizers::Result<Encoding> {
        let mut texts = [self.tokenizer.encode_fast(text, false)?, self.tokenizer.encode_fast(pair, false)?];
        let added = self.tokenizer.get_post_processor().map_or(0, |p| p.added_tokens(true));
        let lengths = texts.each_ref().map(|text| text.len());
        for (text, keep) in texts.iter_mut().zip(cut(lengths, self.limit.saturating_sub(added))) {
            text.truncate(keep, 0, self.direction());
            // That something was cut off is all that is asked; of all of it the library would make pairs, gigabytes of them.
            let first = text.take_overflowing().into_iter().take(1).collect();
            text.set_overflowing(first);
        }
        let [text, mut pair] = texts;
        pair.set_type_ids(vec![1; pair.len()]);
        self.tokenizer.post_process(text, Some(pair), true)
    }

    /// As much of a text as can have influence on the ids that are kept: tokenizing takes over a hundred times the bytes
    /// of its text, and of a book with a limit of 512 tokens only the first page is read.
    fn beginning<'a>(&self, text: &'a str) -> Result<&'a str, DataError> {
        // What loses its beginning is looked at whole.
        if self.cuts_left {
            return Ok(text);
        }
        let mut bytes = self.limit.saturating_mul(BYTES_PER_TOKEN).max(LEAST_BYTES);
        while bytes < text.len() {
            let ids = |bytes: usize| {
                let part = &text[..cut_between_words(text, bytes.min(text.len()))];
                let encoding = self.attempt(|| self.tokenizer.encode_fast(part, false))?;
                Ok::<_, DataError>((part, encoding.get_ids().iter().copied().take(self.limit).collect::<Vec<_>>()))
            };
            // As many tokens as are kept, and the same with twice the text: where it was cut is seen by none of them.
            let (part, kept) = ids(bytes)?;
            if kept.len() == self.limit && kept == ids(bytes.saturating_mul(2))?.1 {
                return Ok(part);
            }
            bytes = bytes.saturating_mul(2);
        }
        Ok(text)
    }

    fn attempt<T>(&self, work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, DataError> {
        let refused = |cause: String| DataError::Tokenizer { file: self.file.clone(), cause };
        guarded(work).map_err(refused)?.map_err(|error| refused(error.to_string()))
    }

    #[cfg(test)]
    pub(super) fn is_short(&self) -> bool {
        self.short.is_some()
    }

    #[cfg(test)]
    pub(super) fn encode_long_into(&self, text: &str, vocab: usize, ids: &mut Vec<u32>) -> Result<Encoded, DataError> {
        self.take(guarded(|| self.tokenizer.encode_fast(text, true)), vocab, ids)
    }

    /// Refuses a tokenizer with ids that the model does not know, where texts are met only later: a run that dies of one
    /// at its thousandth step helps nobody.
    pub(super) fn check_all(&self, vocab: usize) -> Result<(), DataError> {
        let highest = self.tokenizer.get_vocab(true).into_values().max();
        self.check(highest.as_slice(), vocab)
    }

    /// Refuses ids that the model does not know.
    fn check(&self, ids: &[u32], vocab: usize) -> Result<(), DataError> {
        let Some(&id) = ids.iter().find(|&&id| id as usize >= vocab) else { return Ok(()) };
        let token = self.tokenizer.id_to_token(id).unwrap_or_default();
        Err(DataError::TokenBeyondVocabulary { file: self.file.clone(), token, id, vocab })
    }

    /// Appends the ids of a text without special tokens.
    pub(super) fn encode_plain_into(&self, text: &str, vocab: usize, ids: &mut Vec<u32>) -> Result<Encoded, DataError> {
        let text = self.beginning(text)?;
        self.take(guarded(|| self.tokenizer.encode_fast(text, false)), vocab, ids)
    }

    fn take(
        &self,
        encoding: Result<tokenizers::Result<Encoding>, String>,
        vocab: usize,
        ids: &mut Vec<u32>,
    ) -> Result<Encoded, DataError> {
        let refused = |cause| DataError::Tokenizer { file: self.file.clone(), cause };
        let encoding = encoding.map_err(refused)?.map_err(|error| refused(error.to_string()))?;
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
        self.attempt(|| self.tokenizer.decode(&known, true))
    }
}

/// Tokens that each of two texts keeps: the longer one is cut to the shorter, then both alike, and of an odd rest the one
/// that was longer has one more (the second, where both were equal). As transformers cuts.
fn cut([first, second]: [usize; 2], room: usize) -> [usize; 2] {
    let (short, long) = (first.min(second), first.max(second));
    let kept = match (short + long <= room, short <= room / 2) {
        (true, _) => [short, long],
        (false, true) => [short, room - short],
        (false, false) => [room / 2, room - room / 2],
    };
    if first > second { [kept[1], kept[0]] } else { kept }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// One token at a time from the longer text is the definition.
        #[test]
        fn pairs_are_cut_from_the_longer_text(first in 0usize..60, second in 0usize..60, room in 0usize..60) {
            let [a, b] = cut([first, second], room);
            prop_assert!(a <= first && b <= second && a + b == room.min(first + second));
            prop_assert!(a.abs_diff(b) <= 1 || (a < b && a == first) || (b < a && b == second), "{a} + {b}");
            // Where both are cut to an odd rest, the longer one keeps one more.
            if a < first && b < second && a != b {
                prop_assert_eq!(a > b, first > second);
            }
        }
    }

    #[test]
    fn of_an_odd_rest_the_longer_text_keeps_one_more() {
        assert_eq!((cut([30, 25], 21), cut([25, 30], 21), cut([30, 30], 21)), ([11, 10], [10, 11], [10, 11]));
        let mut tokenizer = encoder();
        tokenizer.limit(6, true).unwrap();
        let mut ids = Vec::new();
        let encoded = tokenizer.encode_into("a a a a a a a a a", Some("b b b b b b b b"), 8, &mut ids).unwrap();
        assert_eq!((ids.as_slice(), encoded.split, encoded.truncated), (&[2, 4, 4, 3, 5, 3][..], 4, true));
    }

    /// Words with [CLS] and [SEP], as BERT's.
    pub(crate) const ENCODER: &str = r#"{
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

    pub(crate) fn encoder() -> TextTokenizer {
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

    /// Whatever stands behind what is kept has no influence, and is not looked at.
    #[test]
    fn long_texts_give_the_ids_of_their_beginning() {
        let mut tokenizer = encoder();
        tokenizer.limit(12, false).unwrap();
        let (mut whole, mut part) = (Vec::new(), Vec::new());
        for text in ["a b c d ".repeat(200_000), format!("{}{}", " ".repeat(50_000), "d c b a\n".repeat(20_000))] {
            whole.clear();
            part.clear();
            let expected = tokenizer.encode_long_into(&text, 8, &mut whole).unwrap();
            let found = tokenizer.encode_into(&text, None, 8, &mut part).unwrap();
            assert_eq!((whole.clone(), expected), (part.clone(), found));
            assert!(tokenizer.beginning(&text).unwrap().len() < 140_000);
            let mut plain = Vec::new();
            tokenizer.encode_plain_into(&text, 8, &mut plain).unwrap();
            assert_eq!(plain.len(), 12);
        }
        // A single word, however long, is one token: all of it is read.
        let word = "x".repeat(40_000);
        assert_eq!(tokenizer.beginning(&word).unwrap().len(), word.len());
    }

    #[test]
    fn pairs_are_cut_alike_however_long_they_are() {
        let mut tokenizer = encoder();
        tokenizer.limit(16, true).unwrap();
        for (first, second) in [(3, 9_000), (9_000, 3), (9_000, 9_000)] {
            let [first, second] = [first, second].map(|words| "a b ".repeat(words));
            let (mut whole, mut part) = (Vec::new(), Vec::new());
            let pair = guarded(|| tokenizer.encode_pair(&first, &second));
            let expected = tokenizer.take(pair, 8, &mut whole).unwrap();
            assert_eq!(tokenizer.encode_into(&first, Some(&second), 8, &mut part).unwrap(), expected);
            assert_eq!(whole, part);
        }
    }

    #[test]
    fn ids_that_the_model_lacks_are_named() {
        let error = encoder().encode_into("a d", None, 7, &mut Vec::new()).unwrap_err();
        assert!(matches!(&error, DataError::TokenBeyondVocabulary { token, id: 7, .. } if token == "d"), "{error}");
        let missing = TextTokenizer::open(Path::new("/nowhere/tokenizer.json")).unwrap_err();
        assert!(matches!(missing, DataError::NoTokenizer { .. }) && missing.hint().contains("data.tokenizer"));
    }
}
