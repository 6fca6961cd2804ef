//! Gradients as a graph pass: walk the forward nodes backwards and let each op add the nodes of its gradient. What has
//! to be saved for the backward pass falls out of which forward values those nodes read.

use crate::graph::Vjp;
use crate::graph::{Component, Graph, GraphError, Node, NodeId, OpRef, Role, ValueId};
use crate::ops::{Binary, Copy};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// For each node that goes forward there is room for so many that go back; where there are more, it grows.
const BACKWARD_NODES: usize = 2;

/// Adds the gradient of `loss`, multiplied by the value `seed`, with respect to each of `wrt`. `None` where the loss
/// does not depend on it.
pub fn gradients(
    graph: &mut Graph,
    loss: ValueId,
    seed: ValueId,
    wrt: &[ValueId],
) -> Result<Vec<Option<ValueId>>, GraphError> {
    gradients_from(graph, &[(loss, seed)], wrt)
}

/// The same where the gradient of some loss with respect to several values is known already: `seeds` are pairs of such
/// a value and its gradient. None of these values depends on another.
pub fn gradients_from(
    graph: &mut Graph,
    seeds: &[(ValueId, ValueId)],
    wrt: &[ValueId],
) -> Result<Vec<Option<ValueId>>, GraphError> {
    let dependent = dependent_values(graph, wrt);
    let mut grads = Grads::new(graph, seeds);
    let nodes = graph.node_ids().collect::<Vec<_>>();
    graph.expect(BACKWARD_NODES * nodes.len(), BACKWARD_NODES * nodes.len());
    let found = graph.with_role(Role::Backward, |graph| {
        for &id in nodes.iter().rev() {
            let wanted: SmallVec<[bool; 8]> = graph.node(id).inputs.iter().map(|v| dependent[v.index()]).collect();
            if !wanted.contains(&true) {
                continue;
            }
            let Node { op, inputs: reads, outputs, .. } = graph.node(id);
            let (op, reads, results) = (op.clone(), reads.clone(), outputs.clone());
            let second = match op.op().adds_gradients() && !wrt.contains(&results[0]) {
                true => grads.take_second(graph, results[0]),
                false => None,
            };
            let outputs = results.iter().map(|&v| grads.total(graph, v)).collect::<Result<SmallVec<_>, _>>()?;
            if outputs.iter().all(Option::is_none) {
                continue;
            }
            let OpRef::Forward(op) = &op else {
                let name = &graph.node(id).name;
                return Err(GraphError::Broken(format!("{name} has no gradient, but the loss depends on it")));
            };
            let first_new = graph.nodes().len();
            let mut cx = Vjp { graph, node: id, grads: outputs, second, wanted: wanted.clone() };
            let inputs = op.vjp(&mut cx)?;
            grads.own_new(graph, first_new, &inputs);
            for ((&input, grad), wanted) in reads.iter().zip(inputs).zip(wanted) {
                if let (Some(grad), true) = (grad, wanted) {
                    grads.add(graph, input, grad)?;
                }
            }
        }
        let parameter = |&value: &ValueId| match grads.total(graph, value)? {
            Some(grad) => parameter_gradient(graph, value, grad).map(Some),
            None => Ok(None),
        };
        wrt.iter().map(parameter).collect()
    })?;
    delay_unseeded(graph, seeds, nodes.len());
    Ok(found)
}

/// Which values depend on one of `wrt`.
fn dependent_values(graph: &Graph, wrt: &[ValueId]) -> Vec<bool> {
    let mut dependent = vec![false; graph.values().len()];
    wrt.iter().for_each(|v| dependent[v.index()] = true);
    for node in graph.nodes() {
        if node.inputs.iter().any(|v| dependent[v.index()]) {
            node.outputs.iter().for_each(|v| dependent[v.index()] = true);
        }
    }
    dependent
}

