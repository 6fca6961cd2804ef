//! Offload: what is not needed for a while lies in host memory. A saved value is copied there as soon as it exists and
//! fetched when the backward pass asks for it; the bits are the same.

use super::PlanError;
use crate::graph::{AliasKind, Backend, Target};
use crate::graph::{Graph, NodeId, Role, ValueId};
use crate::ops::{FromHost, ToHost};
use serde::{Deserialize, Serialize};

/// What lies in host memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offload {
    /// The optimizer's moments, fetched for the update of each parameter.
    pub optimizer: bool,
    /// What the first so many layers save for the backward pass.
    pub activation_layers: u32,
}

impl Offload {
    pub const NONE: Offload = Offload { optimizer: false, activation_layers: 0 };

    /// What to try, one after the other, for a model of so many layers: moments travel once a step, saved values with
    /// every micro-batch. On a CPU nothing is gained: its memory is the host's.
    pub fn ladder(target: &Target, layers: u32) -> Vec<Offload> {
        let moments = Offload { optimizer: true, activation_layers: 0 };
        match target.backend {
            Backend::Cpu => vec![Offload::NONE],
            Backend::Cuda => vec![Offload::NONE, moments, Offload { activation_layers: layers, ..moments }],
        }
    }

    pub fn name(self) -> &'static str {
        match (self.optimizer, self.activation_layers > 0) {
            (false, false) => "none",
            (true, false) => "optimizer",
            (false, true) => "activations",
            (true, true) => "optimizer+activations",
        }
    }
}

/// A saved output this many times smaller than another of its node (a norm's statistics) is not worth a copy.
const TOO_SMALL: usize = 8;

/// The saved values inside the first `layers` layers, by value, that are worth a copy to the host and back. Which they
/// are does not depend on the length of the batch, so that a shorter batch finds its place where the longest has it.
pub fn offloaded_values(graph: &Graph, layers: u32) -> Vec<bool> {
    let saved = saved_values(graph);
    let bytes = |id: ValueId| graph.ty(id).span_bytes();
    let chosen = |id: ValueId| {
        let Some(node) = graph.producer(id).map(|node| graph.node(node)) else { return false };
        let largest = node.outputs.iter().map(|&output| bytes(output)).max().unwrap_or(0);
        saved[id.index()] && node.segment.is_some_and(|s| s < layers) && bytes(id) > largest / TOO_SMALL
    };
    graph.value_ids().map(chosen).collect()
}

/// Values with memory of their own that a forward node writes and a later part of the step reads, itself or a view.
fn saved_values(graph: &Graph) -> Vec<bool> {
    let bases = bases(graph);
    let mut saved = vec![false; graph.values().len()];
    for node in graph.nodes().iter().filter(|n| n.role != Role::Forward) {
        node.inputs.iter().for_each(|v| saved[bases[v.index()].index()] = true);
    }
    // What the host reads in the end stays where it is.
    graph.kept().iter().for_each(|v| saved[bases[v.index()].index()] = false);
    let own = |id: ValueId| {
        let producer = graph.producer(id).filter(|&node| graph.node(node).role == Role::Forward);
        producer.is_some_and(|node| is_fresh(graph, node, id))
    };
    graph.value_ids().map(|id| saved[id.index()] && own(id)).collect()
}

/// Whether an output starts memory of its own, instead of seeing or overwriting an input's.
fn is_fresh(graph: &Graph, node: NodeId, output: ValueId) -> bool {
    let aliases = graph.node(node).op.op().aliases(&graph.input_types(node));
    let is_output = |index: usize| graph.node(node).outputs[index] == output;
    !aliases.iter().any(|alias| alias.kind != AliasKind::May && is_output(alias.output))
}

/// The value that each value is a view of; itself if of none.
fn bases(graph: &Graph) -> Vec<ValueId> {
    let mut bases: Vec<ValueId> = graph.value_ids().collect();
    for id in graph.node_ids() {
        let node = graph.node(id);
        for alias in node.op.op().aliases(&graph.input_types(id)) {
            if let AliasKind::View { .. } = alias.kind {
                bases[node.outputs[alias.output].index()] = bases[node.inputs[alias.input].index()];
            }
        }
    }
    bases
}

/// The graph in which the values marked in `chosen` wait for their later readers in host memory.
pub fn offload(graph: &Graph, chosen: &[bool]) -> Result<Graph, PlanError> {
    let mut pass = Pass {
        from: graph,
        chosen,
        bases: bases(graph),
        to: graph.empty_copy(),
        kept: vec![None; graph.values().len()],
        away: vec![None; graph.values().len()],
        back: vec![None; graph.values().len()],
    };
    for id in graph.value_ids() {
        if let Some(copy) = pass.to.input_again(graph.value(id))? {
            pass.kept[id.index()] = Some(copy);
        }
    }
    for id in graph.node_ids() {
        pass.copy(id)?;
    }
    for &value in graph.kept() {
        let kept = pass.kept(value)?;
        pass.to.keep(kept);
    }
    // A program checks its graphs; of those that are only compared, tests have all checked.
    if cfg!(debug_assertions) {
        pass.to.verify()?;
    }
    Ok(pass.to)
}

