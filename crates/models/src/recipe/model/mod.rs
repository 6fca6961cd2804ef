//! `[model]`: one file per family. A new family is a file that implements `Family`, and a line in `families!`.

mod clip;
mod config;
mod encoder;
mod hybrid_cnn_lstm;
mod keys;
mod mu_sota;
mod origin;
mod presets;
mod t5;

use std::path::Path;

use serde::Serialize;

pub use clip::{Clip, ClipText, ClipVision};
pub use encoder::{Encoder, EncoderKind, HiddenAct, Problem as ProblemType};
pub use hybrid_cnn_lstm::{BatchNormMode, HybridCnnLstm};
pub use mu_sota::MuSota;
pub use origin::{Origin, family_in};
pub(super) use presets::of_family as presets_of;
pub use presets::{Preset, presets, siblings as sibling_presets};
pub use t5::{FeedForward, T5};

use super::error::{Problem, Sources};
use super::kind::Kind;
use super::reference::{About, about};
use super::section::{Issues, Section};
use super::train::Task;
use super::tree::parse_document;
use plimsoll_base::named;
use plimsoll_base::names::{Named, nearest};
use plimsoll_base::units::{ADDRESSABLE_BYTES, format_bytes};

/// What the rest of the recipe must know about a family's sizes.
pub trait Family {
    /// Reports sizes that do not go together.
    fn check(&self, section: &Section<'_>);

    /// What each key of its sizes means.
    fn about(&self) -> &'static [About];

    /// Tasks it can learn; the first is the default.
    fn tasks(&self) -> &'static [Task];

    /// What one sample looks like.
    fn input(&self) -> Input;

    /// Trained numbers; `None` beyond `u64`.
    fn parameters(&self) -> Option<u64>;

    /// Numbers in the largest value that one sample makes on its way through the model; `None` beyond `u64`.
    fn largest_value(&self) -> Option<u64>;

    /// How many blocks or heads `memory.block_group` can divide.
    fn groups(&self) -> usize;

    /// Whether batch statistics tie the micro-batch to the effective batch.
    fn needs_whole_batch(&self) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    Series { features: usize, window: usize, classes: usize },
    Tokens { max_length: usize, vocab: usize },
    Pictures { channels: usize, side: usize, max_length: usize, vocab: usize },
}

/// What the keys mean that several families know.
pub(super) const ABOUT: &[About] = &[
    about("model.family", "The architecture.").unset("that of the preset or the checkpoint; required without one"),
    about(
        "model.preset",
        "Sizes by the name of a known model, with or without its organisation; `plimsoll presets` lists them.",
    )
    .unset("the sizes are spelled out"),
    about(
        "model.checkpoint",
        "A Hugging Face folder with config.json and model.safetensors: sizes, weights and tokenizer.",
    )
    .unset("the first weights are random"),
];

/// Declares `Model` and its dispatch to the families.
macro_rules! families {
    ($($variant:ident($sizes:ident) = $name:literal, $read:expr;)+) => {
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(tag = "family")]
        pub enum Model { $(#[serde(rename = $name)] $variant($sizes)),+ }

        named! {
            /// The families that can be trained.
            pub enum FamilyName { $($variant = $name),+ }
        }

        impl Model {
            pub fn family(&self) -> &dyn Family {
                match self { $(Self::$variant(sizes) => sizes),+ }
            }

            pub fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name),+ }
            }

            fn read_sizes(name: FamilyName, section: &Section<'_>, folder: &Path) -> Self {
                match name { $(FamilyName::$variant => Self::$variant($read(section, folder))),+ }
            }
        }
    };
}

families! {
    HybridCnnLstm(HybridCnnLstm) = "hybrid-cnn-lstm", |s, _| HybridCnnLstm::read(s);
    MuSota(MuSota) = "mu-sota", |s, _| MuSota::read(s);
    Bert(Encoder) = "bert", |s, folder| origin::read(Encoder::defaults(EncoderKind::Bert), s, folder);
    Roberta(Encoder) = "roberta", |s, folder| origin::read(Encoder::defaults(EncoderKind::Roberta), s, folder);
    XlmRoberta(Encoder) = "xlm-roberta", |s, folder| origin::read(Encoder::defaults(EncoderKind::XlmRoberta), s, folder);
    DebertaV3(Encoder) = "deberta-v3", |s, folder| origin::read(Encoder::defaults(EncoderKind::DebertaV3), s, folder);
    T5(T5) = "t5", |s, folder| origin::read(T5::defaults(), s, folder);
    Clip(Clip) = "clip", |s, folder| origin::read(Clip::defaults(), s, folder);
}

