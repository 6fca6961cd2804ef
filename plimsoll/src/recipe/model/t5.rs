//! t5: encoder and decoder with relative position bias. Keys are those of Hugging Face's config.json.

use serde::Serialize;

use super::{Family, Input, Origin, sum_of_products};
use crate::recipe::names::named;
use crate::recipe::section::{Range, Section};
use crate::recipe::train::Task;

named! {
    pub enum FeedForward {
        Relu = "relu",
        GatedGelu = "gated-gelu",
        GatedSilu = "gated-silu",
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct T5 {
    #[serde(flatten)]
    pub origin: Origin,
    pub vocab_size: usize,
    pub d_model: usize,
    /// Width of one head.
    pub d_kv: usize,
    pub d_ff: usize,
    pub num_layers: usize,
    pub num_decoder_layers: usize,
    pub num_heads: usize,
    pub relative_attention_num_buckets: usize,
    pub relative_attention_max_distance: usize,
    pub dropout_rate: f32,
    pub layer_norm_epsilon: f64,
    pub initializer_factor: f64,
    pub feed_forward_proj: FeedForward,
    /// The output head is the embedding. With a checkpoint, the tensors present decide.
    pub tie_word_embeddings: bool,
    /// The decoder's output times 1/√d_model before the head.
    pub scale_decoder_outputs: bool,
    pub pad_token_id: usize,
    pub eos_token_id: usize,
    pub decoder_start_token_id: usize,
}

impl T5 {
    pub fn read(section: &Section<'_>) -> Self {
        let wide = 1..=65_536;
        let layers = section.size("num_layers", 1..=4096).unwrap_or(6);
        let tied = section.flag("tie_word_embeddings").unwrap_or(true);
        Self {
            origin: Origin::read(section),
            vocab_size: section.size("vocab_size", 2..=16_777_216).unwrap_or(32_128),
            d_model: section.size("d_model", wide.clone()).unwrap_or(512),
            d_kv: section.size("d_kv", wide.clone()).unwrap_or(64),
            d_ff: section.size("d_ff", 1..=16_777_216).unwrap_or(2048),
            num_layers: layers,
            num_decoder_layers: section.size("num_decoder_layers", 1..=4096).unwrap_or(layers),
            num_heads: section.size("num_heads", 1..=1024).unwrap_or(8),
            relative_attention_num_buckets: section.size("relative_attention_num_buckets", 2..=65_536).unwrap_or(32),
            relative_attention_max_distance: section
                .size("relative_attention_max_distance", 2..=1_048_576)
                .unwrap_or(128),
            dropout_rate: section.number("dropout_rate", Range::closed(0.0, 0.99)).map_or(0.1, |n| n as f32),
            layer_norm_epsilon: section.number("layer_norm_epsilon", Range::above(0.0, 1.0)).unwrap_or(1e-6),
            initializer_factor: section.number("initializer_factor", Range::closed(0.0, 1e3)).unwrap_or(1.0),
            feed_forward_proj: section.choice("feed_forward_proj").unwrap_or(FeedForward::Relu),
            tie_word_embeddings: tied,
            scale_decoder_outputs: section.flag("scale_decoder_outputs").unwrap_or(tied),
            pad_token_id: section.size("pad_token_id", 0..=16_777_215).unwrap_or(0),
            eos_token_id: section.size("eos_token_id", 0..=16_777_215).unwrap_or(1),
            decoder_start_token_id: section.size("decoder_start_token_id", 0..=16_777_215).unwrap_or(0),
        }
    }
}

/// Positions are relative, so no length is too long for the model; this is where a typing error is assumed.
pub const LONGEST: usize = 1 << 16;

impl Family for T5 {
    fn check(&self, _: &Section<'_>) {}

    fn tasks(&self) -> &'static [Task] {
        &[Task::Seq2seq]
    }

    fn input(&self) -> Input {
        Input::Tokens { max_length: LONGEST, vocab: self.vocab_size }
    }

    fn parameters(&self) -> Option<u64> {
        let (d, inner) = (self.d_model, self.num_heads.checked_mul(self.d_kv)?);
        let gates = if self.feed_forward_proj == FeedForward::Relu { 2 } else { 3 };
        let attention = sum_of_products(&[&[4, d, inner], &[d]])?;
        let ffn = sum_of_products(&[&[gates, d, self.d_ff], &[d]])?;
        let encoder = attention.checked_add(ffn)?.checked_mul(self.num_layers as u64)?;
        let decoder = attention.checked_mul(2)?.checked_add(ffn)?.checked_mul(self.num_decoder_layers as u64)?;
        let tables = if self.tie_word_embeddings { 1 } else { 2 };
        let ends = sum_of_products(&[
            &[tables, self.vocab_size, d],
            &[2, d],
            &[2, self.relative_attention_num_buckets, self.num_heads],
        ])?;
        encoder.checked_add(decoder)?.checked_add(ends)
    }

    fn largest_value(&self) -> Option<u64> {
        sum_of_products(&[&[self.vocab_size.max(self.d_ff.checked_mul(2)?)]])
    }

    fn groups(&self) -> usize {
        self.num_heads
    }

    fn needs_whole_batch(&self) -> bool {
        false
    }
}
