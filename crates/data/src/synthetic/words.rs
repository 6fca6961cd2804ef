//! Tokenizers for texts made by code: every word of theirs is a token.

use crate::{DataError, TextTokenizer};
use serde_json::{Value, json};
use std::{collections::BTreeSet, path::Path};

/// Which special tokens a text gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordStyle {
    /// `[CLS] text [SEP]`, as encoders read; `[PAD]` is 0.
    Encoder,
    /// `text </s>`, as T5 reads and writes; `<pad>` is 0, `</s>` is 1.
    T5,
    /// `<|startoftext|> text <|endoftext|>`, as CLIP reads; the end is the largest id.
    Clip,
}

/// A tokenizer that knows `words` (in any order, also repeated) and the special tokens of `style`.
pub(crate) fn word_tokenizer<'a>(
    name: &str,
    words: impl IntoIterator<Item = &'a str>,
    style: WordStyle,
) -> Result<TextTokenizer, DataError> {
    let words: BTreeSet<&str> = words.into_iter().collect();
    let (front, back): (&[&str], &[&str]) = match style {
        WordStyle::Encoder => (&["[PAD]", "[UNK]", "[CLS]", "[SEP]"], &[]),
        WordStyle::T5 => (&["<pad>", "</s>", "<unk>"], &[]),
        WordStyle::Clip => (&["<unk>"], &["<|startoftext|>", "<|endoftext|>"]),
    };
    let all: Vec<&str> = front.iter().copied().chain(words).chain(back.iter().copied()).collect();
    let id = |token: &str| all.iter().position(|known| *known == token).unwrap_or(0);
    let special = |token: &&str| {
        json!({"id": id(token), "content": token, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    let unknown = if style == WordStyle::Encoder { "[UNK]" } else { "<unk>" };
    let vocabulary: serde_json::Map<String, Value> =
        all.iter().enumerate().map(|(id, token)| (token.to_string(), json!(id))).collect();
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": front.iter().chain(back).map(special).collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": post_processor(style, id),
        "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": unknown},
    });
    TextTokenizer::from_json(Path::new(name), file.to_string())
}

fn post_processor(style: WordStyle, id: impl Fn(&str) -> usize) -> Value {
    let around: [&[&str]; 2] = match style {
        WordStyle::Encoder => {
            return json!({"type": "BertProcessing", "sep": ["[SEP]", id("[SEP]")], "cls": ["[CLS]", id("[CLS]")]});
        }
        WordStyle::T5 => [&[], &["</s>"]],
        WordStyle::Clip => [&["<|startoftext|>"], &["<|endoftext|>"]],
    };
    let token = |token: &&str| json!({"SpecialToken": {"id": token, "type_id": 0}});
    let template = |text: &[&str]| {
        let texts = text.iter().map(|name| json!({"Sequence": {"id": name, "type_id": 0}}));
        let parts = around[0].iter().map(token).chain(texts).chain(around[1].iter().map(token));
        parts.collect::<Vec<_>>()
    };
    let specials = around
        .concat()
        .into_iter()
        .map(|token| (token.to_string(), json!({"id": token, "ids": [id(token)], "tokens": [token]})));
    json!({"type": "TemplateProcessing", "single": template(&["A"]), "pair": template(&["A", "B"]),
           "special_tokens": specials.collect::<serde_json::Map<String, Value>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_have_their_special_tokens() {
        let words = ["ship", "a", "ship", ","];
        let of = |style| word_tokenizer("made", words, style).unwrap();
        let ids = |style, text: &str| {
            let mut ids = Vec::new();
            of(style).encode_into(text, None, 100, &mut ids).unwrap();
            ids
        };
        // Words are sorted: "," "a" "ship".
        assert_eq!(ids(WordStyle::Encoder, "a ship , moon"), [2, 5, 6, 4, 1, 3]);
        assert_eq!(ids(WordStyle::T5, "a ship"), [4, 5, 1]);
        assert_eq!(ids(WordStyle::Clip, "a ship"), [4, 2, 3, 5]);
        assert_eq!(of(WordStyle::Clip).size(), 6);
        assert_eq!(of(WordStyle::T5).decode(&[4, 5, 1]).unwrap(), "a ship");
    }
}