impl Model {
    /// `None` where the family is not known; where sizes were refused, defaults stand in for them.
    /// `folder` is where relative paths start.
    pub(super) fn read(section: &Section<'_>, folder: &Path) -> Option<Self> {
        let name = family_name(section, folder)?;
        let model = Self::read_sizes(name, section, folder);
        section.finish();
        if section.is_clean() {
            model.family().check(section);
            model.check_parameters(section);
        }
        Some(model)
    }

    /// Where a Hugging Face model comes from; `None` for the families that are ours alone.
    pub fn origin(&self) -> Option<&Origin> {
        match self {
            Self::HybridCnnLstm(_) | Self::MuSota(_) => None,
            Self::Bert(m) | Self::Roberta(m) | Self::XlmRoberta(m) | Self::DebertaV3(m) => Some(&m.origin),
            Self::T5(m) => Some(&m.origin),
            Self::Clip(m) => Some(&m.origin),
        }
    }

    fn check_parameters(&self, section: &Section<'_>) {
        // Weight, gradient and two moments, four bytes each: what plain AdamW keeps.
        let bytes = self.family().parameters().and_then(|p| p.checked_mul(16));
        if bytes.is_none_or(|b| b > ADDRESSABLE_BYTES) {
            let size = bytes.map_or("more than 16 EiB".into(), format_bytes);
            section.refuse(
                "family",
                format!("these sizes are absurd: weights, gradients and moments take {size}"),
                format!("a process can address {}: make the sizes smaller", format_bytes(ADDRESSABLE_BYTES)),
            );
        }
    }
}

/// A family with the sizes of a preset, or else of its base model; `None` where it has no such preset.
fn sizes_of(family: FamilyName, preset: Option<&str>) -> Option<Model> {
    let sources = Sources::new("", &preset.map_or(String::new(), |name| format!("preset = {name:?}")), &[]);
    let issues = Issues::new(&sources);
    let table = parse_document(sources.text(0)).ok()?;
    let model = Model::read_sizes(family, &Section::new(&table, "model".into(), &issues), Path::new(""));
    (issues.count() == 0).then_some(model)
}

impl FamilyName {
    /// What it can learn; the first is the default.
    pub fn tasks(self) -> &'static [Task] {
        sizes_of(self, None).map_or(&[], |model| model.family().tasks())
    }
}

fn family_name(section: &Section<'_>, folder: &Path) -> Option<FamilyName> {
    section.declare("family", Kind::choice::<FamilyName>);
    if !section.has("family") && (section.has("preset") || section.has("checkpoint")) {
        return origin::implied_family(section, folder);
    }
    let available = FamilyName::names().collect::<Vec<_>>().join(", ");
    let node = section.require("family", section.get("family"), &format!("available: {available}"))?;
    let text = section.text_of("family", node, &available)?;
    let found = FamilyName::from_name(text);
    if found.is_none() {
        let problem = |cause| Problem::new(section.path("family"), cause, node.place);
        let hint = nearest(text, FamilyName::names()).map(|n| format!("did you mean \"{n}\"?"));
        section
            .report(problem(format!("unknown family {}", section.excerpt(node))).allowed(available).maybe_hint(hint));
    }
    found
}

/// Σ of products, checked: how parameters and values are counted.
fn sum_of_products(terms: &[&[usize]]) -> Option<u64> {
    terms.iter().try_fold(0u64, |sum, term| {
        let product = term.iter().try_fold(1u64, |p, &n| p.checked_mul(n as u64))?;
        sum.checked_add(product)
    })
}

/// Reports heads that do not divide a width.
fn check_divides(section: &Section<'_>, key: &str, heads: usize, width: usize, width_name: &str) {
    if !width.is_multiple_of(heads) {
        let options = (1..=width.min(1024)).filter(|h| width.is_multiple_of(*h));
        let nearest = options.min_by_key(|h| h.abs_diff(heads)).unwrap_or(1);
        section.refuse(
            key,
            format!("{heads} heads do not divide the width {width} ({width_name})"),
            format!("the nearest number that does is {nearest}"),
        );
    }
}
