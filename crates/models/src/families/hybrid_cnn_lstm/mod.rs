//! hybrid-cnn-lstm: Conv1d stack → 2-layer bidirectional LSTM → one pre-norm attention block → mean pool → classifier.

mod graph;
mod sizes;
mod workloads;

pub use sizes::{BatchNormMode, HybridCnnLstm};

use super::workloads::Workloads;
use super::{Build, Family, FamilyName, Halves, Listed, Outputs};
use crate::hf::config_out::{keys_of, lay_over};
use crate::reading::section::Section;
use graph::LSTM_LAYERS;
use plimsoll_core::graph::{Graph, GraphError};
use serde_json::{Map, Value};
use std::path::Path;

impl Listed for HybridCnnLstm {
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

impl Family for HybridCnnLstm {
    fn forward(&self, graph: &mut Graph, build: &Build) -> Result<Outputs, GraphError> {
        self.graph(graph, build)
    }

    fn layers(&self) -> usize {
        // Convolutions, recurrences, attention and feed-forward.
        self.channels.len() + LSTM_LAYERS + 2
    }

    fn rows_per_sample(&self, _: usize) -> usize {
        1
    }

    fn config_json(&self, config: &mut Map<String, Value>, _labels: &[String]) {
        lay_over(config, keys_of(self));
    }

    fn halves(&self) -> Halves {
        Halves { heads: vec![("heads", self.heads)], widths: vec![("hidden", self.hidden)], ..Halves::default() }
    }
}
