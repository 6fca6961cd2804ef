//! Which nodes wait for which: found once for a sketch, for orders are looked for thousands of times. What they ask for at
//! every step lies close together.

use super::sketch::{AliasSketch, NodeSketch, ValueSketch};
use crate::graph::{AliasKind, NodeId, Role, ValueId};
use smallvec::SmallVec;

#[derive(Clone, Debug)]
pub(super) struct Links {
    /// Those that read what a node computes, once for each time they do.
    pub readers: Lists,
    /// By node, how often it reads what another computes.
    pub reads: Vec<u32>,
    /// Those that overwrite in place what a node reads (or a view of it): it runs before they do.
    pub overwriters: Lists,
    /// By node, how many it has to wait for to overwrite something.
    pub blockers: Vec<u32>,
    /// By node, whether something that it computes is overwritten.
    pub is_overwritten: Vec<bool>,
    /// By node.
    pub roles: Vec<Role>,
    /// By value, the node that computes it.
    pub producers: Vec<Option<NodeId>>,
}

impl Links {
    /// `roots`: by value, the one that it is a view of.
    pub(super) fn of(nodes: &[NodeSketch], values: &[ValueSketch], roots: &[ValueId]) -> Links {
        let (reading, overwriting) = (reading(nodes, values), overwriting(nodes, roots));
        let (mut reads, mut blockers) = (vec![0; nodes.len()], vec![0; nodes.len()]);
        let mut is_overwritten = vec![false; nodes.len()];
        reading.iter().for_each(|(_, reader)| reads[reader.index()] += 1);
        overwriting.iter().for_each(|(_, writer)| blockers[writer.index()] += 1);
        let overwritten = nodes.iter().flat_map(|node| overwritten_by(node, roots));
        overwritten
            .filter_map(|value| values[value.index()].producer())
            .for_each(|id| is_overwritten[id.index()] = true);
        Links {
            readers: Lists::new(nodes.len(), &reading),
            reads,
            overwriters: Lists::new(nodes.len(), &overwriting),
            blockers,
            is_overwritten,
            roles: nodes.iter().map(|node| node.role).collect(),
            producers: values.iter().map(ValueSketch::producer).collect(),
        }
    }
}

/// For every node those that belong to it, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    starts: Vec<u32>,
    items: Vec<NodeId>,
}

impl Lists {
    /// From (owner, item) pairs; the items of an owner keep their order.
    fn new(owners: usize, pairs: &[(NodeId, NodeId)]) -> Lists {
        let mut starts = vec![0u32; owners + 1];
        pairs.iter().for_each(|(owner, _)| starts[owner.index() + 1] += 1);
        for i in 0..owners {
            starts[i + 1] += starts[i];
        }
        let mut next = starts.clone();
        let mut items = vec![NodeId(0); pairs.len()];
        for &(owner, item) in pairs {
            items[next[owner.index()] as usize] = item;
            next[owner.index()] += 1;
        }
        Lists { starts, items }
    }

    pub(super) fn of(&self, owner: NodeId) -> &[NodeId] {
        &self.items[self.starts[owner.index()] as usize..self.starts[owner.index() + 1] as usize]
    }
}

fn numbered(nodes: &[NodeSketch]) -> impl Iterator<Item = (NodeId, &NodeSketch)> {
    (0..).map(NodeId).zip(nodes)
}

/// (producer, reader) of everything that a node reads from another.
fn reading(nodes: &[NodeSketch], values: &[ValueSketch]) -> Vec<(NodeId, NodeId)> {
    let of_node = |(id, node)| {
        let node: &NodeSketch = node;
        node.inputs.iter().filter_map(move |&value| Some((values[value.index()].producer()?, id)))
    };
    numbered(nodes).flat_map(of_node).collect()
}

/// What a node overwrites in place.
fn overwritten_by(node: &NodeSketch, roots: &[ValueId]) -> impl Iterator<Item = ValueId> {
    let must = |alias: &&AliasSketch| alias.kind == AliasKind::Must;
    node.aliases.iter().filter(must).map(|alias| roots[node.inputs[alias.input].index()])
}

/// (reader, writer): whoever reads a value (or a view of it) that is overwritten in place runs before the overwriter.
fn overwriting(nodes: &[NodeSketch], roots: &[ValueId]) -> Vec<(NodeId, NodeId)> {
    let mut writers: Vec<SmallVec<[NodeId; 2]>> = vec![SmallVec::new(); roots.len()];
    for (id, node) in numbered(nodes) {
        overwritten_by(node, roots).for_each(|value| writers[value.index()].push(id));
    }
    let mut pairs = Vec::new();
    for (reader, node) in numbered(nodes) {
        for input in &node.inputs {
            let others = writers[roots[input.index()].index()].iter().filter(|&&writer| writer != reader);
            pairs.extend(others.map(|&writer| (reader, writer)));
        }
    }
    pairs
}
