//! distilbert: an encoder half as deep as bert, as Hugging Face's `DistilBertForSequenceClassification`.

mod files;
mod graph;
mod presets;
mod sizes;
#[cfg(test)]
mod tests;
mod workloads;

pub use sizes::DistilBert;

use super::presets::Names;
use super::texts::{Wanted, mean_of_tokens};
use super::workloads::Workloads;
use super::{Build, Classifier, Family, FamilyName, Halves, HuggingFace, Listed, Origin, Outputs, origin};
use crate::reading::section::Section;
use plimsoll_core::graph::{Graph, GraphError, ValueId};
use serde_json::{Map, Value};
use std::path::Path;

impl Listed for DistilBert {
    fn usual(_: FamilyName) -> Self {
        Self::defaults()
    }

    fn read(name: FamilyName, section: &Section<'_>, folder: &Path) -> Self {
        origin::read(Self::usual(name), section, folder)
    }

    fn presets(_: FamilyName) -> Vec<Names> {
        Self::all_presets()
    }

    fn workloads(_: FamilyName) -> Workloads {
        workloads::WORKLOADS
    }
}

impl Family for DistilBert {
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
        self.n_layers
    }

    fn rows_per_sample(&self, _length: usize) -> usize {
        1
    }

    fn classifier(&self) -> Option<Classifier> {
        let (labels, problem) = (self.num_labels, self.problem_type);
        let padding = self.pad_token_id;
        Some(Classifier { labels, problem, padding, segments: 0, padding_has_a_place: true })
    }

    fn hugging_face(&self) -> Option<HuggingFace> {
        Some(files::hugging_face())
    }

    fn config_json(&self, config: &mut Map<String, Value>, labels: &[String]) {
        files::config_json(self, config, labels);
    }

    fn origin(&self) -> Option<&Origin> {
        Some(&self.origin)
    }

    fn halves(&self) -> Halves {
        Halves {
            heads: vec![("n_heads", self.n_heads)],
            layers: vec![("n_layers", self.n_layers)],
            widths: vec![("dim", self.dim), ("hidden_dim", self.hidden_dim)],
        }
    }

    fn transformers_class(&self) -> Option<&'static str> {
        Some("AutoModelForSequenceClassification")
    }
}
