//! What planning needs to know of a graph, without names, types and ops. Trying another recompute or order on a sketch
//! takes a fraction of the time that building the graph does.

use super::cost::{NodeTime, NodeTimes};
use super::links::Links;
use super::{Profile, aligned};
use crate::graph::{AliasKind, Target};
use crate::graph::{Component, Graph, InputKind, NodeId, Outputs, Role, Space, ValueId};
use crate::types::Type;
use smallvec::SmallVec;

#[derive(Clone, Debug)]
pub(super) struct Sketch {
    pub nodes: Vec<NodeSketch>,
    pub values: Vec<ValueSketch>,
    /// By value, the one that it is a view of, directly or not; itself if it is none.
    pub roots: Vec<ValueId>,
    /// Values the host reads after the phase.
    pub kept: Vec<ValueId>,
    pub links: Links,
}

#[derive(Clone, Debug)]
pub(super) struct NodeSketch {
    pub role: Role,
    pub segment: Option<u32>,
    pub inputs: SmallVec<[ValueId; 4]>,
    pub outputs: Outputs,
    pub aliases: SmallVec<[AliasSketch; 1]>,
    pub workspace_bytes: usize,
    pub is_cheap: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct AliasSketch {
    pub output: usize,
    pub input: usize,
    pub kind: AliasKind,
    /// Where a view starts in what it is a view of.
    pub skip_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ValueSketch {
    /// The bytes it spans, rounded up to the alignment of slots.
    pub bytes: usize,
    pub component: Component,
    pub space: Space,
    pub origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Data,
    /// An index into the program's residents.
    Resident(usize),
    Node(NodeId),
}

/// Nodes to put in order, and values that live as long as they are read: those of a sketch, or of one of which some run
/// again.
pub(super) trait Flow {
    /// Every id of a node, and of a value, is below this.
    fn node_bound(&self) -> usize;
    fn value_bound(&self) -> usize;
    /// The nodes, each after those whose results it reads, but for those that are recomputed.
    fn ids(&self) -> impl Iterator<Item = NodeId>;
    /// The values that no node computes.
    fn given(&self) -> impl Iterator<Item = ValueId>;
    fn kept(&self) -> &[ValueId];

    fn role(&self, id: NodeId) -> Role;
    fn reads(&self, id: NodeId) -> impl Iterator<Item = ValueId> + Clone;
    fn writes(&self, id: NodeId) -> impl Iterator<Item = ValueId> + Clone;
    /// What else there is to know of a node. What it reads and writes may be called otherwise there.
    fn about(&self, id: NodeId) -> &NodeSketch;

    /// By id, how often a node reads what another computes, and how many others read what it overwrites.
    fn missing(&self) -> Vec<u32>;
    fn blockers(&self) -> Vec<u32>;
    /// Calls those whose results a node reads and that run only when something asks for them.
    fn each_asked(&self, id: NodeId, call: impl FnMut(NodeId));
    /// Calls those that read what a node computes, once for each time they do.
    fn each_reader(&self, id: NodeId, call: impl FnMut(NodeId));
    /// Those that overwrite what a node reads.
    fn overwriters(&self, id: NodeId) -> &[NodeId];

    fn value(&self, value: ValueId) -> &ValueSketch;
    fn producer(&self, value: ValueId) -> Option<NodeId>;

    fn read(&self, id: NodeId, at: usize) -> Option<ValueId> {
        self.reads(id).nth(at)
    }
}

impl Flow for Sketch {
    fn node_bound(&self) -> usize {
        self.nodes.len()
    }

    fn value_bound(&self) -> usize {
        self.values.len()
    }

    fn ids(&self) -> impl Iterator<Item = NodeId> {
        self.node_ids()
    }

    fn given(&self) -> impl Iterator<Item = ValueId> {
        let is_given = |value: &ValueId| !matches!(self.values[value.index()].origin, Origin::Node(_));
        (0..self.values.len() as u32).map(ValueId).filter(is_given)
    }

    fn kept(&self) -> &[ValueId] {
        &self.kept
    }

    fn role(&self, id: NodeId) -> Role {
        self.links.roles[id.index()]
    }

    fn reads(&self, id: NodeId) -> impl Iterator<Item = ValueId> + Clone {
        self.node(id).inputs.iter().copied()
    }

    fn writes(&self, id: NodeId) -> impl Iterator<Item = ValueId> + Clone {
        self.node(id).outputs.iter().copied()
    }

    fn about(&self, id: NodeId) -> &NodeSketch {
        self.node(id)
    }

    fn missing(&self) -> Vec<u32> {
        self.links.reads.clone()
    }

    fn blockers(&self) -> Vec<u32> {
        self.links.blockers.clone()
    }

    fn each_asked(&self, id: NodeId, call: impl FnMut(NodeId)) {
        let producers = self.node(id).inputs.iter().filter_map(|&value| self.producer(value));
        producers.filter(|&producer| self.role(producer) == Role::Recompute).for_each(call);
    }

    fn each_reader(&self, id: NodeId, call: impl FnMut(NodeId)) {
        self.links.readers.of(id).iter().copied().for_each(call);
    }

    fn overwriters(&self, id: NodeId) -> &[NodeId] {
        self.links.overwriters.of(id)
    }

    fn value(&self, value: ValueId) -> &ValueSketch {
        &self.values[value.index()]
    }

    fn producer(&self, value: ValueId) -> Option<NodeId> {
        self.links.producers[value.index()]
    }
}

impl ValueSketch {
    /// The node that computes it.
    pub(super) fn producer(&self) -> Option<NodeId> {
        match self.origin {
            Origin::Node(node) => Some(node),
            _ => None,
        }
    }
}

impl NodeSketch {
    /// Whether it only sees its input differently.
    pub(super) fn is_view(&self) -> bool {
        self.aliases.iter().any(|alias| matches!(alias.kind, AliasKind::View { .. }))
    }

    /// Whether it changes something in place (running statistics): it must not run twice.
    pub(super) fn overwrites(&self) -> bool {
        self.aliases.iter().any(|alias| alias.kind == AliasKind::Must)
    }
}

impl Sketch {
    /// Every node comes after those whose results it reads.
    pub(super) fn new(nodes: Vec<NodeSketch>, values: Vec<ValueSketch>, kept: Vec<ValueId>) -> Sketch {
        let mut roots: Vec<ValueId> = (0..values.len() as u32).map(ValueId).collect();
        for node in &nodes {
            for alias in node.aliases.iter().filter(|alias| matches!(alias.kind, AliasKind::View { .. })) {
                roots[node.outputs[alias.output].index()] = roots[node.inputs[alias.input].index()];
            }
        }
        let links = Links::of(&nodes, &values, &roots);
        Sketch { nodes, values, roots, kept, links }
    }

    /// `resident` gives the index of a resident by its name.
    pub(super) fn of(graph: &Graph, target: &Target, resident: impl Fn(&str) -> usize) -> Sketch {
        let node = |id: NodeId| sketch_node(graph, id, &graph.input_types(id), target);
        Sketch::of_nodes(graph, graph.node_ids().map(node).collect(), resident)
    }

    /// The same, and what its nodes take. What types they read is asked for once.
    pub(super) fn timed(graph: &Graph, target: &Target, profile: &Profile) -> (Sketch, NodeTimes) {
        let node = |id: NodeId| {
            let types = graph.input_types(id);
            (sketch_node(graph, id, &types, target), NodeTime::of(graph, id, &types, profile))
        };
        let (nodes, times) = graph.node_ids().map(node).unzip();
        (Sketch::of_nodes(graph, nodes, |_| 0), NodeTimes::new(graph, times))
    }

    fn of_nodes(graph: &Graph, nodes: Vec<NodeSketch>, resident: impl Fn(&str) -> usize) -> Sketch {
        let value = |id: ValueId| {
            let value = graph.value(id);
            let origin = match (graph.producer(id), &value.input) {
                (Some(node), _) => Origin::Node(node),
                (None, Some(InputKind::Data) | None) => Origin::Data,
                (None, Some(_)) => Origin::Resident(resident(&value.name)),
            };
            ValueSketch {
                bytes: aligned(value.ty.span_bytes()),
                component: value.component,
                space: value.space,
                origin,
            }
        };
        Sketch::new(nodes, graph.value_ids().map(value).collect(), graph.kept().to_vec())
    }

    pub(super) fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    pub(super) fn node(&self, id: NodeId) -> &NodeSketch {
        &self.nodes[id.index()]
    }

    /// The value that `value` is a view of, directly or not; itself if it is none.
    pub(super) fn viewed(&self, value: ValueId) -> ValueId {
        self.roots[value.index()]
    }

    /// Whether a node of the forward pass comes to the same whenever it runs: it changes nothing in place, and nothing
    /// changes what it computes.
    pub(super) fn may_run_twice(&self, id: NodeId) -> bool {
        let node = self.node(id);
        node.role == Role::Forward && !node.overwrites() && !self.links.is_overwritten[id.index()]
    }

    /// Whether this order runs every node once and after what it reads.
    pub(super) fn runs_in(&self, order: &[NodeId]) -> bool {
        let mut done = vec![false; self.nodes.len()];
        for &id in order {
            let ready = |&v: &ValueId| self.producer(v).is_none_or(|producer| done[producer.index()]);
            if id.index() >= done.len() || done[id.index()] || !self.node(id).inputs.iter().all(ready) {
                return false;
            }
            done[id.index()] = true;
        }
        order.len() == self.nodes.len()
    }
}

fn sketch_node(graph: &Graph, id: NodeId, types: &[Type], target: &Target) -> NodeSketch {
    let node = graph.node(id);
    let op = node.op.op();
    let alias = |alias: crate::graph::Alias| {
        let skip_bytes = match alias.kind {
            AliasKind::View { offset } => offset * graph.ty(node.outputs[alias.output]).dtype.bytes(),
            _ => 0,
        };
        AliasSketch { output: alias.output, input: alias.input, kind: alias.kind, skip_bytes }
    };
    NodeSketch {
        role: node.role,
        segment: node.segment,
        inputs: SmallVec::from_slice(&node.inputs),
        outputs: Outputs::from_slice(&node.outputs),
        aliases: op.aliases(types).into_iter().map(alias).collect(),
        workspace_bytes: aligned(op.workspace(types, target)),
        is_cheap: op.is_cheap(),
    }
}
