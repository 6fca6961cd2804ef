//! mu-sota: a language model whose hidden state is cut into blocks. In every layer each block attends within its own
//! narrow slice, then one attention runs across all of them, then a feed-forward; pre-norm, residual.

mod generation;
mod graph;
mod sizes;
mod workloads;

pub use sizes::MuSota;

use super::workloads::Workloads;
use super::{Build, Decoder, Family, FamilyName, Halves, Listed, Outputs};
use crate::hf::config_out::{keys_of, lay_over};
use crate::reading::section::Section;
use plimsoll_core::graph::{Graph, GraphError, ValueId};
use plimsoll_core::ops::FeedForward;
use serde_json::{Map, Value};
use std::path::Path;

impl Listed for MuSota {
    fn usual(_: FamilyName) -> Self {
        Self::default()
    }

    fn read(_: FamilyName, section: &Section<'_>, _: &Path) -> Self {
        Self::read_keys(section)
    }

    fn workloads(_: FamilyName) -> Workloads {
        workloads::WORKLOADS
    }
}

impl Family for MuSota {
    fn forward(&self, graph: &mut Graph, build: &Build) -> Result<Outputs, GraphError> {
        self.graph(graph, build)
    }

    fn next_token(&self, graph: &mut Graph, build: &Build) -> Option<Result<ValueId, GraphError>> {
        Some(self.next_token_logits(graph, build))
    }

    fn decoder(&self) -> Option<&dyn Decoder> {
        Some(self)
    }

    fn layers(&self) -> usize {
        self.layers
    }

    fn rows_per_sample(&self, length: usize) -> usize {
        length
    }

    fn blocks(&self) -> usize {
        self.blocks
    }

    fn has_loss_chunks(&self) -> bool {
        true
    }

    fn has_fused_feed_forward(&self) -> bool {
        self.width() <= FeedForward::WIDEST_ON_CUDA
    }

    fn config_json(&self, config: &mut Map<String, Value>, _labels: &[String]) {
        lay_over(config, keys_of(self));
    }

    fn halves(&self) -> Halves {
        Halves {
            heads: vec![("block_heads", self.block_heads), ("cross_heads", self.cross_heads)],
            layers: vec![("layers", self.layers)],
            widths: vec![("ffn", self.ffn)],
        }
    }
}
