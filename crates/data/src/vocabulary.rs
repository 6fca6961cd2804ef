//! From text to token ids and back: bytes, or a `tokenizer.json`.

use super::DataError;
use plimsoll_base::guard::guarded;
use std::path::{Path, PathBuf};
use tokenizers::Tokenizer;

/// Id between documents in the byte vocabulary.
const BYTE_END_OF_TEXT: u32 = 256;
/// Names under which tokenizers know the end of a document.
const END_OF_TEXT: [&str; 6] = ["<|endoftext|>", "</s>", "<eos>", "<|end_of_text|>", "[SEP]", "[EOS]"];
/// Text is tokenized in pieces of about this size: an encoding takes far more memory than its text.
const PIECE_BYTES: usize = 1 << 16;
/// Where no line ends, a piece ends between two words; where there are none either, between two characters.
const MOST_PIECE_BYTES: usize = 4 * PIECE_BYTES;

/// Which vocabulary to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VocabularyChoice {
    Bytes,
    /// Path of a `tokenizer.json`.
    Tokenizer(PathBuf),
}

/// Token ids of a text.
#[derive(Debug)]
pub enum Vocabulary {
    /// Ids 0..256 are bytes, 256 ends a document.
    Bytes,
    Tokenizer(Box<FileVocabulary>),
}

#[derive(Debug)]
pub struct FileVocabulary {
    file: PathBuf,
    tokenizer: Tokenizer,
    size: usize,
    end_of_text: Option<u32>,
}

impl Vocabulary {
    pub fn open(choice: &VocabularyChoice) -> Result<Self, DataError> {
        match choice {
            VocabularyChoice::Bytes => Ok(Vocabulary::Bytes),
            VocabularyChoice::Tokenizer(file) => Ok(Vocabulary::Tokenizer(Box::new(FileVocabulary::open(file)?))),
        }
    }

    /// Ids are below this.
    pub fn size(&self) -> usize {
        match self {
            Vocabulary::Bytes => BYTE_END_OF_TEXT as usize + 1,
            Vocabulary::Tokenizer(vocabulary) => vocabulary.size,
        }
    }

    /// The id that separates documents, where there is one.
    pub fn end_of_text(&self) -> Option<u32> {
        match self {
            Vocabulary::Bytes => Some(BYTE_END_OF_TEXT),
            Vocabulary::Tokenizer(vocabulary) => vocabulary.end_of_text,
        }
    }

    pub fn name(&self) -> String {
        match self {
            Vocabulary::Bytes => "bytes".into(),
            Vocabulary::Tokenizer(vocabulary) => vocabulary.file.display().to_string(),
        }
    }

    pub(crate) fn encode(&self, text: &str) -> Result<Vec<i32>, DataError> {
        let mut ids = Vec::new();
        self.encode_into(text, &mut ids)?;
        Ok(ids)
    }

    /// Ids of a prompt for a model that knows `vocab` ids.
    pub fn encode_prompt(&self, text: &str, vocab: usize) -> Result<Vec<i32>, DataError> {
        let ids = self.encode(text)?;
        match ids.iter().find(|&&id| id as usize >= vocab) {
            Some(&id) => Err(DataError::IdBeyondVocabulary { file: "prompt".into(), id: id as u32, vocab }),
            None => Ok(ids),
        }
    }

    /// Appends the ids of `text`, without special tokens.
    pub(super) fn encode_into(&self, text: &str, ids: &mut Vec<i32>) -> Result<(), DataError> {
        match self {
            Vocabulary::Bytes => ids.extend(text.bytes().map(i32::from)),
            Vocabulary::Tokenizer(vocabulary) => {
                pieces(text).try_for_each(|piece| vocabulary.encode_into(piece, ids))?;
            }
        }
        Ok(())
    }

    /// How much of a text that goes on can be taken by itself, to the ids of the whole.
    pub(super) fn whole_pieces(&self, text: &str) -> usize {
        if let Vocabulary::Bytes = self { text.len() } else { whole_pieces(text) }
    }

