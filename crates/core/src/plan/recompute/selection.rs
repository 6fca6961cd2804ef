//! Which forward nodes are computed again, said by name so that a stored plan gives the same nodes.

use crate::graph::Target;
use crate::graph::{Graph, NodeId, Role};
use crate::plan::sketch::{Flow, Sketch};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

/// Which forward values are computed again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recompute {
    None,
    /// Norms, activations and other ops that cost little.
    Cheap,
    /// The nodes named.
    Some(Vec<Part>),
    /// Everything inside every layer; only what passes from layer to layer is kept.
    Layers,
}

/// Nodes of some layers, or of what is outside of layers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// First layer and one past the last; none for what is outside.
    pub layers: Option<(u32, u32)>,
    /// Names inside the layer: `attention.out` for `layers.3.attention.out`.
    pub nodes: Vec<String>,
}

impl Recompute {
    pub fn name(&self) -> &'static str {
        match self {
            Recompute::None => "none",
            Recompute::Cheap => "cheap",
            Recompute::Some(_) => "some",
            Recompute::Layers => "layers",
        }
    }
}

/// The forward nodes that this choice computes again.
pub fn recomputed_nodes(graph: &Graph, choice: &Recompute) -> Vec<bool> {
    if *choice == Recompute::None {
        return vec![false; graph.nodes().len()];
    }
    let sketch = Sketch::of(graph, &Target::cpu(1), |_| 0);
    select(&sketch, &ForwardNames::of(graph), choice)
}

pub(super) fn select(sketch: &Sketch, names: &ForwardNames, choice: &Recompute) -> Vec<bool> {
    let crossing = crossing_nodes(sketch);
    let parts: Vec<Named<'_>> = match choice {
        Recompute::Some(parts) => parts.iter().map(Named::of).collect(),
        _ => Vec::new(),
    };
    let is_named = |id: NodeId, segment| parts.iter().any(|part| part.holds(segment, &names.0[id.index()]));
    let chosen = |id: NodeId| {
        let node = sketch.node(id);
        match choice {
            Recompute::None => false,
            Recompute::Cheap => node.segment.is_some() && node.is_cheap,
            Recompute::Some(_) => is_named(id, node.segment),
            Recompute::Layers => node.segment.is_some() && !crossing[id.index()],
        }
    };
    sketch.node_ids().map(|id| sketch.may_run_twice(id) && chosen(id)).collect()
}

/// A part whose names can be looked up.
struct Named<'p> {
    layers: Option<(u32, u32)>,
    nodes: FxHashSet<&'p str>,
}

impl<'p> Named<'p> {
    fn of(part: &'p Part) -> Named<'p> {
        Named { layers: part.layers, nodes: part.nodes.iter().map(String::as_str).collect() }
    }

    fn holds(&self, segment: Option<u32>, name: &str) -> bool {
        let inside = match (self.layers, segment) {
            (Some((first, end)), Some(segment)) => (first..end).contains(&segment),
            (None, None) => true,
            _ => false,
        };
        inside && self.nodes.contains(name)
    }
}

/// Nodes that a forward node outside their own layer reads: what passes from layer to layer is kept.
pub(super) fn crossing_nodes(sketch: &Sketch) -> Vec<bool> {
    let mut crossing = vec![false; sketch.nodes.len()];
    for node in sketch.nodes.iter().filter(|n| n.role == Role::Forward) {
        for producer in node.inputs.iter().filter_map(|&v| sketch.producer(v)) {
            crossing[producer.index()] |= sketch.node(producer).segment != node.segment;
        }
    }
    crossing
}

/// Names of forward nodes, each inside its layer; empty for other nodes.
pub(crate) struct ForwardNames(Vec<Box<str>>);

impl ForwardNames {
    pub(super) fn of(graph: &Graph) -> ForwardNames {
        let local = |id: NodeId| -> Box<str> {
            let node = graph.node(id);
            let layer = node.segment.map(|segment| graph.layer_path(segment));
            let inside = layer.and_then(|path| node.name.strip_prefix(path)?.strip_prefix('.'));
            if node.role == Role::Forward { inside.unwrap_or(&node.name).into() } else { "".into() }
        };
        ForwardNames(graph.node_ids().map(local).collect())
    }
}

/// The choice that computes exactly the nodes marked in `again`.
pub(super) fn describe(sketch: &Sketch, names: &ForwardNames, again: &[bool]) -> Recompute {
    if !again.contains(&true) {
        return Recompute::None;
    }
    let plain = [Recompute::Cheap, Recompute::Layers].into_iter().find(|choice| select(sketch, names, choice) == again);
    plain.unwrap_or_else(|| Recompute::Some(parts(sketch, names, again)))
}

/// Neighbouring layers in which the same nodes are marked make one part.
fn parts(sketch: &Sketch, names: &ForwardNames, again: &[bool]) -> Vec<Part> {
    let segments = sketch.nodes.iter().filter_map(|n| n.segment).max().map_or(0, |last| last as usize + 1);
    let mut inside: Vec<Vec<String>> = vec![Vec::new(); segments];
    let mut outside = Vec::new();
    for id in sketch.node_ids().filter(|id| again[id.index()]) {
        let name = names.0[id.index()].to_string();
        match sketch.node(id).segment {
            Some(segment) => inside[segment as usize].push(name),
            None => outside.push(name),
        }
    }
    let mut parts: Vec<Part> = Vec::new();
    for (segment, nodes) in inside.into_iter().enumerate().filter(|(_, nodes)| !nodes.is_empty()) {
        let segment = segment as u32;
        match parts.last_mut().filter(|p| p.layers.is_some_and(|l| l.1 == segment) && p.nodes == nodes) {
            Some(Part { layers: Some(layers), .. }) => layers.1 = segment + 1,
            _ => parts.push(Part { layers: Some((segment, segment + 1)), nodes }),
        }
    }
    if !outside.is_empty() {
        parts.push(Part { layers: None, nodes: outside });
    }
    parts
}
