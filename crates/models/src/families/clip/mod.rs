//! clip: images and texts in one space. Two towers give an embedding each; the loss compares every image of the batch
//! with every text, so it is cut from the towers and micro-batches are put between them.

mod files;
mod graph;
mod presets;
mod sizes;
mod text;
mod tower;
mod vision;
mod workloads;

pub use sizes::{Clip, ClipText, ClipVision};

use super::presets::Names;
use super::workloads::Workloads;
use super::{Build, Contrast, Family, FamilyName, Halves, HuggingFace, Listed, Origin, Outputs, origin};
use crate::reading::section::Section;
use plimsoll_core::graph::{Graph, GraphError};
use plimsoll_core::types::Type;
use serde_json::{Map, Value};
use std::path::Path;

impl Listed for Clip {
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

impl Family for Clip {
    fn forward(&self, graph: &mut Graph, build: &Build) -> Result<Outputs, GraphError> {
        let (image, text) = self.embed(graph, build)?;
        let weight = graph.data("weight", Type::new(graph.float.wide(), &[build.batch]))?;
        Contrast::contrast(self, graph, image, text, weight)
    }

    fn layers(&self) -> usize {
        self.vision_config.num_hidden_layers + self.text_config.num_hidden_layers
    }

    fn rows_per_sample(&self, _length: usize) -> usize {
        1
    }

    fn contrast(&self) -> Option<&dyn Contrast> {
        Some(self)
    }

    fn hugging_face(&self) -> Option<HuggingFace> {
        Some(files::HUGGING_FACE)
    }

    fn config_json(&self, config: &mut Map<String, Value>, _labels: &[String]) {
        files::config_json(self, config);
    }

    fn origin(&self) -> Option<&Origin> {
        Some(&self.origin)
    }

    fn halves(&self) -> Halves {
        let (text, vision) = (&self.text_config, &self.vision_config);
        Halves {
            heads: vec![
                ("vision_config.num_attention_heads", vision.num_attention_heads),
                ("text_config.num_attention_heads", text.num_attention_heads),
            ],
            layers: vec![
                ("vision_config.num_hidden_layers", vision.num_hidden_layers),
                ("text_config.num_hidden_layers", text.num_hidden_layers),
            ],
            widths: vec![
                ("vision_config.intermediate_size", vision.intermediate_size),
                ("text_config.intermediate_size", text.intermediate_size),
            ],
        }
    }

    fn transformers_class(&self) -> Option<&'static str> {
        Some("CLIPModel")
    }
}