    /// Ids that mean nothing are left out; bytes that are not UTF-8 become replacement characters.
    pub fn decode(&self, ids: &[i32]) -> Result<String, DataError> {
        match self {
            Vocabulary::Bytes => {
                let bytes: Vec<u8> = ids.iter().filter_map(|&id| u8::try_from(id).ok()).collect();
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Vocabulary::Tokenizer(vocabulary) => vocabulary.decode(ids),
        }
    }
}

/// A tokenizer that neither pads nor truncates, and what its ids are below.
pub(super) fn parse_tokenizer(file: &Path, json: &str) -> Result<(Tokenizer, usize), DataError> {
    let refused = |cause: String| DataError::Tokenizer { file: file.into(), cause };
    if charsmaps(json.as_bytes()).any(is_torn) {
        return Err(refused("its precompiled_charsmap is shorter than it says".into()));
    }
    // Of a text: what reads it from bytes would be compiled here anew, a quarter of this crate's code.
    let mut tokenizer =
        guarded(|| json.parse::<Tokenizer>()).map_err(refused)?.map_err(|error| refused(error.to_string()))?;
    // Sequences are cut and padded here, not by the tokenizer.
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(|error| refused(error.to_string()))?;
    let highest = tokenizer.get_vocab(true).into_values().max();
    let size = highest.map_or(0, |id| id as usize + 1);
    if size == 0 || size > i32::MAX as usize {
        return Err(refused(format!("its highest id gives a vocabulary of {size}")));
    }
    Ok((tokenizer, size))
}

/// The base64 of every normalizer's table, as it is written.
fn charsmaps(json: &[u8]) -> impl Iterator<Item = &[u8]> {
    const KEY: &[u8] = b"\"precompiled_charsmap\"";
    let starts = json.windows(KEY.len()).enumerate().filter(|(_, window)| *window == KEY);
    starts.filter_map(move |(start, _)| {
        let value = json[start + KEY.len()..].trim_ascii_start().strip_prefix(b":")?;
        let text = value.trim_ascii_start().strip_prefix(b"\"")?.split(|&byte| byte == b'"').next()?;
        // With escapes it is for the reader to judge.
        (!text.contains(&b'\\')).then_some(text)
    })
}

/// Whether a table announces more than there is: its reader takes the memory before it looks.
fn is_torn(base64: &[u8]) -> bool {
    let digit = |byte: &u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        _ => 63,
    };
    let bits = base64.iter().take(6).fold(0u64, |bits, byte| bits << 6 | u64::from(digit(byte)));
    let announced = ((bits >> 4) as u32).swap_bytes() as usize;
    base64.len() >= 6 && announced > base64.len() / 4 * 3
}

impl FileVocabulary {
    fn open(file: &Path) -> Result<Self, DataError> {
        let json =
            std::fs::read_to_string(file).map_err(|source| DataError::Unreadable { file: file.into(), source })?;
        let (tokenizer, size) = parse_tokenizer(file, &json)?;
        let end_of_text = END_OF_TEXT.iter().find_map(|name| tokenizer.token_to_id(name));
        Ok(FileVocabulary { file: file.into(), tokenizer, size, end_of_text })
    }

    fn encode_into(&self, text: &str, ids: &mut Vec<i32>) -> Result<(), DataError> {
        let encoding = self.attempt(|| self.tokenizer.encode_fast(text, false))?;
        // Ids fit: `open` has checked the highest.
        ids.extend(encoding.get_ids().iter().map(|&id| id as i32));
        Ok(())
    }

    fn decode(&self, ids: &[i32]) -> Result<String, DataError> {
        let ids: Vec<u32> = ids.iter().filter_map(|&id| u32::try_from(id).ok()).collect();
        self.attempt(|| self.tokenizer.decode(&ids, true))
    }

    fn attempt<T>(&self, work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, DataError> {
        let refused = |cause: String| DataError::Tokenizer { file: self.file.clone(), cause };
        guarded(work).map_err(refused)?.map_err(|error| refused(error.to_string()))
    }
}

/// Cuts after line ends between words, where tokenizers cut anyway; before the space between two words in texts without
/// lines, and between characters in texts without words.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (piece, behind) = rest.split_at(piece_end(rest));
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    })
}

fn piece_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    // A byte below 0x80 is a whole character, so the places found are character boundaries.
    let between = |&at: &usize| {
        bytes[at - 1] == b'\n' && !bytes[at - 2].is_ascii_whitespace() && !bytes[at].is_ascii_whitespace()
    };
    let most = MOST_PIECE_BYTES.min(bytes.len());
    let lines = PIECE_BYTES.min(most)..most;
    if let Some(end) = lines.clone().find(between) {
        return end;
    }
    let before_word = |&at: &usize| {
        bytes[at] == b' '
            && !bytes[at - 1].is_ascii_whitespace()
            && bytes.get(at + 1).is_some_and(|byte| !byte.is_ascii_whitespace())
    };
    match bytes.len() <= MOST_PIECE_BYTES {
        true => bytes.len(),
        false => lines.rev().find(before_word).unwrap_or_else(|| text.floor_char_boundary(MOST_PIECE_BYTES)),
    }
}

