//! A sketch of which some nodes run again, as it is: nothing is copied, for a search looks at thousands of choices.

use crate::graph::{NodeId, Role, ValueId};
use crate::plan::cost::NodeTimes;
use crate::plan::sketch::{Flow, NodeSketch, Sketch, ValueSketch};

/// The double of a node has its number and one more for every node there is; its results likewise.
pub(super) struct Doubled<'s> {
    sketch: &'s Sketch,
    again: &'s [bool],
    /// What runs again, each after what it reads; and by node, whether it does.
    doubles: Vec<NodeId>,
    runs: Vec<bool>,
    /// By value, what is read in its place after the forward pass: its double, if the node that computes it runs again.
    late: Vec<ValueId>,
}

impl<'s> Doubled<'s> {
    /// `again`: by node, whether it runs again for the backward pass, if that reads it. What is overwritten in place is
    /// computed once.
    pub(super) fn new(sketch: &'s Sketch, again: &'s [bool]) -> Doubled<'s> {
        debug_assert!(std::iter::zip(again, &sketch.links.is_overwritten).all(|(again, is)| !(again & is)));
        let (doubles, runs) = (Vec::new(), vec![false; sketch.nodes.len()]);
        let mut doubled = Doubled { sketch, again, doubles, runs, late: late_reads(sketch, again) };
        for id in sketch.node_ids() {
            if doubled.is_late(id) {
                doubled.add_read(id);
            }
        }
        doubled
    }

    /// Adds what a node of the backward pass reads and runs again.
    fn add_read(&mut self, id: NodeId) {
        let sketch = self.sketch;
        for &value in &sketch.node(id).inputs {
            let Some(producer) = sketch.producer(value).filter(|_| self.runs_again(value)) else { continue };
            if !std::mem::replace(&mut self.runs[producer.index()], true) {
                self.add_read(producer);
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
        self.runs[id.index()]
    }

    /// Whether it runs after the forward pass.
    fn is_late(&self, id: NodeId) -> bool {
        self.sketch.role(id) != Role::Forward
    }

    fn runs_again(&self, value: ValueId) -> bool {
        self.late[value.index()] != value
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
        double_in(self.sketch, value)
    }

    fn double_of(&self, id: NodeId) -> NodeId {
        NodeId(id.0 + self.sketch.nodes.len() as u32)
    }
}

fn double_in(sketch: &Sketch, value: ValueId) -> ValueId {
    ValueId(value.0 + sketch.values.len() as u32)
}

fn late_reads(sketch: &Sketch, again: &[bool]) -> Vec<ValueId> {
    let mut late: Vec<ValueId> = (0..sketch.values.len() as u32).map(ValueId).collect();
    for id in sketch.node_ids().filter(|id| again[id.index()]) {
        sketch.node(id).outputs.iter().for_each(|&value| late[value.index()] = double_in(sketch, value));
    }
    late
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
            (of, false) => self.sketch.role(of),
            _ => Role::Recompute,
        }
    }

    fn reads(&self, id: NodeId) -> impl Iterator<Item = ValueId> + Clone {
        let (of, is_double) = self.of_node(id);
        let node = self.sketch.node(of);
        let late = (is_double || self.is_late(of)).then_some(&*self.late);
        node.inputs.iter().map(move |&value| late.map_or(value, |late| late[value.index()]))
    }

    fn writes(&self, id: NodeId) -> impl Iterator<Item = ValueId> + Clone {
        let (of, is_double) = self.of_node(id);
        let write = move |&value: &ValueId| if is_double { self.double(value) } else { value };
        self.sketch.node(of).outputs.iter().map(write)
    }

    fn about(&self, id: NodeId) -> &NodeSketch {
        self.sketch.node(self.of_node(id).0)
    }

    /// A double reads as often as the node itself, be it of doubles.
    fn missing(&self) -> Vec<u32> {
        let reads = &self.sketch.links.reads;
        reads.iter().chain(reads).copied().collect()
    }

    fn blockers(&self) -> Vec<u32> {
        let mut blockers = self.sketch.links.blockers.clone();
        let writers = self.doubles.iter().flat_map(|&id| self.sketch.links.overwriters.of(id));
        writers.for_each(|writer| blockers[writer.index()] += 1);
        blockers.resize(self.node_bound(), 0);
        blockers
    }

    fn each_asked(&self, id: NodeId, mut call: impl FnMut(NodeId)) {
        let (of, is_double) = self.of_node(id);
        if !is_double && !self.is_late(of) {
            return self.sketch.each_asked(of, call);
        }
        for &value in &self.sketch.node(of).inputs {
            match self.sketch.producer(value) {
                Some(producer) if self.runs_again(value) => call(self.double_of(producer)),
                Some(producer) if self.sketch.role(producer) == Role::Recompute => call(producer),
                _ => {}
            }
        }
    }

    /// What runs after the forward pass reads the double of what runs again, as other doubles do; the forward pass the node
    /// itself.
    fn each_reader(&self, id: NodeId, mut call: impl FnMut(NodeId)) {
        let (of, is_double) = self.of_node(id);
        let runs_again = self.again[of.index()];
        for &reader in self.sketch.links.readers.of(of) {
            if is_double == (runs_again && self.is_late(reader)) {
                call(reader);
            }
            if is_double == runs_again && self.runs(reader) {
                call(self.double_of(reader));
            }
        }
    }

    /// What is overwritten has no double: its readers read what they do without any.
    fn overwriters(&self, id: NodeId) -> &[NodeId] {
        self.sketch.links.overwriters.of(self.of_node(id).0)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Graph, Target};
    use crate::ops::{Accumulate, Activate, Activation, SampleRng};
    use crate::plan::Profile;
    use crate::plan::layout::ordered;
    use crate::plan::lifetimes::live_bytes_in;
    use crate::plan::order::{is_small, order_of};
    use crate::plan::recompute::exact::mark_views;
    use crate::plan::recompute::{recompute, sketch_again, uses};
    use crate::plan::testing::{layers, with_gradients};

    /// With a sum that is added to in place.
    fn graph() -> Graph {
        let (mut graph, loss) = layers(6, 2);
        let total = graph.scalar("total").unwrap();
        graph.add("total.add", Accumulate, &[loss, total]).unwrap();
        with_gradients(graph, loss)
    }

    /// A value that something is added to in place would come to something else the second time.
    #[test]
    fn what_is_overwritten_is_computed_once() {
        let (mut graph, loss) = layers(2, 2);
        let sum = graph.apply("sum", Activate(Activation::Gelu), &[loss]).unwrap();
        graph.add("sum.add", Accumulate, &[loss, sum]).unwrap();
        let sketch = Sketch::of(&graph, &Target::CUDA, |_| 0);
        let once: Vec<NodeId> = sketch.node_ids().filter(|&id| !sketch.may_run_twice(id)).collect();
        assert_eq!(once.iter().map(|&id| graph.node(id).name.to_string()).collect::<Vec<_>>(), ["sum", "sum.add"]);
    }

    /// Whatever runs again: as the graph that is built with it, in order, bytes and seconds.
    #[test]
    fn a_double_is_as_if_it_were_built() {
        let (graph, mut rng) = (graph(), SampleRng::new(5));
        let (target, profile) = (Target::CUDA, Profile::cpu(1));
        let (sketch, times) = Sketch::timed(&graph, &target, &profile);
        assert!(!is_small(&sketch), "{} nodes: the order of fewer is searched", sketch.nodes.len());
        let forward = |id: NodeId| sketch.node(id).role == Role::Forward && !sketch.node(id).overwrites();
        for share in 0..40 {
            let mut again: Vec<bool> = sketch.node_ids().map(|id| forward(id) && rng.size(0, 39) < share).collect();
            mark_views(&sketch, &mut again);
            let doubled = Doubled::new(&sketch, &again);
            let order = order_of(&doubled).unwrap();
            let built = sketch_again(&sketch, &uses(&sketch, &again));
            let (of_built, lives) = ordered(&built, true).unwrap();
            let which = |id: &NodeId| (doubled.about(*id).outputs[0], doubled.role(*id) == Role::Recompute);
            let uses = uses(&sketch, &again);
            let of_use = |id: &NodeId| (sketch.node(uses[id.index()].node).outputs[0], uses[id.index()].again);
            assert_eq!(order.iter().map(which).collect::<Vec<_>>(), of_built.iter().map(of_use).collect::<Vec<_>>());
            for sharing in [true, false] {
                let alone = live_bytes_in(&doubled, &order, sharing).unwrap();
                assert_eq!(alone, ordered(&built, sharing).unwrap().1.live_bytes(sharing));
            }
            assert_eq!(order.len(), lives.workspaces.len());
            let seconds = |graph: &Graph| Sketch::timed(graph, &target, &profile).1.seconds().iter().sum::<f64>();
            let extra = seconds(&recompute(&graph, &again).unwrap()) - seconds(&graph);
            // The same numbers, added in another order.
            assert!((doubled.extra_seconds(&times) - extra).abs() <= 1e-9 * seconds(&graph), "{share}");
        }
    }
}
