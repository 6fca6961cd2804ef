//! The order in which a phase runs its nodes.
//!
//! Forward nodes keep the order they were built in. A gradient node runs as soon as what it reads is there, so a loss
//! computed in chunks is differentiated chunk by chunk and only one chunk of logits exists at a time. An update runs
//! before further gradients, so a gradient that nothing else needs is freed at once. A recomputed node runs only when
//! something asks for it.

use super::PlanError;
use crate::graph::{Graph, NodeId, Role};
use crate::ops::AliasKind;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub fn order(graph: &Graph) -> Result<Vec<NodeId>, PlanError> {
    let mut scheduler = Scheduler::new(graph);
    for id in graph.node_ids().filter(|&id| graph.node(id).role == Role::Forward) {
        scheduler.run_ready();
        scheduler.emit(id);
    }
    scheduler.run_ready();
    match scheduler.order.len() == graph.nodes().len() {
        true => Ok(scheduler.order),
        false => Err(PlanError::Broken(format!("{}: nodes wait for each other", graph.name))),
    }
}

struct Scheduler<'g> {
    graph: &'g Graph,
    order: Vec<NodeId>,
    emitted: Vec<bool>,
    /// Inputs of each node that are not available yet. A recomputed value is available once it could be computed.
    missing: Vec<usize>,
    readers: Vec<Vec<NodeId>>,
    /// Readers of an old version that must have run before its overwriter does, and the reverse.
    blockers: Vec<usize>,
    blocks: Vec<Vec<NodeId>>,
    ready: BinaryHeap<Reverse<(bool, NodeId)>>,
}

impl<'g> Scheduler<'g> {
    fn new(graph: &'g Graph) -> Self {
        let n = graph.nodes().len();
        let mut scheduler = Scheduler {
            graph,
            order: Vec::with_capacity(n),
            emitted: vec![false; n],
            missing: vec![0; n],
            readers: vec![Vec::new(); n],
            blockers: vec![0; n],
            blocks: vec![Vec::new(); n],
            ready: BinaryHeap::new(),
        };
        scheduler.link_inputs();
        scheduler.link_overwrites();
        let ready: Vec<NodeId> = graph.node_ids().filter(|id| scheduler.missing[id.index()] == 0).collect();
        ready.into_iter().for_each(|id| scheduler.offer(id));
        scheduler
    }

    fn link_inputs(&mut self) {
        for id in self.graph.node_ids() {
            for producer in self.graph.node(id).inputs.iter().filter_map(|&v| self.graph.producer(v)) {
                self.missing[id.index()] += 1;
                self.readers[producer.index()].push(id);
            }
        }
    }

    /// Whoever reads a value (or a view of it) that is overwritten in place has to run before the overwriter.
    fn link_overwrites(&mut self) {
        let mut root: Vec<usize> = (0..self.graph.values().len()).collect();
        let mut readers_of: Vec<Vec<NodeId>> = vec![Vec::new(); self.graph.values().len()];
        let mut overwrites = Vec::new();
        for id in self.graph.node_ids() {
            let node = self.graph.node(id);
            node.inputs.iter().for_each(|v| readers_of[root[v.index()]].push(id));
            for alias in node.op.op().aliases(&self.graph.input_types(id)) {
                let input = node.inputs[alias.input];
                match alias.kind {
                    AliasKind::View { .. } => root[node.outputs[alias.output].index()] = root[input.index()],
                    AliasKind::Must => overwrites.push((id, root[input.index()])),
                    AliasKind::May => {}
                }
            }
        }
        for (writer, value) in overwrites {
            for &reader in readers_of[value].iter().filter(|&&reader| reader != writer) {
                self.blockers[writer.index()] += 1;
                self.blocks[reader.index()].push(writer);
            }
        }
    }

    /// Called when all inputs of `id` are available.
    fn offer(&mut self, id: NodeId) {
        match self.graph.node(id).role {
            Role::Forward => {}
            Role::Recompute => self.announce(id),
            role if self.blockers[id.index()] == 0 => self.ready.push(Reverse((role != Role::Update, id))),
            _ => {}
        }
    }

    /// The outputs of `id` are available from now on.
    fn announce(&mut self, id: NodeId) {
        for reader in self.readers[id.index()].clone() {
            self.missing[reader.index()] -= 1;
            if self.missing[reader.index()] == 0 {
                self.offer(reader);
            }
        }
    }

    fn run_ready(&mut self) {
        while let Some(Reverse((_, id))) = self.ready.pop() {
            self.emit(id);
        }
    }

    /// Runs `id` now, after the recomputed nodes it reads.
    fn emit(&mut self, id: NodeId) {
        if std::mem::replace(&mut self.emitted[id.index()], true) {
            return;
        }
        for producer in self.graph.node(id).inputs.iter().filter_map(|&v| self.graph.producer(v)) {
            if self.graph.node(producer).role == Role::Recompute {
                self.emit(producer);
            }
        }
        self.order.push(id);
        if self.graph.node(id).role != Role::Recompute {
            self.announce(id);
        }
        for writer in std::mem::take(&mut self.blocks[id.index()]) {
            self.blockers[writer.index()] -= 1;
            if self.blockers[writer.index()] == 0 && self.missing[writer.index()] == 0 {
                self.offer(writer);
            }
        }
    }
}
