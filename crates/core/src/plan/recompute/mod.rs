//! Recompute: a value that the backward pass reads is computed again there instead of being kept since the forward
//! pass. Ops are deterministic and random masks are functions of their place, so the bits are the same.

mod cut;
mod doubled;
mod exact;
mod flow;
mod ladder;
mod selection;

pub use ladder::{Ladder, Rung};
pub use selection::{Part, Recompute, recomputed_nodes};

use super::PlanError;
use super::sketch::{Flow, NodeSketch, Origin, Sketch};
use crate::graph::Target;
use crate::graph::{Graph, NodeId, Outputs, Role, ValueId};
use smallvec::SmallVec;

/// The graph in which the nodes marked in `again` are repeated for the backward pass.
pub fn recompute(graph: &Graph, again: &[bool]) -> Result<Graph, PlanError> {
    let sketch = Sketch::of(graph, &Target::cpu(1), |_| 0);
    let mut to = graph.empty_copy();
    let mut names = Names::new(graph.values().len());
    for id in graph.value_ids() {
        if let Some(copy) = to.input_again(graph.value(id))? {
            names.kept[id.index()] = copy;
        }
    }
    for Use { node: id, again, inputs } in uses(&sketch, again) {
        let node = graph.node(id);
        let inputs: SmallVec<[ValueId; 4]> = inputs.iter().map(|&read| names.get(read)).collect();
        let outputs = match again {
            true => to.push_again(node, &format!("{}.again", node.name), Role::Recompute, &inputs)?,
            false => to.push_again(node, &node.name, node.role, &inputs)?,
        };
        for (&old, &new) in node.outputs.iter().zip(&outputs) {
            to.set_component(new, graph.value(old).component);
            names.set(old, again, new);
        }
    }
    graph.kept().iter().for_each(|value| to.keep(names.kept[value.index()]));
    // A program checks its graphs; of those that are only compared, tests have all checked.
    if cfg!(debug_assertions) {
        to.verify()?;
    }
    Ok(to)
}

/// The same on a sketch.
fn sketch_again(sketch: &Sketch, uses: &[Use]) -> Sketch {
    let (mut nodes, mut values) = (Vec::with_capacity(uses.len()), Vec::with_capacity(sketch.values.len()));
    let mut names = Names::new(sketch.values.len());
    for (index, value) in sketch.values.iter().enumerate().filter(|(_, v)| !matches!(v.origin, Origin::Node(_))) {
        names.kept[index] = ValueId(values.len() as u32);
        values.push(*value);
    }
    for &Use { node: id, again, ref inputs } in uses {
        let (node, new) = (sketch.node(id), NodeId(nodes.len() as u32));
        let outputs: Outputs = (0..node.outputs.len()).map(|i| ValueId((values.len() + i) as u32)).collect();
        for (&old, &value) in node.outputs.iter().zip(&outputs) {
            values.push(super::sketch::ValueSketch { origin: Origin::Node(new), ..sketch.values[old.index()] });
            names.set(old, again, value);
        }
        let inputs = inputs.iter().map(|&read| names.get(read)).collect();
        let role = if again { Role::Recompute } else { node.role };
        nodes.push(NodeSketch { role, inputs, outputs, aliases: node.aliases.clone(), ..*node });
    }
    let kept = sketch.kept.iter().map(|value| names.kept[value.index()]).collect();
    Sketch::new(nodes, values, kept)
}

/// A value of the old graph as it is read: kept since the forward pass, or computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Read {
    value: ValueId,
    again: bool,
}

/// One node of the new graph.
struct Use {
    node: NodeId,
    again: bool,
    inputs: SmallVec<[Read; 4]>,
}

/// Old values → their values in the new graph, and → their recomputed doubles.
struct Names {
    kept: Vec<ValueId>,
    redone: Vec<ValueId>,
}

impl Names {
    fn new(values: usize) -> Names {
        Names { kept: vec![ValueId(u32::MAX); values], redone: vec![ValueId(u32::MAX); values] }
    }

    fn get(&self, read: Read) -> ValueId {
        if read.again { self.redone[read.value.index()] } else { self.kept[read.value.index()] }
    }

    fn set(&mut self, old: ValueId, again: bool, new: ValueId) {
        let to = if again { &mut self.redone } else { &mut self.kept };
        to[old.index()] = new;
    }
}

/// The nodes of the new graph: each double just before the first node that reads it.
fn uses(sketch: &Sketch, again: &[bool]) -> Vec<Use> {
    let mut pass = Pass { sketch, again, done: vec![false; sketch.nodes.len()], uses: Vec::new() };
    for id in sketch.node_ids() {
        let node = sketch.node(id);
        let inputs = match node.role {
            Role::Forward => node.inputs.iter().map(|&value| Read { value, again: false }).collect(),
            _ => pass.reads(id),
        };
        pass.uses.push(Use { node: id, again: false, inputs });
    }
    pass.uses
}

struct Pass<'s> {
    sketch: &'s Sketch,
    again: &'s [bool],
    /// Nodes that have their double.
    done: Vec<bool>,
    uses: Vec<Use>,
}

impl Pass<'_> {
    /// What a node of the backward pass reads, after adding the doubles among it.
    fn reads(&mut self, id: NodeId) -> SmallVec<[Read; 4]> {
        let sketch = self.sketch;
        let mut reads = SmallVec::with_capacity(sketch.node(id).inputs.len());
        for &value in &sketch.node(id).inputs {
            let producer = sketch.producer(value).filter(|p| self.again[p.index()]);
            if let Some(producer) = producer.filter(|p| !self.done[p.index()]) {
                self.done[producer.index()] = true;
                let inputs = self.reads(producer);
                self.uses.push(Use { node: producer, again: true, inputs });
            }
            reads.push(Read { value, again: producer.is_some() });
        }
        reads
    }
}
