//! `[model]` of a recipe: the list of families.

#![deny(missing_docs)]

use super::clip::Clip;
use super::distilbert::DistilBert;
use super::encoder::Encoder;
use super::hybrid_cnn_lstm::HybridCnnLstm;
use super::mu_sota::MuSota;
use super::t5::T5;
use super::workloads::Workloads;
use super::{Family, Listed, Origin, Task, origin, presets};
use crate::reading::about::{About, about};
use crate::reading::error::{Problem, Sources};
use crate::reading::kind::KeyKind;
use crate::reading::section::{Issues, Section};
use crate::reading::tree::parse_document;
use plimsoll_base::named;
use plimsoll_base::names::{Named, nearest};
use plimsoll_base::units::{ADDRESSABLE_BYTES, format_bytes};
use serde::Serialize;
use std::path::Path;

/// What the keys mean that several families know.
pub(crate) const ABOUT: &[About] = &[
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
    ($($variant:ident($sizes:ident) = $name:literal;)+) => {
        /// An architecture and its sizes.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(tag = "family")]
        pub enum Model {
            $(
                #[doc = concat!("`", $name, "`.")]
                #[serde(rename = $name)]
                $variant($sizes)
            ),+
        }

        named! {
            /// The families that can be trained.
            pub enum FamilyName { $(#[doc = concat!("`", $name, "`.")] $variant = $name),+ }
        }

        impl Model {
            /// What planning and training ask of it.
            pub fn family(&self) -> &dyn Family {
                match self { $(Self::$variant(sizes) => sizes),+ }
            }

            /// The family on its own.
            pub fn boxed(&self) -> Box<dyn Family> {
                match self { $(Self::$variant(sizes) => Box::new(sizes.clone())),+ }
            }

            /// As `model.family` in a recipe.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name),+ }
            }

            /// A model of the family in its usual sizes.
            pub(super) fn usual(name: FamilyName) -> Self {
                match name { $(FamilyName::$variant => Self::$variant(Listed::usual(name))),+ }
            }

            fn read_sizes(name: FamilyName, section: &Section<'_>, folder: &Path) -> Self {
                match name { $(FamilyName::$variant => Self::$variant(Listed::read(name, section, folder))),+ }
            }
        }

        impl FamilyName {
            /// The names of the family's presets, those of one model together.
            pub(super) fn presets(self) -> Vec<presets::Names> {
                match self { $(Self::$variant => <$sizes as Listed>::presets(self)),+ }
            }

            /// What calibration trains of the family.
            pub(super) fn all_workloads(self) -> Workloads {
                match self { $(Self::$variant => <$sizes as Listed>::workloads(self)),+ }
            }
        }
    };
}

families! {
    HybridCnnLstm(HybridCnnLstm) = "hybrid-cnn-lstm";
    MuSota(MuSota) = "mu-sota";
    Bert(Encoder) = "bert";
    Roberta(Encoder) = "roberta";
    XlmRoberta(Encoder) = "xlm-roberta";
    DebertaV3(Encoder) = "deberta-v3";
    DistilBert(DistilBert) = "distilbert";
    T5(T5) = "t5";
    Clip(Clip) = "clip";
}

impl Model {
    /// `None` where the family is not known; where sizes were refused, defaults stand in for them.
    /// `folder` is where relative paths start.
    pub(crate) fn read(section: &Section<'_>, folder: &Path) -> Option<Self> {
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
        self.family().origin()
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

/// A family with the sizes of a preset; `None` where it has no such preset.
pub(super) fn preset_of(family: FamilyName, preset: &str) -> Option<Model> {
    let sources = Sources::new("", &format!("preset = {preset:?}"), &[]);
    let issues = Issues::new(&sources);
    let table = parse_document(sources.text(0)).ok()?;
    let model = Model::read_sizes(family, &Section::new(&table, "model".into(), &issues), Path::new(""));
    (issues.count() == 0).then_some(model)
}

impl FamilyName {
    /// What it can learn; the first is the default.
    pub fn tasks(self) -> &'static [Task] {
        Model::usual(self).family().tasks()
    }
}

fn family_name(section: &Section<'_>, folder: &Path) -> Option<FamilyName> {
    section.declare("family", KeyKind::choice::<FamilyName>);
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
