//! The order in which a phase runs its nodes.
//!
//! Forward nodes keep the order they were built in. A gradient node runs as soon as what it reads is there, so a loss
//! computed in chunks is differentiated chunk by chunk and only one chunk of logits exists at a time. An update runs
//! before further gradients, so a gradient that nothing else needs is freed at once. A recomputed node runs only when
//! something asks for it.
//!
//! Of a graph with few nodes all orders can be searched, and the one with the lowest peak is taken (`exact`).

mod exact;

use super::PlanError;
use super::sketch::{AliasSketch, Flow, Sketch};
use crate::graph::{AliasKind, Target};
use crate::graph::{Graph, NodeId, Role};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub(super) use exact::{is_small, lowest_order};

/// The order by the rules above.
pub fn order(graph: &Graph) -> Result<Vec<NodeId>, PlanError> {
    order_of(&Sketch::of(graph, &Target::cpu(1), |_| 0))
}

pub(super) fn order_of(flow: &impl Flow) -> Result<Vec<NodeId>, PlanError> {
    let mut scheduler = Scheduler::new(flow);
    for id in flow.ids().filter(|&id| flow.role(id) == Role::Forward) {
        scheduler.run_ready();
        scheduler.emit(id);
    }
    scheduler.run_ready();
    match scheduler.order.len() == flow.ids().count() {
        true => Ok(scheduler.order),
        false => Err(PlanError::Broken("nodes of a graph wait for each other".into())),
    }
}

/// For every node those that belong to it, one after the other.
struct Lists {
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

    fn range(&self, owner: NodeId) -> std::ops::Range<usize> {
        self.starts[owner.index()] as usize..self.starts[owner.index() + 1] as usize
    }
}

/// (producer, reader) of everything that a node reads from another.
fn reads(flow: &impl Flow) -> Vec<(NodeId, NodeId)> {
    let of_node = |id: NodeId| flow.reads(id).filter_map(move |v| Some((flow.producer(v)?, id)));
    flow.ids().flat_map(of_node).collect()
}

/// (reader, writer): whoever reads a value (or a view of it) that is overwritten in place runs before the overwriter.
fn overwrites(flow: &impl Flow) -> Vec<(NodeId, NodeId)> {
    let must = |a: &&AliasSketch| a.kind == AliasKind::Must;
    let mut writers_of: Vec<SmallList> = vec![SmallList::new(); flow.value_bound()];
    for writer in flow.ids() {
        let overwritten = flow.about(writer).aliases.iter().filter(must).filter_map(|a| flow.read(writer, a.input));
        overwritten.for_each(|value| writers_of[flow.viewed(value).index()].push(writer));
    }
    let mut pairs = Vec::new();
    for reader in flow.ids() {
        for input in flow.reads(reader) {
            let writers = &writers_of[flow.viewed(input).index()];
            pairs.extend(writers.iter().filter(|&&writer| writer != reader).map(|&writer| (reader, writer)));
        }
    }
    pairs
}

type SmallList = smallvec::SmallVec<[NodeId; 2]>;

struct Scheduler<'f, F> {
    flow: &'f F,
    order: Vec<NodeId>,
    emitted: Vec<bool>,
    /// Inputs of each node that are not available yet. A recomputed value is available once it could be computed.
    missing: Vec<u32>,
    readers: Lists,
    /// Readers of an old version that must have run before its overwriter does, and the reverse.
    blockers: Vec<u32>,
    blocks: Lists,
    ready: BinaryHeap<Reverse<(bool, NodeId)>>,
}

impl<'f, F: Flow> Scheduler<'f, F> {
    fn new(flow: &'f F) -> Self {
        let n = flow.node_bound();
        let (reads, overwrites) = (reads(flow), overwrites(flow));
        let (mut missing, mut blockers) = (vec![0; n], vec![0; n]);
        reads.iter().for_each(|(_, reader)| missing[reader.index()] += 1);
        overwrites.iter().for_each(|(_, writer)| blockers[writer.index()] += 1);
        let mut scheduler = Scheduler {
            flow,
            order: Vec::with_capacity(n),
            emitted: vec![false; n],
            missing,
            readers: Lists::new(n, &reads),
            blockers,
            blocks: Lists::new(n, &overwrites),
            ready: BinaryHeap::new(),
        };
        let ready: Vec<NodeId> = flow.ids().filter(|id| scheduler.missing[id.index()] == 0).collect();
        ready.into_iter().for_each(|id| scheduler.offer(id));
        scheduler
    }

    /// Called when all inputs of `id` are available.
    fn offer(&mut self, id: NodeId) {
        match self.flow.role(id) {
            Role::Forward => {}
            Role::Recompute => self.announce(id),
            role if self.blockers[id.index()] == 0 => self.ready.push(Reverse((role != Role::Update, id))),
            _ => {}
        }
    }

    /// The outputs of `id` are available from now on.
    fn announce(&mut self, id: NodeId) {
        for at in self.readers.range(id) {
            let reader = self.readers.items[at];
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
        let flow = self.flow;
        for producer in flow.reads(id).filter_map(|v| flow.producer(v)) {
            if flow.role(producer) == Role::Recompute {
                self.emit(producer);
            }
        }
        self.order.push(id);
        if flow.role(id) != Role::Recompute {
            self.announce(id);
        }
        for at in self.blocks.range(id) {
            let writer = self.blocks.items[at];
            self.blockers[writer.index()] -= 1;
            if self.blockers[writer.index()] == 0 && self.missing[writer.index()] == 0 {
                self.offer(writer);
            }
        }
    }
}
