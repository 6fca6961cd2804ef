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
use super::sketch::{Flow, Sketch};
use crate::graph::{Graph, NodeId, Role, Target};
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

struct Scheduler<'f, F> {
    flow: &'f F,
    order: Vec<NodeId>,
    emitted: Vec<bool>,
    /// Inputs of each node that are not available yet. A recomputed value is available once it could be computed.
    missing: Vec<u32>,
    /// Readers of an old version that must have run before its overwriter does.
    blockers: Vec<u32>,
    ready: BinaryHeap<Reverse<(bool, NodeId)>>,
}

impl<'f, F: Flow> Scheduler<'f, F> {
    fn new(flow: &'f F) -> Self {
        let n = flow.node_bound();
        let mut scheduler = Scheduler {
            flow,
            order: Vec::with_capacity(n),
            emitted: vec![false; n],
            missing: flow.missing(),
            blockers: flow.blockers(),
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
        let flow = self.flow;
        flow.each_reader(id, |reader| {
            self.missing[reader.index()] -= 1;
            if self.missing[reader.index()] == 0 {
                self.offer(reader);
            }
        });
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
        flow.each_asked(id, |producer| self.emit(producer));
        self.order.push(id);
        if flow.role(id) != Role::Recompute {
            self.announce(id);
        }
        for &writer in flow.overwriters(id) {
            self.blockers[writer.index()] -= 1;
            if self.blockers[writer.index()] == 0 && self.missing[writer.index()] == 0 {
                self.offer(writer);
            }
        }
    }
}
