//! Encoders that classify texts: bert, roberta, xlm-roberta, deberta-v3.

mod files;
mod graph;
mod head;
mod layer;
mod presets;
mod relative;
mod sizes;
#[cfg(test)]
mod tests;
mod workloads;

pub use sizes::{Encoder, EncoderKind};

use super::presets::Names;
use super::texts::{Wanted, mean_of_tokens};
use super::workloads::Workloads;
use super::{Build, Classifier, Family, FamilyName, Halves, HuggingFace, Listed, Origin, Outputs, origin};
use crate::reading::section::Section;
use plimsoll_core::graph::{Graph, GraphError, ValueId};
use serde_json::{Map, Value};
use std::path::Path;

impl Listed for Encoder {
    fn usual(name: FamilyName) -> Self {
        Self::defaults(EncoderKind::of(name))
    }

    fn read(name: FamilyName, section: &Section<'_>, folder: &Path) -> Self {
        origin::read(Self::usual(name), section, folder)
    }

    fn presets(name: FamilyName) -> Vec<Names> {
        Self::presets_of(EncoderKind::of(name))
    }

    fn workloads(name: FamilyName) -> Workloads {
        workloads::of(EncoderKind::of(name))
    }
}

impl Family for Encoder {
    fn forward(&self, graph: &mut Graph, build: &Build) -> Result<Outputs, GraphError> {
        let first = self.hidden(graph, build, Wanted::First)?; // (B, D)
        let logits = self.logits(graph, build, first)?; // (B, labels)
        self.labels().loss(graph, build, logits)
    }

    fn text_embedding(&self, graph: &mut Graph, build: &Build) -> Option<Result<ValueId, GraphError>> {
        let hidden = self.hidden(graph, build, Wanted::All);
        Some(hidden.and_then(|hidden| mean_of_tokens(graph, build, hidden)))
    }

    fn layers(&self) -> usize {
        self.num_hidden_layers
    }

    fn rows_per_sample(&self, _length: usize) -> usize {
        1
    }

    /// Relative positions go with the scores, which are then never stored.
    fn has_attention_forms(&self) -> bool {
        self.kind != EncoderKind::DebertaV3
    }

    fn classifier(&self) -> Option<Classifier> {
        let (labels, problem) = (self.num_labels, self.problem_type);
        // RoBERTa counts positions past padding.
        let padding_has_a_place = !matches!(self.kind, EncoderKind::Roberta | EncoderKind::XlmRoberta);
        let (padding, segments) = (self.pad_token_id, self.type_vocab_size);
        Some(Classifier { labels, problem, padding, segments, padding_has_a_place })
    }

    fn hugging_face(&self) -> Option<HuggingFace> {
        Some(files::hugging_face(self.kind))
    }

    fn config_json(&self, config: &mut Map<String, Value>, labels: &[String]) {
        files::config_json(self, config, labels);
    }

    fn origin(&self) -> Option<&Origin> {
        Some(&self.origin)
    }

    fn halves(&self) -> Halves {
        Halves {
            heads: vec![("num_attention_heads", self.num_attention_heads)],
            layers: vec![("num_hidden_layers", self.num_hidden_layers)],
            widths: vec![("hidden_size", self.hidden_size), ("intermediate_size", self.intermediate_size)],
        }
    }

    fn transformers_class(&self) -> Option<&'static str> {
        Some("AutoModelForSequenceClassification")
    }

    fn has_sdpa(&self) -> bool {
        self.kind != EncoderKind::DebertaV3
    }
}
