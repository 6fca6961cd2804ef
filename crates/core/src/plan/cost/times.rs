//! Seconds of the nodes of one graph, and of their doubles in a backward pass.

use super::work::Traffic;
use super::{Amount, Profile, Work};
use crate::graph::{Graph, NodeId};

pub(in crate::plan) struct NodeTimes {
    seconds: Vec<f64>,
    again: Vec<Again>,
    /// Whether arithmetic goes on while memory is read.
    overlaps: bool,
}

/// Of the double of a node.
#[derive(Default)]
struct Again {
    traffic: Traffic,
    /// Seconds of all but the bytes of the device, and of the arithmetic among it.
    fixed: f64,
    flops: f64,
    /// Seconds of a byte that is near, and of one that is far.
    near: f64,
    far: f64,
}

impl NodeTimes {
    pub(in crate::plan) fn of(graph: &Graph, profile: &Profile) -> NodeTimes {
        NodeTimes {
            seconds: graph.node_ids().map(|id| profile.node_seconds(graph, id)).collect(),
            again: graph.node_ids().map(|id| Again::of(graph, id, profile)).collect(),
            overlaps: profile.overlaps,
        }
    }

    /// By node, each where it stands.
    pub(in crate::plan) fn seconds(&self) -> &[f64] {
        &self.seconds
    }

    /// Of the double of a node: what was kept since the forward pass is far from it, unlike what runs again with it.
    pub(in crate::plan) fn again(&self, node: NodeId, is_far: impl Fn(usize) -> bool) -> f64 {
        let again = &self.again[node.index()];
        let (near, far) = again.traffic.split(is_far);
        let memory = near * again.near + far * again.far;
        let hidden = if self.overlaps { memory.min(again.flops) } else { 0.0 };
        again.fixed + memory - hidden
    }
}

impl Again {
    fn of(graph: &Graph, id: NodeId, profile: &Profile) -> Again {
        let (work, traffic) = Work::and_traffic(graph, id, &profile.grain);
        let Some(rates) = profile.rates(&work) else { return Again::default() };
        let amounts = profile.as_in_f32(&work);
        Again {
            traffic,
            fixed: rates.dot(&amounts),
            flops: rates.of(Amount::Flops) * amounts.of(Amount::Flops),
            near: rates.of(Amount::NearBytes),
            far: rates.of(Amount::FarBytes),
        }
    }
}
