//! Published sizes.

use super::{Encoder, EncoderKind};
use crate::families::presets::{Names, is_called};

struct EncoderPreset {
    names: Names,
    kind: EncoderKind,
    vocab: usize,
    layers: usize,
    width: usize,
    heads: usize,
}

const fn encoder(kind: EncoderKind, vocab: usize, [layers, width, heads]: [usize; 3], names: Names) -> EncoderPreset {
    EncoderPreset { names, kind, vocab, layers, width, heads }
}

const BASE: [usize; 3] = [12, 768, 12];
const LARGE: [usize; 3] = [24, 1024, 16];

const ENCODERS: [EncoderPreset; 20] = {
    use EncoderKind::*;
    [
        encoder(Bert, 30_522, BASE, &["google-bert/bert-base-uncased"]),
        encoder(Bert, 28_996, BASE, &["google-bert/bert-base-cased"]),
        encoder(Bert, 30_522, LARGE, &["google-bert/bert-large-uncased"]),
        encoder(Bert, 28_996, LARGE, &["google-bert/bert-large-cased"]),
        encoder(Bert, 119_547, BASE, &["google-bert/bert-base-multilingual-cased"]),
        encoder(Bert, 30_522, [2, 128, 2], &["google/bert_uncased_L-2_H-128_A-2", "prajjwal1/bert-tiny"]),
        encoder(Bert, 30_522, [4, 256, 4], &["google/bert_uncased_L-4_H-256_A-4", "prajjwal1/bert-mini"]),
        encoder(Bert, 30_522, [4, 512, 8], &["google/bert_uncased_L-4_H-512_A-8", "prajjwal1/bert-small"]),
        encoder(Bert, 30_522, [8, 512, 8], &["google/bert_uncased_L-8_H-512_A-8", "prajjwal1/bert-medium"]),
        encoder(Bert, 30_522, [6, 384, 12], &["sentence-transformers/all-MiniLM-L6-v2"]),
        encoder(
            Bert,
            30_522,
            [12, 384, 12],
            &["sentence-transformers/all-MiniLM-L12-v2", "microsoft/MiniLM-L12-H384-uncased"],
        ),
        encoder(Roberta, 50_265, BASE, &["FacebookAI/roberta-base"]),
        encoder(Roberta, 50_265, LARGE, &["FacebookAI/roberta-large"]),
        encoder(XlmRoberta, 250_002, BASE, &["FacebookAI/xlm-roberta-base"]),
        encoder(XlmRoberta, 250_002, LARGE, &["FacebookAI/xlm-roberta-large"]),
        encoder(DebertaV3, 128_100, [12, 384, 6], &["microsoft/deberta-v3-xsmall"]),
        encoder(DebertaV3, 128_100, [6, 768, 12], &["microsoft/deberta-v3-small"]),
        encoder(DebertaV3, 128_100, BASE, &["microsoft/deberta-v3-base"]),
        encoder(DebertaV3, 128_100, LARGE, &["microsoft/deberta-v3-large"]),
        encoder(DebertaV3, 251_000, BASE, &["microsoft/mdeberta-v3-base"]),
    ]
};

impl Encoder {
    pub(super) fn presets_of(kind: EncoderKind) -> Vec<Names> {
        ENCODERS.iter().filter(|preset| preset.kind == kind).map(|preset| preset.names).collect()
    }

    pub(in crate::families) fn of_preset(kind: EncoderKind, name: &str) -> Option<Self> {
        let preset = ENCODERS.iter().find(|p| p.kind == kind && is_called(p.names, name))?;
        Some(Self {
            vocab_size: preset.vocab,
            hidden_size: preset.width,
            num_hidden_layers: preset.layers,
            num_attention_heads: preset.heads,
            intermediate_size: 4 * preset.width,
            ..Self::defaults(kind)
        })
    }
}