/// Gradients found so far.
struct Grads {
    /// What came back to a value, as sums of parts that are ready equally early.
    parts: FxHashMap<ValueId, SmallVec<[ValueId; 2]>>,
    totals: FxHashMap<ValueId, ValueId>,
    /// Parts and sums that nothing else reads: they can be added to in place.
    own: FxHashSet<ValueId>,
    /// By value: how many forward nodes have run when it can be computed.
    ready: Vec<usize>,
    counted: usize,
}

impl Grads {
    fn new(graph: &Graph, seeds: &[(ValueId, ValueId)]) -> Grads {
        let totals = seeds.iter().copied().collect();
        let own = FxHashSet::default();
        let mut grads = Grads { parts: FxHashMap::default(), totals, own, ready: Vec::new(), counted: 0 };
        grads.count_new_nodes(graph);
        grads
    }

    fn count_new_nodes(&mut self, graph: &Graph) {
        // Nodes that were counted may have got outputs since: these are ready when their others are.
        for value in graph.value_ids().skip(self.ready.len()) {
            let counted = graph.producer(value).filter(|id| id.index() < self.counted);
            self.ready.push(counted.map_or(0, |id| self.ready[graph.node(id).outputs[0].index()]));
        }
        for (index, node) in graph.nodes().iter().enumerate().skip(self.counted) {
            let own = if node.role == Role::Forward { index + 1 } else { 0 };
            let ready = node.inputs.iter().map(|v| self.ready[v.index()]).fold(own, usize::max);
            node.outputs.iter().for_each(|v| self.ready[v.index()] = ready);
        }
        self.counted = graph.nodes().len();
    }

    /// Notes which of a node's gradients were computed just now and for one input only. A view is not its own.
    fn own_new(&mut self, graph: &Graph, first_new: usize, grads: &[Option<ValueId>]) {
        for &grad in grads.iter().flatten() {
            let once = grads.iter().filter(|&&other| other == Some(grad)).count() == 1;
            let read = graph.nodes()[first_new..].iter().any(|node| node.inputs.contains(&grad));
            let made = |id: NodeId| id.index() >= first_new && !graph.is_view(id);
            if once && !read && graph.producer(grad).is_some_and(made) {
                self.own.insert(grad);
            }
        }
    }

    /// A value read in several places gets the sum of what comes back from them. Parts that are ready at the same time
    /// are added as they are visited.
    fn add(&mut self, graph: &mut Graph, value: ValueId, grad: ValueId) -> Result<(), GraphError> {
        label(graph, value, grad);
        self.count_new_nodes(graph);
        let parts = self.parts.get(&value).map_or(&[][..], SmallVec::as_slice);
        let last = parts.last().copied().filter(|_| parts.len() > 1 || !stays_in_parts(graph, value));
        let joined = match last.filter(|last| self.ready[last.index()] == self.ready[grad.index()]) {
            Some(last) => Some(self.sum(graph, value, last, grad)?),
            None => None,
        };
        let parts = self.parts.entry(value).or_default();
        if joined.is_some() {
            parts.pop();
        }
        parts.push(joined.unwrap_or(grad));
        Ok(())
    }

    /// The whole gradient of a value. Parts that are ready earlier (of a loss in chunks) are added first, so that the
    /// rest of the forward pass carries one sum and not every part.
    fn total(&mut self, graph: &mut Graph, value: ValueId) -> Result<Option<ValueId>, GraphError> {
        if let Some(mut parts) = self.parts.remove(&value) {
            self.count_new_nodes(graph);
            parts.sort_by_key(|part| self.ready[part.index()]);
            let mut total = parts[0];
            for &part in &parts[1..] {
                total = self.sum(graph, value, total, part)?;
            }
            // From here on others read it, and may hand it on as it is.
            self.own.remove(&total);
            self.totals.insert(value, total);
        }
        Ok(self.totals.get(&value).copied())
    }

