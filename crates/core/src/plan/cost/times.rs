//! Seconds of a node where it stands, and of its double in a backward pass.

use super::work::Traffic;
use super::{Amount, Profile, Work};
use crate::graph::{Graph, NodeId};
use crate::types::Type;

/// The nodes of one graph.
pub(in crate::plan) struct NodeTimes {
    seconds: Vec<f64>,
    nodes: Vec<NodeTime>,
}

/// What a node takes, before it is known which of its inputs are near.
#[derive(Default)]
pub(in crate::plan) struct NodeTime {
    traffic: Traffic,
    /// Seconds of all but the bytes of the device, and of the arithmetic among it that hides them.
    fixed: f64,
    hiding: f64,
    /// Seconds of a byte that is near, and of one that is far.
    near: f64,
    far: f64,
}

impl NodeTimes {
    pub(in crate::plan) fn new(graph: &Graph, nodes: Vec<NodeTime>) -> NodeTimes {
        let seconds = graph.node_ids().zip(&nodes).map(|(id, node)| node.seconds(Work::is_far(graph, id))).collect();
        NodeTimes { seconds, nodes }
    }

    /// By node, each where it stands.
    pub(in crate::plan) fn seconds(&self) -> &[f64] {
        &self.seconds
    }

    /// Of the double of a node: what was kept since the forward pass is far from it, unlike what runs again with it.
    pub(in crate::plan) fn again(&self, node: NodeId, is_far: impl Fn(usize) -> bool) -> f64 {
        self.nodes[node.index()].seconds(is_far)
    }
}

impl NodeTime {
    /// `inputs`: the types of what the node reads.
    pub(in crate::plan) fn of(graph: &Graph, id: NodeId, inputs: &[Type], profile: &Profile) -> NodeTime {
        let (work, traffic) = Work::and_traffic(graph, id, inputs, &profile.grain);
        let Some(rates) = profile.rates(&work) else { return NodeTime::default() };
        let amounts = profile.as_in_f32(&work);
        let flops = rates.of(Amount::Flops) * amounts.of(Amount::Flops);
        NodeTime {
            traffic,
            fixed: rates.dot(&amounts),
            hiding: if profile.overlaps { flops } else { 0.0 },
            near: rates.of(Amount::NearBytes),
            far: rates.of(Amount::FarBytes),
        }
    }

    pub(super) fn seconds(&self, is_far: impl Fn(usize) -> bool) -> f64 {
        let (near, far) = self.traffic.split(is_far);
        let memory = near * self.near + far * self.far;
        self.fixed + memory - memory.min(self.hiding)
    }
}
