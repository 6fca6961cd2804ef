//! The structured-block language model: block attentions on slices of the hidden state, one attention across them,
//! a feed-forward part; causal.

use serde::Serialize;

use crate::families::Task;
use crate::families::counting::{check_divides, dividing, sum_of_products};
use crate::families::{Input, Sizes};
use crate::reading::about::{About, about};
use crate::reading::section::Section;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MuSota {
    pub vocab: usize,
    pub layers: usize,
    /// Slices of the hidden state; the model is `blocks × block_width` wide.
    pub blocks: usize,
    pub block_width: usize,
    pub block_heads: usize,
    pub cross_heads: usize,
    pub ffn: usize,
    pub max_length: usize,
}

/// What each key means.
const ABOUT: &[About] = &[
    about("model.vocab", "Tokens of the vocabulary; 257 for bytes."),
    about("model.layers", "Layers."),
    about(
        "model.blocks",
        "Slices of the hidden state, each with its own attention; the model is `blocks` × `block_width` wide.",
    ),
    about("model.block_width", "Width of a slice."),
    about("model.block_heads", "Attention heads inside each slice; they divide `block_width`."),
    about("model.cross_heads", "Heads of the attention across all slices; they divide `blocks` × `block_width`."),
    about("model.ffn", "Width of the feed-forward part."),
    about("model.max_length", "The longest sequence in tokens."),
];

impl MuSota {
    /// Width of the hidden state; within range by the bounds of its factors.
    pub fn width(&self) -> usize {
        self.blocks.saturating_mul(self.block_width)
    }
}

impl Default for MuSota {
    fn default() -> Self {
        Self {
            vocab: 50_257,
            layers: 24,
            blocks: 16,
            block_width: 4,
            block_heads: 2,
            cross_heads: 8,
            ffn: 6400,
            max_length: 512,
        }
    }
}

impl MuSota {
    /// Every key, with defaults.
    pub(super) fn read_keys(section: &Section<'_>) -> Self {
        let (wide, usual) = (1..=65_536, Self::default());
        Self {
            vocab: section.size("vocab", 2..=16_777_216).unwrap_or(usual.vocab),
            layers: section.size("layers", 1..=4096).unwrap_or(usual.layers),
            blocks: section.size("blocks", wide.clone()).unwrap_or(usual.blocks),
            block_width: section.size("block_width", wide).unwrap_or(usual.block_width),
            block_heads: section.size("block_heads", 1..=1024).unwrap_or(usual.block_heads),
            cross_heads: section.size("cross_heads", 1..=1024).unwrap_or(usual.cross_heads),
            ffn: section.size("ffn", 1..=16_777_216).unwrap_or(usual.ffn),
            max_length: section.size("max_length", 2..=1_048_576).unwrap_or(usual.max_length),
        }
    }
}

impl Sizes for MuSota {
    fn check(&self, section: &Section<'_>) {
        check_divides(section, "block_heads", self.block_heads, self.block_width, "block_width");
        check_divides(section, "cross_heads", self.cross_heads, self.width(), "blocks × block_width");
    }

    fn possible_heads(&self) -> Option<Vec<usize>> {
        Some(dividing(self.width()).collect())
    }

    fn about(&self) -> &'static [About] {
        ABOUT
    }

    fn tasks(&self) -> &'static [Task] {
        &[Task::LanguageModel]
    }

    fn input(&self) -> Input {
        Input::Tokens { max_length: self.max_length, vocab: self.vocab }
    }

    fn parameters(&self) -> Option<u64> {
        let (w, d) = (self.block_width, self.width());
        let block = sum_of_products(&[&[self.blocks, 4, w, w], &[self.blocks, 4, w]])?;
        // Cross attention 4d² + 4d; three norms 6d; feed-forward 2·d·ffn with both biases.
        let shared = sum_of_products(&[&[4, d, d], &[11, d], &[2, d, self.ffn], &[self.ffn]])?;
        let layers = block.checked_add(shared)?.checked_mul(self.layers as u64)?;
        // Embedding and head are separate weights; positions; the last norm.
        let ends = sum_of_products(&[&[2, self.vocab, d], &[self.max_length, d], &[2, d]])?;
        layers.checked_add(ends)
    }

    fn largest_value(&self) -> Option<u64> {
        let t = self.max_length;
        let rows = sum_of_products(&[&[t, self.vocab.max(self.ffn).max(self.width().checked_mul(3)?)]])?;
        let scores = sum_of_products(&[&[self.blocks, self.block_heads, t, t]])?;
        let cross_scores = sum_of_products(&[&[self.cross_heads, t, t]])?;
        Some(rows.max(scores).max(cross_scores))
    }

    fn groups(&self) -> usize {
        self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_the_reference_model() {
        let model = MuSota {
            vocab: 50_257,
            layers: 24,
            blocks: 16,
            block_width: 4,
            block_heads: 2,
            cross_heads: 8,
            ffn: 6400,
            max_length: 512,
        };
        assert_eq!(model.parameters(), Some(26_721_024));
        let absurd = MuSota { blocks: usize::MAX, ..model };
        assert_eq!(absurd.parameters(), None);
        assert_eq!(absurd.largest_value(), None);
    }
}