    /// The second of two parts that are whole values of the same type, for an op that adds them itself.
    fn take_second(&mut self, graph: &Graph, value: ValueId) -> Option<ValueId> {
        let parts = self.parts.get_mut(&value).filter(|parts| parts.len() == 2)?;
        if graph.ty(parts[0]) != graph.ty(parts[1]) || !graph.ty(parts[0]).is_contiguous() {
            return None;
        }
        let second = parts.pop()?;
        self.own.remove(&second);
        Some(second)
    }

    /// `a + b`: computed by the node of `b`, on top of `a`, where its op can do that and both are ours alone.
    fn sum(&mut self, graph: &mut Graph, value: ValueId, a: ValueId, b: ValueId) -> Result<ValueId, GraphError> {
        if self.own.contains(&a) && self.own.contains(&b) && graph.add_into(b, a) {
            return Ok(b);
        }
        for (part, addend) in [(b, a), (a, b)] {
            if self.own.contains(&part) && graph.add_within(part, addend) {
                return Ok(part);
            }
        }
        let name = format!("{}.grad.sum", graph.value(value).name);
        let sum = graph.add(&name, Binary::ADD, &[a, b])?[0];
        label(graph, value, sum);
        self.own.insert(sum);
        Ok(sum)
    }
}

/// Whether the op that computes a value adds two parts of its gradient itself.
fn stays_in_parts(graph: &Graph, value: ValueId) -> bool {
    graph.producer(value).is_some_and(|id| {
        let node = graph.node(id);
        node.outputs[0] == value && node.op.op().adds_gradients()
    })
}

/// The gradient of attention scores counts as such in the breakdown.
fn label(graph: &mut Graph, value: ValueId, grad: ValueId) {
    if graph.value(value).component == Component::AttentionScores {
        graph.set_component(grad, Component::AttentionScores);
    }
}

/// A gradient node that reads forward values only could run during the forward pass, and its result would then be kept
/// (or what it reads be recomputed) far too early. Like a recomputed node it runs when its first reader asks for it.
fn delay_unseeded(graph: &mut Graph, seeds: &[(ValueId, ValueId)], first_new: usize) {
    let mut seeded = vec![false; graph.values().len()];
    let mut is_read = vec![false; graph.values().len()];
    seeds.iter().for_each(|(_, seed)| seeded[seed.index()] = true);
    for node in graph.nodes() {
        let depends = node.inputs.iter().any(|v| seeded[v.index()]);
        node.outputs.iter().for_each(|v| seeded[v.index()] |= depends);
        node.inputs.iter().for_each(|v| is_read[v.index()] = true);
    }
    let new: Vec<NodeId> = graph.node_ids().skip(first_new).collect();
    for id in new {
        let outputs = &graph.node(id).outputs;
        // What nobody reads would never be asked for.
        if outputs.iter().all(|v| !seeded[v.index()]) && outputs.iter().any(|v| is_read[v.index()]) {
            graph.set_role(id, Role::Recompute);
        }
    }
}

