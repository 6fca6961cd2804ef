//! Recompute: a value that the backward pass reads is computed again there instead of being kept since the forward
//! pass. Ops are deterministic and random masks are functions of their place, so the bits are the same.

use super::PlanError;
use crate::graph::{Graph, NodeId, Role, ValueId};
use crate::ops::AliasKind;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Which forward values are computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recompute {
    None,
    /// Norms, activations and other ops that cost little.
    Cheap,
    /// Everything inside the first so many layers.
    Some(u32),
    /// Everything inside every layer; only what passes from layer to layer is kept.
    Layers,
}

impl Recompute {
    pub fn name(self) -> &'static str {
        match self {
            Recompute::None => "none",
            Recompute::Cheap => "cheap",
            Recompute::Some(_) => "some",
            Recompute::Layers => "layers",
        }
    }
}

/// The forward nodes that this choice computes again.
pub fn recomputed_nodes(graph: &Graph, choice: Recompute) -> Vec<bool> {
    let crossing = crossing_nodes(graph);
    let chosen = |id: NodeId| {
        let node = graph.node(id);
        match (choice, node.segment) {
            (Recompute::None, _) | (_, None) => false,
            (Recompute::Cheap, _) => node.op.op().is_cheap(),
            (Recompute::Some(n), Some(segment)) => segment < n && !crossing[id.index()],
            (Recompute::Layers, Some(_)) => !crossing[id.index()],
        }
    };
    graph.node_ids().map(|id| graph.node(id).role == Role::Forward && chosen(id) && !overwrites(graph, id)).collect()
}

/// Nodes that a forward node outside their own layer reads: what passes from layer to layer is kept.
fn crossing_nodes(graph: &Graph) -> Vec<bool> {
    let mut crossing = vec![false; graph.nodes().len()];
    for node in graph.nodes().iter().filter(|n| n.role == Role::Forward) {
        for producer in node.inputs.iter().filter_map(|&v| graph.producer(v)) {
            crossing[producer.index()] |= graph.node(producer).segment != node.segment;
        }
    }
    crossing
}

/// A node that changes something in place (running statistics) must not run twice.
fn overwrites(graph: &Graph, id: NodeId) -> bool {
    graph.node(id).op.op().aliases(&graph.input_types(id)).iter().any(|alias| alias.kind == AliasKind::Must)
}

/// The graph in which the nodes marked in `again` are repeated for the backward pass.
pub fn recompute(graph: &Graph, again: &[bool]) -> Result<Graph, PlanError> {
    let mut pass = Pass { from: graph, again, to: graph.empty_copy(), kept: HashMap::new(), redone: HashMap::new() };
    for id in graph.value_ids() {
        if let Some(copy) = pass.to.input_again(graph.value(id))? {
            pass.kept.insert(id, copy);
        }
    }
    for id in graph.node_ids() {
        pass.copy(id)?;
    }
    graph.kept().iter().for_each(|value| pass.to.keep(pass.kept[value]));
    pass.to.verify()?;
    Ok(pass.to)
}

struct Pass<'g> {
    from: &'g Graph,
    again: &'g [bool],
    to: Graph,
    /// Old value → its value in the new graph, and → its recomputed double.
    kept: HashMap<ValueId, ValueId>,
    redone: HashMap<ValueId, ValueId>,
}

impl Pass<'_> {
    fn copy(&mut self, id: NodeId) -> Result<(), PlanError> {
        let from = self.from;
        let node = from.node(id);
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for &value in &node.inputs {
            inputs.push(if node.role == Role::Forward { self.kept[&value] } else { self.again_value(value)? });
        }
        let outputs = self.to.push_again(node, &node.name, node.role, &inputs)?;
        for (&old, &new) in node.outputs.iter().zip(&outputs) {
            self.to.set_component(new, from.value(old).component);
            self.kept.insert(old, new);
        }
        Ok(())
    }

    /// What the backward pass reads for `value`: its double if it is to be recomputed.
    fn again_value(&mut self, value: ValueId) -> Result<ValueId, PlanError> {
        let from = self.from;
        let Some(producer) = from.producer(value).filter(|p| self.again[p.index()]) else {
            return Ok(self.kept[&value]);
        };
        if let Some(&known) = self.redone.get(&value) {
            return Ok(known);
        }
        let node = from.node(producer);
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for &input in &node.inputs {
            inputs.push(self.again_value(input)?);
        }
        let outputs = self.to.push_again(node, &format!("{}.again", node.name), Role::Recompute, &inputs)?;
        for (&old, &new) in node.outputs.iter().zip(&outputs) {
            self.to.set_component(new, from.value(old).component);
            self.redone.insert(old, new);
        }
        Ok(self.redone[&value])
    }
}