/// How much of a text that goes on elsewhere can be tokenized by itself: all but what may belong to its next piece.
pub(super) fn whole_pieces(text: &str) -> usize {
    let mut end = 0;
    while text.len() - end > MOST_PIECE_BYTES {
        end += piece_end(&text[end..]);
    }
    end
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::formats::table::tests::{file, mutated};

    /// A word-level tokenizer that pads and truncates, as published files often do.
    pub(crate) const TOKENIZER: &str = r#"{
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                    "pad_type_id": 0, "pad_token": "[UNK]"},
        "added_tokens": [{"id": 4, "content": "<|endoftext|>", "single_word": false, "lstrip": false,
                          "rstrip": false, "normalized": false, "special": true}],
        "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "the": 1, "ship": 2, "floats": 3},
                  "unk_token": "[UNK]"}
    }"#;

    #[test]
    fn a_table_that_announces_more_than_there_is_takes_no_memory() {
        let torn = |text: &str| charsmaps(format!("{{\"precompiled_charsmap\": \"{text}\"}}").as_bytes()).any(is_torn);
        assert!(torn("/////w=="), "4 GiB announced, nothing there");
        assert!(!torn("AAAAAA==") && !torn(""), "an empty table");
        // 16 announced: 20 bytes are there, then 11.
        assert!(!torn("EAAAAAAAAAAAAAAAAAAAAAAAAAA=") && torn("EAAAAAAAAAAAAAA="));
        assert_eq!(charsmaps(br#"{"precompiled_charsmap": null, "a": "/////w=="}"#).count(), 0);
    }

    #[test]
    fn bytes_round_trip_and_survive_nonsense() {
        let bytes = Vocabulary::Bytes;
        let ids = bytes.encode("héllo\n").unwrap();
        assert_eq!(ids.len(), 7);
        assert_eq!(bytes.decode(&ids).unwrap(), "héllo\n");
        assert_eq!(bytes.decode(&[104, 256, -1, 99999, 105]).unwrap(), "hi");
        assert_eq!(bytes.decode(&[0xc3]).unwrap(), "\u{fffd}");
        assert_eq!((bytes.size(), bytes.end_of_text()), (257, Some(256)));
        assert_eq!(bytes.encode_prompt("hi", 128).unwrap(), [104, 105]);
        assert!(matches!(bytes.encode_prompt("hé", 128), Err(DataError::IdBeyondVocabulary { id: 0xc3, .. })));
    }

    #[test]
    fn a_tokenizer_file_neither_pads_nor_truncates() {
        let (_folder, path) = file("tokenizer.json", TOKENIZER);
        let vocabulary = Vocabulary::open(&VocabularyChoice::Tokenizer(path)).unwrap();
        assert_eq!(vocabulary.encode("the ship floats the moon").unwrap(), [1, 2, 3, 1, 0]);
        assert_eq!((vocabulary.size(), vocabulary.end_of_text()), (5, Some(4)));
        assert_eq!(vocabulary.decode(&[1, 2, 4, -7]).unwrap(), "the ship");
    }

    #[test]
    fn unusable_tokenizers_are_errors() {
        for content in ["", "{}", "[1, 2", &TOKENIZER.replace("WordLevel", "NoLevel")] {
            let (_folder, path) = file("tokenizer.json", content);
            let error = Vocabulary::open(&VocabularyChoice::Tokenizer(path)).unwrap_err();
            assert!(matches!(error, DataError::Tokenizer { .. }), "{error}");
        }
        let missing = VocabularyChoice::Tokenizer("/nowhere/tokenizer.json".into());
        assert!(matches!(Vocabulary::open(&missing), Err(DataError::Unreadable { .. })));
    }

    /// Damage gives an error or another tokenizer, never a panic.
    #[test]
    fn mutated_tokenizers_do_not_panic() {
        let (_folder, path) = file("tokenizer.json", "");
        for seed in 0..500 {
            std::fs::write(&path, mutated(TOKENIZER, seed)).unwrap();
            if let Ok(vocabulary) = Vocabulary::open(&VocabularyChoice::Tokenizer(path.clone())) {
                let ids = vocabulary.encode("the ship floats").unwrap_or_default();
                assert!(ids.iter().all(|&id| (id as usize) < vocabulary.size()));
            }
        }
    }

    #[test]
    fn long_texts_are_cut_between_words_only() {
        let text = "äpfel und birnen\n\n  x\n".repeat(10_000);
        let cut: Vec<&str> = pieces(&text).collect();
        assert_eq!(cut.concat(), text);
        assert!(cut.len() == 4, "{} pieces", cut.len());
        assert!(cut[1..].iter().all(|piece| piece.starts_with('ä')));
        assert_eq!(pieces("").count(), 0);
    }

    #[test]
    fn no_piece_is_large_whatever_the_text_has_to_cut_at() {
        let words = "abc défg ".repeat(200_000);
        let none = "é".repeat(900_000);
        for (text, between_words) in [(&words, true), (&none, false)] {
            let cut: Vec<&str> = pieces(text).collect();
            assert_eq!(cut.concat(), *text);
            assert!(cut.iter().all(|piece| piece.len() <= MOST_PIECE_BYTES));
            assert!(!between_words || cut[1..].iter().all(|piece| piece.starts_with(' ')));
            // Cut block by block, pieces end at the same places.
            let (mut rest, mut ends, mut at) = (String::new(), Vec::new(), 0);
            for block in text.as_bytes().chunks(100_000) {
                rest += std::str::from_utf8(block).unwrap();
                let end = whole_pieces(&rest);
                pieces(&rest[..end]).for_each(|piece| {
                    at += piece.len();
                    ends.push(at);
                });
                rest.drain(..end);
            }
            let expected: Vec<usize> = cut
                .iter()
                .scan(0, |at, piece| {
                    *at += piece.len();
                    Some(*at)
                })
                .collect();
            assert_eq!(ends, expected[..ends.len()]);
            assert!(!ends.is_empty());
        }
    }
}