/// Updates read gradients row-major, and count as gradients in the breakdown.
fn parameter_gradient(graph: &mut Graph, parameter: ValueId, grad: ValueId) -> Result<ValueId, GraphError> {
    let grad = match graph.ty(grad).is_contiguous() {
        true => grad,
        false => {
            let name = format!("{}.grad", graph.value(parameter).name);
            graph.add(&name, Copy, &[grad])?[0]
        }
    };
    graph.set_component(grad, Component::Gradients);
    Ok(grad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Init;
    use crate::ops::{Activate, Activation, CrossEntropy, MatMul, Slice};
    use crate::plan::{Recompute, order, recompute, recomputed_nodes};
    use crate::types::{DType, Type};

    fn position(graph: &Graph, name: &str) -> usize {
        let found = order(graph).unwrap().iter().position(|&id| *graph.node(id).name == *name);
        found.unwrap_or_else(|| panic!("no {name} in\n{graph}"))
    }

    fn cross_entropy(graph: &mut Graph, logits: ValueId, rows: Slice) -> ValueId {
        let targets = graph.data("targets", Type::new(DType::I32, &[6])).unwrap();
        let weights = graph.data("weights", Type::new(DType::F32, &[6])).unwrap();
        let [targets, weights] = [targets, weights].map(|v| graph.apply("rows", rows.clone(), &[v]).unwrap());
        graph.apply("loss", CrossEntropy, &[logits, targets, weights]).unwrap()
    }

    /// The product's gradient transposes its left side, which needs no gradient: that must not pull the recomputed
    /// value into the forward pass.
    #[test]
    fn nothing_is_recomputed_before_the_loss() {
        let mut graph = Graph::new("test", DType::F32);
        let x = graph.data("x", Type::new(DType::F32, &[6, 6])).unwrap();
        let w = graph.parameter("w", &[6, 6], Init::Ones, true).unwrap();
        let logits = graph.layer("layers.0", |graph| {
            let up = graph.apply("up", MatMul::PLAIN, &[x, w]).unwrap();
            let act = graph.apply("act", Activate(Activation::Gelu), &[up]).unwrap();
            graph.apply("square", MatMul::PLAIN, &[act, up]).unwrap()
        });
        let loss = cross_entropy(&mut graph, logits, Slice { axis: 0, start: 0, len: 6 });
        let seed = graph.scalar("seed").unwrap();
        gradients(&mut graph, loss, seed, &[w]).unwrap();
        let graph = recompute(&graph, &recomputed_nodes(&graph, &Recompute::Layers)).unwrap();
        assert!(position(&graph, "layers.0.act.again") > position(&graph, "loss"));
    }

    /// Of a weight used twice, the second product adds to the first. What came back to something else as well, or is a
    /// view of it, stays as it is.
    #[test]
    fn a_tied_weight_has_one_gradient_added_to_in_place() {
        let mut graph = Graph::new("test", DType::F32);
        let x = graph.data("x", Type::new(DType::F32, &[6, 6])).unwrap();
        let w = graph.parameter("w", &[6, 6], Init::Ones, true).unwrap();
        let once = graph.apply("once", MatMul::TRANSPOSED, &[x, w]).unwrap();
        let twice = graph.apply("twice", MatMul::TRANSPOSED, &[once, w]).unwrap();
        let shifted = graph.apply("shifted", Binary::ADD, &[twice, w]).unwrap();
        let loss = cross_entropy(&mut graph, shifted, Slice { axis: 0, start: 0, len: 6 });
        let seed = graph.scalar("seed").unwrap();
        gradients(&mut graph, loss, seed, &[w]).unwrap();
        // shifted gives w what it gives to the product too; then twice and once.
        let sums = graph.nodes().iter().filter(|n| n.name.starts_with("w.grad.sum")).count();
        let in_place = graph.nodes().iter().filter(|n| format!("{:?}", n.op.op()).contains("accumulate: true")).count();
        assert_eq!((sums, in_place), (1, 1), "{graph}");
        graph.verify().unwrap();
    }

    #[test]
    fn gradients_of_chunks_are_added_as_they_come() {
        let mut graph = Graph::new("test", DType::F32);
        let x = graph.data("x", Type::new(DType::F32, &[6, 4])).unwrap();
        let w = graph.parameter("w", &[3, 4], Init::Ones, true).unwrap();
        let mut total = None;
        for start in [0, 2, 4] {
            let rows = Slice { axis: 0, start, len: 2 };
            let part = graph.apply("part", rows.clone(), &[x]).unwrap();
            let logits = graph.apply("logits", MatMul::TRANSPOSED, &[part, w]).unwrap();
            let loss = cross_entropy(&mut graph, logits, rows);
            total = Some(match total {
                None => loss,
                Some(before) => graph.apply("total", Binary::ADD, &[before, loss]).unwrap(),
            });
        }
        let seed = graph.scalar("seed").unwrap();
        gradients(&mut graph, total.unwrap(), seed, &[w]).unwrap();
        assert!(position(&graph, "w.grad.sum") < position(&graph, "logits#3"));
    }
}
