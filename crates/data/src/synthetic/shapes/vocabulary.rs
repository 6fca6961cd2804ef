//! The words of captions and their ids.

use super::scene::{COLOURS, GROUNDS, SHAPES, SIZES};
use crate::synthetic::words::{WordStyle, word_tokenizer};
use crate::{DataError, TextTokenizer};
use smallvec::SmallVec;

const GRAMMAR: [&str; 6] = ["a", "above", "background", "left", "of", "on"];

/// Ids of captions are below this: the words, the unknown, start and end.
pub const SHAPES_VOCABULARY: usize = 3 + GRAMMAR.len() + SIZES.len() + COLOURS.len() + SHAPES.len() + GROUNDS.len();
/// The token that ends a caption: the last, so that both of CLIP's conventions find it.
pub const SHAPES_END: i32 = SHAPES_VOCABULARY as i32 - 1;
const SHAPES_START: i32 = SHAPES_END - 1;
/// Tokens of the longest caption: two objects, the words between, the ground, start and end.
pub(crate) const SHAPES_LONGEST: usize = 2 * 4 + 2 + 4 + 2;

fn words() -> impl Iterator<Item = &'static str> {
    let names = GRAMMAR.into_iter().chain(SIZES.map(|size| size.0)).chain(COLOURS.map(|colour| colour.0));
    names.chain(SHAPES.map(|shape| shape.0)).chain(GROUNDS.map(|ground| ground.0))
}

/// The tokenizer of these captions; its file is `json()`.
pub fn shapes_tokenizer() -> Result<TextTokenizer, DataError> {
    word_tokenizer("synthetic:shapes", words(), WordStyle::Clip)
}

/// A caption between its start and its end, without the tokenizer: its ids are those of the sorted words from 1 on.
pub(super) fn ids(caption: &[&'static str]) -> SmallVec<[i32; 16]> {
    let id = |word: &&'static str| words().filter(|other| other < word).count() as i32 + 1;
    let mut ids = SmallVec::new();
    ids.push(SHAPES_START);
    ids.extend(caption.iter().map(id));
    ids.push(SHAPES_END);
    ids
}
