//! t5: an encoder and a decoder with relative position bias, as Hugging Face's `T5ForConditionalGeneration`.

mod files;
mod generation;
mod graph;
mod presets;
mod sizes;
mod stack;
#[cfg(test)]
mod tests;
mod workloads;

pub use sizes::{FeedForward, T5};

use super::presets::Names;
use super::workloads::Workloads;
use super::{Build, Decoder, Family, FamilyName, Halves, HuggingFace, Listed, Origin, Outputs, origin};
use crate::reading::section::Section;
use plimsoll_core::graph::{Graph, GraphError, ValueId};
use plimsoll_core::types::{DType, Type};
use serde_json::{Map, Value};
use std::path::Path;

type Built = Result<ValueId, GraphError>;

impl Listed for T5 {
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

impl Family for T5 {
    fn forward(&self, graph: &mut Graph, build: &Build) -> Result<Outputs, GraphError> {
        let (source, target) = ([build.batch, build.length], [build.batch, build.target_length]);
        let ids = graph.data("ids", Type::new(DType::I32, &source))?;
        let mask = graph.data("mask", Type::new(DType::I32, &source))?;
        let memory = self.encoder(graph, self.stack(*build), ids, mask)?;
        let decoder_ids = graph.data("decoder_ids", Type::new(DType::I32, &target))?;
        let x = self.decoder_stack(graph, build, decoder_ids, memory, mask)?;
        let head = self.loss(graph, build, x)?;
        Ok(Outputs { loss: head.loss, correct: Some(head.correct), logits: None })
    }

    fn layers(&self) -> usize {
        self.num_layers + self.num_decoder_layers
    }

    fn rows_per_sample(&self, length: usize) -> usize {
        length
    }

    fn has_loss_chunks(&self) -> bool {
        true
    }

    fn has_attention_forms(&self) -> bool {
        false
    }

    fn decoder(&self) -> Option<&dyn Decoder> {
        Some(self)
    }

    fn hugging_face(&self) -> Option<HuggingFace> {
        Some(files::hugging_face(self))
    }

    fn config_json(&self, config: &mut Map<String, Value>, _labels: &[String]) {
        files::config_json(self, config);
    }

    fn origin(&self) -> Option<&Origin> {
        Some(&self.origin)
    }

    fn halves(&self) -> Halves {
        Halves {
            heads: vec![("num_heads", self.num_heads)],
            layers: vec![("num_layers", self.num_layers), ("num_decoder_layers", self.num_decoder_layers)],
            widths: vec![("d_ff", self.d_ff)],
        }
    }

    fn transformers_class(&self) -> Option<&'static str> {
        Some("AutoModelForSeq2SeqLM")
    }

    fn has_sdpa(&self) -> bool {
        false
    }
}
