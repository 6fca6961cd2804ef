//! A sketch of which some nodes run again, as it is: nothing is copied, for a search looks at thousands of choices.

use crate::graph::{NodeId, Role, ValueId};
use crate::plan::cost::NodeTimes;
use crate::plan::sketch::{Flow, NodeSketch, Sketch, ValueSketch};

/// The double of a node has its number and one more for every node there is; its results likewise.
pub(super) struct Doubled<'s> {
    sketch: &'s Sketch,
    again: &'s [bool],
    /// What runs again, each after what it reads.
    doubles: Vec<NodeId>,
}

impl<'s> Doubled<'s> {
    /// `again`: by node, whether it runs again for the backward pass, if that reads it.
    pub(super) fn new(sketch: &'s Sketch, again: &'s [bool]) -> Doubled<'s> {
        let mut doubled = Doubled { sketch, again, doubles: Vec::new() };
        let mut done = vec![false; sketch.nodes.len()];
        for id in sketch.node_ids().filter(|&id| sketch.node(id).role != Role::Forward) {
            doubled.add_read(id, &mut done);
        }
        doubled
    }

    /// Adds what a node of the backward pass reads and runs again.
    fn add_read(&mut self, id: NodeId, done: &mut [bool]) {
        let sketch = self.sketch;
        for producer in sketch.node(id).inputs.iter().filter_map(|&value| sketch.producer(value)) {
            if self.again[producer.index()] && !std::mem::replace(&mut done[producer.index()], true) {
                self.add_read(producer, done);
                self.doubles.push(producer);
            }
        }
    }

    /// Seconds of what runs again.
    pub(super) fn extra_seconds(&self, times: &NodeTimes) -> f64 {
        let seconds = |&id: &NodeId| {
            let inputs = &self.sketch.node(id).inputs;
            times.again(id, |at| !self.runs_again(inputs[at]))
        };
        self.doubles.iter().map(seconds).sum()
    }

    /// Whether this node has a double.
    pub(super) fn runs(&self, id: NodeId) -> bool {
        self.doubles.contains(&id)
    }

    fn runs_again(&self, value: ValueId) -> bool {
        self.sketch.producer(value).is_some_and(|producer| self.again[producer.index()])
    }

    /// The node itself, and whether this is its double.
    fn of_node(&self, id: NodeId) -> (NodeId, bool) {
        let nodes = self.sketch.nodes.len() as u32;
        if id.0 < nodes { (id, false) } else { (NodeId(id.0 - nodes), true) }
    }

    fn of_value(&self, value: ValueId) -> (ValueId, bool) {
        let values = self.sketch.values.len() as u32;
        if value.0 < values { (value, false) } else { (ValueId(value.0 - values), true) }
    }

    fn double(&self, value: ValueId) -> ValueId {
        ValueId(value.0 + self.sketch.values.len() as u32)
    }

    fn double_of(&self, id: NodeId) -> NodeId {
        NodeId(id.0 + self.sketch.nodes.len() as u32)
    }
}

impl Flow for Doubled<'_> {
    fn node_bound(&self) -> usize {
        2 * self.sketch.nodes.len()
    }

    fn value_bound(&self) -> usize {
        2 * self.sketch.values.len()
    }

    fn ids(&self) -> impl Iterator<Item = NodeId> {
        self.sketch.node_ids().chain(self.doubles.iter().map(|&id| self.double_of(id)))
    }

    fn given(&self) -> impl Iterator<Item = ValueId> {
        self.sketch.given()
    }

    fn kept(&self) -> &[ValueId] {
        &self.sketch.kept
    }

    fn role(&self, id: NodeId) -> Role {
        match self.of_node(id) {
            (of, false) => self.sketch.node(of).role,
            _ => Role::Recompute,
        }
    }

    fn reads(&self, id: NodeId) -> impl Iterator<Item = ValueId> + Clone {
        let (of, is_double) = self.of_node(id);
        let node = self.sketch.node(of);
        let is_late = is_double || node.role != Role::Forward;
        let read = move |&value: &ValueId| if is_late && self.runs_again(value) { self.double(value) } else { value };
        node.inputs.iter().map(read)
    }

    fn writes(&self, id: NodeId) -> impl Iterator<Item = ValueId> + Clone {
        let (of, is_double) = self.of_node(id);
        let write = move |&value: &ValueId| if is_double { self.double(value) } else { value };
        self.sketch.node(of).outputs.iter().map(write)
    }

    fn about(&self, id: NodeId) -> &NodeSketch {
        self.sketch.node(self.of_node(id).0)
    }

    fn value(&self, value: ValueId) -> &ValueSketch {
        self.sketch.value(self.of_value(value).0)
    }

    fn producer(&self, value: ValueId) -> Option<NodeId> {
        let (of, is_double) = self.of_value(value);
        let producer = self.sketch.producer(of)?;
        Some(if is_double { self.double_of(producer) } else { producer })
    }
}
