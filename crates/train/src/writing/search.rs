//! How the answer to one source is found.

use super::GenerationOptions;
use super::beam::{Beams, Rules};
use super::line::Line;
use super::pick::Draw;

/// What the next step of a source's row is: a token, and the row it continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Continuation {
    pub token: i32,
    pub parent: usize,
}

pub(super) trait Search {
    /// One per row, at most as many as there are beams.
    fn next(&self) -> &[Continuation];
    /// Takes the logits of those rows.
    fn advance(&mut self, logits: &[f32], vocabulary: usize);
    fn is_done(&self) -> bool;
    fn result(&mut self) -> Vec<i32>;
}

/// By beams, or along one line. `index` tells the sources of one call apart, `start` is the first token that is read.
pub(super) fn search(options: &GenerationOptions, index: u64, start: i32, end: i32) -> Box<dyn Search> {
    let GenerationOptions { max_new_tokens: most, beams, length_penalty, early_stopping, .. } = *options;
    if beams > 1 {
        return Box::new(Beams::new(Rules { beams, most, end, length_penalty, early_stopping }, start));
    }
    let draw = Draw { temperature: options.temperature, top_k: options.top_k, top_p: options.top_p };
    Box::new(Line::new(draw, options.seed, options.stream.wrapping_add(index), start, end, most))
}