struct Pass<'g> {
    from: &'g Graph,
    chosen: &'g [bool],
    bases: Vec<ValueId>,
    to: Graph,
    /// Old value → its value in the new graph, → its copy in host memory, and → what was fetched from there.
    kept: Vec<Option<ValueId>>,
    away: Vec<Option<ValueId>>,
    back: Vec<Option<ValueId>>,
}

impl Pass<'_> {
    fn copy(&mut self, id: NodeId) -> Result<(), PlanError> {
        let from = self.from;
        let node = from.node(id);
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for &value in &node.inputs {
            inputs.push(if node.role == Role::Forward { self.kept(value)? } else { self.later(value)? });
        }
        let outputs = self.to.push_again(node, &node.name, node.role, &inputs)?;
        for (&old, &new) in node.outputs.iter().zip(&outputs) {
            self.to.set_component(new, from.value(old).component);
            self.kept[old.index()] = Some(new);
            if self.chosen[old.index()] {
                let name = format!("{}.to_host", from.value(old).name);
                let copy = self.to.with_role(Role::Forward, |to| to.add(&name, ToHost, &[new]))?[0];
                self.away[old.index()] = Some(copy);
            }
        }
        Ok(())
    }

    /// What the backward pass reads for `value`: what was fetched, or the same view of that.
    fn later(&mut self, value: ValueId) -> Result<ValueId, PlanError> {
        let from = self.from;
        let forward = from.producer(value).is_some_and(|node| from.node(node).role == Role::Forward);
        if !forward || !self.chosen[self.bases[value.index()].index()] {
            return self.kept(value);
        }
        if let Some(known) = self.back[value.index()] {
            return Ok(known);
        }
        if let Some(copy) = self.away[value.index()] {
            let (name, op) = (format!("{}.from_host", from.value(value).name), FromHost::whole(from.ty(value)));
            let fetched = self.to.with_role(Role::Recompute, |to| to.add(&name, op, &[copy]))?[0];
            self.to.set_component(fetched, from.value(value).component);
            self.back[value.index()] = Some(fetched);
            return Ok(fetched);
        }
        self.view_again(value)
    }

    /// `value` is a view of something that was fetched: the same view again.
    fn view_again(&mut self, value: ValueId) -> Result<ValueId, PlanError> {
        let from = self.from;
        let node = from.node(from.producer(value).ok_or_else(|| self.unknown(value))?);
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for &input in &node.inputs {
            inputs.push(self.later(input)?);
        }
        let outputs = self.to.push_again(node, &format!("{}.back", node.name), Role::Recompute, &inputs)?;
        node.outputs.iter().zip(outputs).for_each(|(old, new)| self.back[old.index()] = Some(new));
        self.back[value.index()].ok_or_else(|| self.unknown(value))
    }

    fn kept(&self, value: ValueId) -> Result<ValueId, PlanError> {
        self.kept[value.index()].ok_or_else(|| self.unknown(value))
    }

    fn unknown(&self, value: ValueId) -> PlanError {
        PlanError::Broken(format!("{} is read before it exists", self.from.value(value).name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Space;
    use crate::plan::order;
    use crate::plan::testing::{layers, with_gradients};

    fn graph() -> Graph {
        let (graph, loss) = layers(2, 2);
        with_gradients(graph, loss)
    }

    fn names(graph: &Graph, chosen: &[bool]) -> Vec<String> {
        graph.values().iter().zip(chosen).filter(|(_, c)| **c).map(|(v, _)| v.name.to_string()).collect()
    }

    #[test]
    fn what_a_layer_saves_is_chosen_but_not_statistics() {
        let graph = graph();
        assert_eq!(names(&graph, &offloaded_values(&graph, 0)), [""; 0]);
        // The reshaped norm is a view: its base goes.
        assert_eq!(names(&graph, &offloaded_values(&graph, 1)), ["layers.0.norm", "layers.0.up", "layers.0.act"]);
        assert_eq!(offloaded_values(&graph, 2).iter().filter(|&&c| c).count(), 6);
    }

    #[test]
    fn values_leave_at_once_and_come_back_when_asked_for() {
        let graph = graph();
        let away = offload(&graph, &offloaded_values(&graph, 1)).unwrap();
        let order = order(&away).unwrap();
        let at =
            |name: &str| order.iter().position(|&id| *away.node(id).name == *name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(at("layers.0.up.to_host"), at("layers.0.up") + 1);
        assert!(at("layers.0.up.from_host") > at("layers.1.up.grad"), "{away}");
        assert_eq!(away.value(away.find("layers.0.up.to_host").unwrap()).space, Space::Host);
        // The product's gradient reads the fetched norm through the view that the product itself read.
        assert!(at("layers.0.rows.back") == at("layers.0.norm.from_host") + 1);
        assert_ne!(away.fingerprint(), graph.fingerprint());
    }
}
