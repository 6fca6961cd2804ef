//! Published sizes.

use super::{FeedForward, T5};
use crate::families::presets::{Names, is_called};

struct T5Preset {
    names: Names,
    width: usize,
    head_width: usize,
    ffn: usize,
    layers: usize,
    heads: usize,
    /// Version 1.1: gated, with a head of its own, not scaled.
    gated: bool,
}

const fn t5([width, head_width, ffn, layers, heads]: [usize; 5], gated: bool, names: Names) -> T5Preset {
    T5Preset { names, width, head_width, ffn, layers, heads, gated }
}

const T5S: [T5Preset; 9] = [
    t5([512, 64, 2048, 6, 8], false, &["google-t5/t5-small"]),
    t5([768, 64, 3072, 12, 12], false, &["google-t5/t5-base"]),
    t5([1024, 64, 4096, 24, 16], false, &["google-t5/t5-large"]),
    t5([1024, 128, 16_384, 24, 32], false, &["google-t5/t5-3b"]),
    t5([512, 64, 1024, 8, 6], true, &["google/flan-t5-small", "google/t5-v1_1-small"]),
    t5([768, 64, 2048, 12, 12], true, &["google/flan-t5-base", "google/t5-v1_1-base"]),
    t5([1024, 64, 2816, 24, 16], true, &["google/flan-t5-large", "google/t5-v1_1-large"]),
    t5([2048, 64, 5120, 24, 32], true, &["google/flan-t5-xl", "google/t5-v1_1-xl"]),
    t5([4096, 64, 10_240, 24, 64], true, &["google/flan-t5-xxl", "google/t5-v1_1-xxl"]),
];

impl T5 {
    pub(super) fn all_presets() -> Vec<Names> {
        T5S.iter().map(|preset| preset.names).collect()
    }

    pub(in crate::families) fn of_preset(name: &str) -> Option<Self> {
        let preset = T5S.iter().find(|p| is_called(p.names, name))?;
        Some(Self {
            d_model: preset.width,
            d_kv: preset.head_width,
            d_ff: preset.ffn,
            num_layers: preset.layers,
            num_decoder_layers: preset.layers,
            num_heads: preset.heads,
            feed_forward_proj: if preset.gated { FeedForward::GatedGelu } else { FeedForward::Relu },
            tie_word_embeddings: !preset.gated,
            scale_decoder_outputs: !preset.gated,
            ..Self::defaults()
        })
    }
}
