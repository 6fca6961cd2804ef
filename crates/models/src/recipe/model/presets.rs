//! Models by their usual names.

use super::encoder::{Encoder, EncoderKind};
use super::t5::{FeedForward, T5};
use serde::Serialize;

use super::{Clip, ClipText, ClipVision, FamilyName, Model, sizes_of};

/// A name with its organisation, and other names of the same sizes. The organisation may be left out.
type Names = &'static [&'static str];

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

struct ClipPreset {
    names: Names,
    large: bool,
    patch: usize,
    image: usize,
}

const CLIPS: [ClipPreset; 4] = [
    ClipPreset { names: &["openai/clip-vit-base-patch32"], large: false, patch: 32, image: 224 },
    ClipPreset { names: &["openai/clip-vit-base-patch16"], large: false, patch: 16, image: 224 },
    ClipPreset { names: &["openai/clip-vit-large-patch14"], large: true, patch: 14, image: 224 },
    ClipPreset { names: &["openai/clip-vit-large-patch14-336"], large: true, patch: 14, image: 336 },
];

fn is_called(names: Names, name: &str) -> bool {
    names.iter().any(|full| *full == name || short(full) == name)
}

/// Without the organisation.
pub fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Every preset's names, with its family.
fn all() -> impl Iterator<Item = (Names, FamilyName)> {
    let encoders = ENCODERS.iter().map(|p| (p.names, p.kind.family()));
    let t5s = T5S.iter().map(|p| (p.names, FamilyName::T5));
    encoders.chain(t5s).chain(CLIPS.iter().map(|p| (p.names, FamilyName::Clip)))
}

/// The names of a family's presets, without organisations.
pub fn of_family(family: FamilyName) -> impl Iterator<Item = &'static str> {
    all().filter(move |(_, of)| *of == family).flat_map(|(names, _)| names).map(|name| short(name))
}

/// The family that a preset belongs to.
pub fn family_of(name: &str) -> Option<FamilyName> {
    all().find(|(names, _)| is_called(names, name)).map(|(_, family)| family)
}

/// A preset with what it stands for.
#[derive(Clone, Debug, Serialize)]
pub struct Preset {
    /// Without its organisation.
    pub name: &'static str,
    /// Every name of the same sizes, with organisations.
    pub names: Names,
    pub family: FamilyName,
    pub parameters: Option<u64>,
    /// The sizes, in the keys of `[model]`.
    pub sizes: Model,
}

/// Every preset, by family.
pub fn presets() -> Vec<Preset> {
    all().filter_map(|(names, family)| Preset::of(names, family)).collect()
}

impl Preset {
    fn of(names: Names, family: FamilyName) -> Option<Self> {
        let name = short(names.first()?);
        let sizes = sizes_of(family, Some(name))?;
        Some(Self { name, names, family, parameters: sizes.family().parameters(), sizes })
    }
}

/// Words of a preset's name that say how large it is.
const SIZES: [&str; 10] = ["tiny", "mini", "xsmall", "small", "medium", "base", "large", "xl", "3b", "xxl"];

/// The same model in other sizes: `bert-base-uncased` beside `bert-large-uncased`.
pub fn siblings(name: &str) -> Vec<&'static str> {
    let without_size = |name: &str| {
        let words = short(name).split('-').map(|word| if SIZES.contains(&word) { "*" } else { word });
        words.collect::<Vec<_>>().join("-")
    };
    let line = without_size(name);
    let others = family_of(name).into_iter().flat_map(of_family);
    others.filter(|other| *other != short(name) && without_size(other) == line).collect()
}

impl Encoder {
    pub(super) fn preset(kind: EncoderKind, name: &str) -> Option<Self> {
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

impl T5 {
    pub(super) fn preset(name: &str) -> Option<Self> {
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

impl Clip {
    pub(super) fn preset(name: &str) -> Option<Self> {
        let preset = CLIPS.iter().find(|p| is_called(p.names, name))?;
        let base = Self::defaults();
        let mut clip = if !preset.large {
            base
        } else {
            let text =
                ClipText { hidden_size: 768, intermediate_size: 3072, num_attention_heads: 12, ..base.text_config };
            let vision = ClipVision {
                hidden_size: 1024,
                intermediate_size: 4096,
                num_hidden_layers: 24,
                num_attention_heads: 16,
                ..base.vision_config
            };
            Self { projection_dim: 768, text_config: text, vision_config: vision, ..base }
        };
        clip.vision_config.patch_size = preset.patch;
        clip.vision_config.image_size = preset.image;
        Some(clip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::model::Family;

    /// Parameters of transformers' `…ForSequenceClassification` with two labels, `T5ForConditionalGeneration` (tied,
    /// as it always counts) and `CLIPModel`; `tools/reference/hf_presets.py` prints them.
    #[test]
    fn parameters_are_those_of_transformers() {
        for line in include_str!("presets.txt").lines() {
            let (name, count) = line.split_once(' ').unwrap();
            let tied = |sizes: T5| T5 { tie_word_embeddings: true, ..sizes }.parameters();
            let ours = match family_of(name).unwrap() {
                FamilyName::T5 => T5::preset(name).and_then(tied),
                FamilyName::Clip => Clip::preset(name).and_then(|s| s.parameters()),
                family => {
                    let kind = ENCODERS.iter().map(|p| p.kind).find(|k| k.family() == family).unwrap();
                    Encoder::preset(kind, name).and_then(|s| s.parameters())
                }
            };
            assert_eq!(ours, count.parse().ok(), "{name}");
        }
    }

    #[test]
    fn every_preset_is_counted_and_no_two_share_a_name() {
        let counted: Vec<&str> = include_str!("presets.txt").lines().filter_map(|l| l.split(' ').next()).collect();
        let mut names: Vec<&str> = all().flat_map(|(names, _)| names).map(|n| short(n)).collect();
        assert!(all().all(|(names, _)| names.iter().any(|n| counted.contains(&short(n)))));
        let total = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), total);
    }

    #[test]
    fn siblings_differ_in_size_alone() {
        assert_eq!(siblings("google-bert/bert-large-uncased"), ["bert-base-uncased"]);
        assert_eq!(siblings("flan-t5-large"), ["flan-t5-small", "flan-t5-base", "flan-t5-xl", "flan-t5-xxl"]);
        assert!(siblings("all-MiniLM-L6-v2").is_empty() && siblings("abacus").is_empty());
    }

    #[test]
    fn version_1_1_has_a_head_of_its_own() {
        let xl = T5::preset("google/flan-t5-xl").unwrap();
        assert_eq!(xl.parameters(), Some(2_783_959_040 + 32_128 * 2048));
        assert!(!xl.scale_decoder_outputs && !xl.tie_word_embeddings);
        assert!(T5::preset("t5-3b").unwrap().scale_decoder_outputs);
    }
}
