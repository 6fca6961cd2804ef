//! The words of captions as a tokenizer that Hugging Face reads.

use super::scene::{COLOURS, GROUNDS, SHAPES, SIZES};
use serde_json::{Value, json};
use smallvec::SmallVec;

const GRAMMAR: [&str; 6] = ["a", "above", "background", "left", "of", "on"];
const UNKNOWN: &str = "[UNK]";
const START: &str = "<|startoftext|>";
const FINISH: &str = "<|endoftext|>";

/// Ids of captions are below this.
pub const SHAPES_VOCABULARY: usize = 3 + GRAMMAR.len() + SIZES.len() + COLOURS.len() + SHAPES.len() + GROUNDS.len();
/// The token that ends a caption: the last, so that both of CLIP's conventions find it.
pub const SHAPES_END: i32 = SHAPES_VOCABULARY as i32 - 1;
const SHAPES_START: i32 = SHAPES_END - 1;
/// Tokens of the longest caption: two objects, the words between, the ground, start and end.
pub const SHAPES_LONGEST: usize = 2 * 4 + 2 + 4 + 2;

/// The words with ids from 1; 0 is the unknown.
fn words() -> impl Iterator<Item = &'static str> {
    let names = GRAMMAR.into_iter().chain(SIZES.map(|size| size.0)).chain(COLOURS.map(|colour| colour.0));
    names.chain(SHAPES.map(|shape| shape.0)).chain(GROUNDS.map(|ground| ground.0))
}

/// A caption between its start and its end.
pub fn ids(caption: &[&str]) -> SmallVec<[i32; 16]> {
    let id = |word: &&str| words().position(|known| known == *word).map_or(0, |at| at as i32 + 1);
    let mut ids = SmallVec::new();
    ids.push(SHAPES_START);
    ids.extend(caption.iter().map(id));
    ids.push(SHAPES_END);
    ids
}

/// The contents of a `tokenizer.json` for these captions.
pub fn shapes_tokenizer() -> String {
    let named = [UNKNOWN].into_iter().chain(words()).chain([START, FINISH]);
    let vocabulary: serde_json::Map<String, Value> =
        named.enumerate().map(|(id, word)| (word.into(), json!(id))).collect();
    let special = |content: &str, id: i32| {
        json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true })
    };
    let token = |name: &str| json!({ "SpecialToken": { "id": name, "type_id": 0 } });
    let entry = |name: &str, id: i32| json!({ "id": name, "ids": [id], "tokens": [name] });
    let sequence = |id: &str| json!({ "Sequence": { "id": id, "type_id": 0 } });
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [special(UNKNOWN, 0), special(START, SHAPES_START), special(FINISH, SHAPES_END)],
        "normalizer": { "type": "Lowercase" },
        "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [token(START), sequence("A"), token(FINISH)],
            "pair": [token(START), sequence("A"), sequence("B"), token(FINISH)],
            "special_tokens": { START: entry(START, SHAPES_START), FINISH: entry(FINISH, SHAPES_END) },
        },
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": UNKNOWN },
    });
    format!("{tokenizer:#}\n")
}
