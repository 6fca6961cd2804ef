//! A short way for the commonest case: BERT's tokenizer on a single ASCII text. The general tokenizer keeps track of
//! where every character came from; here that is not needed. Ids are the same, whatever else is in the text goes the
//! long way.

use std::collections::HashMap;
use tokenizers::Tokenizer;

pub(super) struct WordPiece {
    /// Pieces that begin a word, and those that continue one.
    first: HashMap<Vec<u8>, u32>,
    next: HashMap<Vec<u8>, u32>,
    unknown: u32,
    lowercase: bool,
    /// Words with more characters are unknown.
    longest_word: usize,
    /// Bytes with which a special token begins.
    special: [bool; 256],
    /// Ids around a text.
    before: Vec<u32>,
    behind: Vec<u32>,
}

impl WordPiece {
    /// `None` where the tokenizer does anything that is not done here.
    pub(super) fn new(json: &str, tokenizer: &Tokenizer) -> Option<Self> {
        let file: serde_json::Value = serde_json::from_str(json).ok()?;
        let (normalizer, model) = (&file["normalizer"], &file["model"]);
        let is_bert = normalizer["type"] == "BertNormalizer"
            && normalizer["clean_text"] == true
            && file["pre_tokenizer"]["type"] == "BertPreTokenizer"
            && model["type"] == "WordPiece";
        let prefix = model["continuing_subword_prefix"].as_str()?;
        if !is_bert || prefix.is_empty() {
            return None;
        }
        let (mut first, mut next) = (HashMap::new(), HashMap::new());
        for (piece, id) in model["vocab"].as_object()? {
            let id = u32::try_from(id.as_u64()?).ok()?;
            first.insert(piece.as_bytes().to_vec(), id);
            if let Some(piece) = piece.strip_prefix(prefix) {
                next.insert(piece.as_bytes().to_vec(), id);
            }
        }
        let mut special = [false; 256];
        for token in tokenizer.get_added_tokens_decoder().values() {
            if token.normalized || token.content.is_empty() {
                return None;
            }
            special[token.content.as_bytes()[0] as usize] = true;
        }
        let (before, behind) = around(tokenizer)?;
        Some(WordPiece {
            unknown: *first.get(model["unk_token"].as_str()?.as_bytes())?,
            lowercase: normalizer["lowercase"].as_bool()?,
            longest_word: usize::try_from(model["max_input_chars_per_word"].as_u64()?).ok()?,
            first,
            next,
            special,
            before,
            behind,
        })
    }

    /// Appends the ids of `text`, at most `limit` with the special ones; whether it was cut. `None`: not such a text.
    pub(super) fn encode_into(&self, text: &str, limit: usize, ids: &mut Vec<u32>) -> Option<bool> {
        if !text.bytes().all(|byte| byte.is_ascii() && !self.special[byte as usize]) {
            return None;
        }
        let room = limit.checked_sub(self.before.len() + self.behind.len())?;
        ids.extend_from_slice(&self.before);
        let start = ids.len();
        let mut word = Vec::new();
        for byte in text.bytes() {
            // What comes after as many ids as there is room for changes none of them.
            if ids.len() - start > room {
                word.clear();
                break;
            }
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => self.take_word(&mut word, ids),
                _ if byte.is_ascii_control() => {}
                _ if byte.is_ascii_punctuation() => {
                    self.take_word(&mut word, ids);
                    word.push(byte);
                    self.take_word(&mut word, ids);
                }
                _ if self.lowercase => word.push(byte.to_ascii_lowercase()),
                _ => word.push(byte),
            }
        }
        self.take_word(&mut word, ids);
        let truncated = ids.len() - start > room;
        ids.truncate(start + room);
        ids.extend_from_slice(&self.behind);
        Some(truncated)
    }

    /// Appends the pieces of a word, the longest first, and empties it.
    fn take_word(&self, word: &mut Vec<u8>, ids: &mut Vec<u32>) {
        let begin = ids.len();
        let mut at = 0;
        while at < word.len() && word.len() <= self.longest_word {
            let pieces = if at == 0 { &self.first } else { &self.next };
            let found = (at + 1..=word.len()).rev().find_map(|end| Some((end, *pieces.get(&word[at..end])?)));
            let Some((end, id)) = found else { break };
            ids.push(id);
            at = end;
        }
        if at < word.len() {
            ids.truncate(begin);
            ids.push(self.unknown);
        }
        word.clear();
    }
}

/// The ids that are put before and behind a text.
fn around(tokenizer: &Tokenizer) -> Option<(Vec<u32>, Vec<u32>)> {
    let (plain, whole) = (tokenizer.encode("a", false).ok()?, tokenizer.encode("a", true).ok()?);
    let (plain, whole) = (plain.get_ids(), whole.get_ids());
    let at = whole.windows(plain.len().max(1)).position(|ids| ids == plain)?;
    Some((whole[..at].to_vec(), whole[at + plain.len()..].to_vec()))
}

#[cfg(test)]
mod tests {
    use crate::TextTokenizer;
    use proptest::prelude::*;
    use std::path::Path;

    fn json(lowercase: bool) -> String {
        let pieces = [
            "[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "##a", "##b", "##bb", "abba", "!", "-", "##-", "A", "##c",
            "ac",
        ];
        let vocabulary: serde_json::Map<String, serde_json::Value> =
            pieces.iter().enumerate().map(|(id, piece)| (piece.to_string(), id.into())).collect();
        let special = |id: usize| {
            serde_json::json!({"id": id, "content": pieces[id], "single_word": false, "lstrip": false, "rstrip": false,
                               "normalized": false, "special": true})
        };
        serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null,
            "added_tokens": [special(0), special(1), special(2), special(3)],
            "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                           "strip_accents": null, "lowercase": lowercase},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}, "decoder": null,
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 9, "vocab": vocabulary},
        })
        .to_string()
    }

    fn tokenizer(lowercase: bool) -> TextTokenizer {
        TextTokenizer::from_json(Path::new("tokenizer.json"), json(lowercase)).unwrap()
    }

    #[test]
    fn it_knows_what_it_can_do() {
        assert!(tokenizer(true).is_short());
        assert!(!super::super::tokenizer::tests::encoder().is_short());
        let other = json(true).replace("\"clean_text\":true", "\"clean_text\":false");
        assert!(!TextTokenizer::from_json(Path::new("t"), other).unwrap().is_short());
    }

    proptest! {
        /// The short way gives what the long one gives, also where texts are cut.
        #[test]
        fn ids_are_those_of_the_general_tokenizer(
            text in "[abcABC!\\- \t\n\u{1}\u{7f}é中\\[]{0,40}", lowercase: bool, limit in 3usize..14,
        ) {
            let mut tokenizer = tokenizer(lowercase);
            tokenizer.limit(limit, false).unwrap();
            let (mut short, mut long) = (Vec::new(), Vec::new());
            let one = tokenizer.encode_into(&text, None, 100, &mut short).unwrap();
            let other = tokenizer.encode_long_into(&text, 100, &mut long).unwrap();
            prop_assert_eq!((short, one), (long, other));
        }
    }

    #[test]
    fn special_tokens_in_a_text_go_the_long_way() {
        let mut ids = Vec::new();
        tokenizer(true).encode_into("a [SEP] b", None, 100, &mut ids).unwrap();
        assert_eq!(ids, [2, 4, 3, 5, 3]);
    }
}
