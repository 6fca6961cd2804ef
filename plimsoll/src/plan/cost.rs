//! How long nodes take on a device: what the choice between plans compares.

use super::Program;
use crate::graph::{Graph, NodeId, Type};
use crate::ops::Op;

/// What a device reaches in practice.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    pub flops_per_s: f64,
    pub bytes_per_s: f64,
    /// Seconds per node besides.
    pub launch_s: f64,
}

impl Profile {
    /// Cores with wide vectors, as measured on a server processor.
    pub fn cpu(threads: usize) -> Profile {
        Profile { flops_per_s: 1.1e11 * threads as f64, bytes_per_s: 1.0e10 * threads as f64, launch_s: 4e-6 }
    }

    /// Predicted seconds of one use of an op: the larger of arithmetic and memory time. Views take none.
    pub fn seconds(&self, op: &dyn Op, inputs: &[Type], outputs: &[Type]) -> f64 {
        let cost = op.cost(inputs, outputs);
        (cost.flops / self.flops_per_s).max(cost.bytes / self.bytes_per_s) + self.launch_s
    }

    pub fn node_seconds(&self, graph: &Graph, id: NodeId) -> f64 {
        let node = graph.node(id);
        let outputs: Vec<Type> = node.outputs.iter().map(|&v| graph.ty(v).clone()).collect();
        self.seconds(node.op.op(), &graph.input_types(id), &outputs)
    }

    /// One run of a graph.
    pub fn graph_seconds(&self, graph: &Graph) -> f64 {
        graph.node_ids().map(|id| self.node_seconds(graph, id)).sum()
    }
}

/// Milliseconds of one step: every phase as often as a step runs it.
pub fn predicted_ms(program: &Program, profile: &Profile) -> f64 {
    1e3 * program.phases.iter().map(|phase| phase.repeat as f64 * profile.graph_seconds(&phase.graph)).sum::<f64>()
}
