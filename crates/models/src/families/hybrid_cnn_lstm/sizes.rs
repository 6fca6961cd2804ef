//! Convolutions → bidirectional LSTM of two layers → attention block → mean → classifier, over a window of a series.

use serde::Serialize;

use crate::families::Task;
use crate::families::counting::{check_divides, dividing, sum_of_products};
use crate::families::{Input, Sizes};
use crate::reading::about::{About, about};
use crate::reading::kind::KeyKind;
use crate::reading::section::{Range, Section};
use plimsoll_base::named;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HybridCnnLstm {
    pub features: usize,
    /// Rows of the series in one sample.
    pub window: usize,
    /// Output channels of each convolution.
    pub channels: Vec<usize>,
    /// LSTM units in each direction; the attention block is twice as wide.
    pub hidden: usize,
    pub heads: usize,
    pub classes: usize,
    pub dropout: f32,
    pub batch_norm: BatchNormMode,
}

named! {
    pub enum BatchNormMode {
        /// Statistics over the effective batch, which then cannot be split.
        Effective = "effective",
        /// Statistics over each micro-batch: changes what is learned.
        Micro = "micro",
    }
}

/// What each key means.
const ABOUT: &[About] = &[
    about("model.features", "Columns of the series."),
    about("model.window", "Rows of the series in one sample."),
    about("model.channels", "Output channels of each convolution."),
    about("model.hidden", "LSTM units in each direction; the attention block is twice as wide."),
    about("model.heads", "Attention heads; they divide 2 × `hidden`."),
    about("model.classes", "Classes to tell apart."),
    about("model.dropout", "The share of values that dropout takes away."),
    about(
        "model.batch_norm",
        "Batch statistics over the effective batch, which then cannot be split, or over each micro-batch, which changes what is learned.",
    ),
];

impl Default for HybridCnnLstm {
    fn default() -> Self {
        Self {
            features: 64,
            window: 60,
            channels: vec![128, 256],
            hidden: 256,
            heads: 4,
            classes: 3,
            dropout: 0.1,
            batch_norm: BatchNormMode::Effective,
        }
    }
}

impl HybridCnnLstm {
    /// Every key, with defaults.
    pub(super) fn read_keys(section: &Section<'_>) -> Self {
        let (wide, usual) = (1..=65_536, Self::default());
        let channel = |node: &_| section.size_of("channels", node, wide.clone(), "");
        Self {
            features: section.size("features", wide.clone()).unwrap_or(usual.features),
            window: section.size("window", 2..=1_048_576).unwrap_or(usual.window),
            channels: section.list("channels", 1..=64, KeyKind::integer(&wide), channel).unwrap_or(usual.channels),
            hidden: section.size("hidden", wide.clone()).unwrap_or(usual.hidden),
            heads: section.size("heads", 1..=1024).unwrap_or(usual.heads),
            classes: section.size("classes", 2..=1_000_000).unwrap_or(usual.classes),
            dropout: section.number("dropout", Range::closed(0.0, 0.99)).map_or(usual.dropout, |p| p as f32),
            batch_norm: section.choice("batch_norm").unwrap_or(usual.batch_norm),
        }
    }
}

impl Sizes for HybridCnnLstm {
    fn check(&self, section: &Section<'_>) {
        check_divides(section, "heads", self.heads, 2 * self.hidden, "2 × hidden");
    }

    fn possible_heads(&self) -> Option<Vec<usize>> {
        Some(dividing(2 * self.hidden).collect())
    }

    fn about(&self) -> &'static [About] {
        ABOUT
    }

    fn tasks(&self) -> &'static [Task] {
        &[Task::Series]
    }

    fn input(&self) -> Input {
        Input::Series { features: self.features, window: self.window, classes: self.classes }
    }

    fn parameters(&self) -> Option<u64> {
        let (h, d) = (self.hidden, self.hidden.checked_mul(2)?);
        let inputs = std::iter::once(&self.features).chain(&self.channels);
        // Kernel of three, bias, norm scale and shift.
        let convolutions = inputs
            .zip(&self.channels)
            .try_fold(0u64, |sum, (&from, &to)| sum.checked_add(sum_of_products(&[&[3, from, to], &[3, to]])?))?;
        let last = self.channels.last().copied().unwrap_or(self.features);
        // Two directions × four gates × (input + recurrent weights + two biases).
        let lstm = sum_of_products(&[&[8, h, last], &[8, h, d], &[16, h, h], &[32, h]])?;
        // Query, key, value, projection 4d²; feed-forward 8d²; biases and two norms.
        let attention = sum_of_products(&[&[12, d, d], &[13, d]])?;
        let head = sum_of_products(&[&[d, self.classes], &[self.classes]])?;
        convolutions.checked_add(lstm)?.checked_add(attention)?.checked_add(head)
    }

    fn largest_value(&self) -> Option<u64> {
        let widest_channel = self.channels.iter().copied().max().unwrap_or(0);
        // Feed-forward and LSTM gates are 8 × hidden wide.
        let per_row = self.hidden.checked_mul(8)?.max(widest_channel).max(self.features);
        let rows = sum_of_products(&[&[self.window, per_row]])?;
        let scores = sum_of_products(&[&[self.heads, self.window, self.window]])?;
        Some(rows.max(scores))
    }

    fn groups(&self) -> usize {
        self.heads
    }

    fn batch_norm(&self) -> Option<BatchNormMode> {
        Some(self.batch_norm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_the_reference_model() {
        let model = HybridCnnLstm::default();
        assert_eq!(model.parameters(), Some(5_907_587));
        let absurd = HybridCnnLstm { hidden: usize::MAX / 4, ..model };
        assert_eq!(absurd.parameters(), None);
        assert_eq!(absurd.largest_value(), None);
    }
}
