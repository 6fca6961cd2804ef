//! Which values share a buffer, and from which tick to which it is needed.

use super::layout::{Owner, Place, Storage};
use super::sketch::{Flow, Origin};
use super::{PlanError, place};
use crate::graph::AliasKind;
use crate::graph::{Component, NodeId, Space, ValueId};

/// A stretch of memory that is needed from tick `first` to tick `last`, both included.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lifetime {
    pub owner: Owner,
    pub bytes: usize,
    pub first: usize,
    pub last: usize,
    pub component: Component,
    pub space: Space,
}

/// Everything about a phase's memory but the addresses.
pub(super) struct Lifetimes {
    pub buffers: Vec<Lifetime>,
    /// Where each value lies.
    pub places: Vec<Place>,
    /// The workspace buffer of each node.
    pub workspaces: Vec<Option<usize>>,
}

impl Lifetimes {
    /// The most bytes alive at once on the device; without sharing, those of all buffers there.
    pub(super) fn live_bytes(&self, sharing: bool) -> usize {
        live_bytes_of(&self.buffers, sharing)
    }
}

fn live_bytes_of(buffers: &[Lifetime], sharing: bool) -> usize {
    match sharing {
        true => place::device_peak(buffers).0,
        false => buffers.iter().filter(|b| b.space == Space::Device).map(|b| b.bytes).sum(),
    }
}

/// No sum of sizes below may overflow.
pub(super) fn check_total(buffers: &[Lifetime]) -> Result<(), PlanError> {
    let total = buffers.iter().try_fold(0usize, |sum, b| sum.checked_add(b.bytes));
    match total {
        Some(total) if total <= isize::MAX as usize / 4 => Ok(()),
        _ => Err(PlanError::TooLarge),
    }
}

/// Decides what shares memory (views, updates in place, and outputs that overwrite a dead input if `sharing`).
pub(super) fn lifetimes(flow: &impl Flow, order: &[NodeId], sharing: bool) -> Lifetimes {
    Pass::through(flow, order, sharing).finish(order)
}

/// Of those lifetimes the bytes alone.
pub(super) fn live_bytes_in(flow: &impl Flow, order: &[NodeId], sharing: bool) -> Result<usize, PlanError> {
    let Pass { mut buffers, merged, .. } = Pass::through(flow, order, sharing);
    let mut at = 0..;
    buffers.retain(|_| at.next().is_some_and(|at: usize| merged[at] == at));
    buffers.extend(workspaces(flow, order).map(|(_, workspace)| workspace));
    check_total(&buffers)?;
    Ok(live_bytes_of(&buffers, sharing))
}

struct Pass<'f, F> {
    flow: &'f F,
    buffers: Vec<Lifetime>,
    places: Vec<Place>,
    /// Buffers merged into an earlier one.
    merged: Vec<usize>,
}

impl<'f, F: Flow> Pass<'f, F> {
    fn through(flow: &'f F, order: &[NodeId], sharing: bool) -> Self {
        let nowhere = Place { storage: Storage::Buffer(usize::MAX), offset: 0 };
        let n = flow.value_bound();
        let mut pass =
            Pass { flow, buffers: Vec::with_capacity(n), places: vec![nowhere; n], merged: Vec::with_capacity(n) };
        pass.place_given();
        for (tick, &id) in order.iter().enumerate() {
            pass.place_outputs(id, tick);
            pass.note_use(id, tick);
        }
        pass.hold_kept(order);
        if sharing {
            for (tick, &id) in order.iter().enumerate() {
                pass.overwrite_dead_inputs(id, tick);
            }
        }
        pass
    }

    fn place_given(&mut self) {
        for id in self.flow.given() {
            match self.flow.value(id).origin {
                Origin::Resident(at) => {
                    self.places[id.index()] = Place { storage: Storage::Resident(at), offset: 0 };
                }
                _ => self.new_buffer(id, 0),
            }
        }
    }

    fn new_buffer(&mut self, id: ValueId, tick: usize) {
        let value = *self.flow.value(id);
        self.places[id.index()] = Place { storage: Storage::Buffer(self.buffers.len()), offset: 0 };
        self.merged.push(self.buffers.len());
        self.buffers.push(Lifetime {
            owner: Owner::Value(id),
            bytes: value.bytes,
            first: tick,
            last: tick,
            component: value.component,
            space: value.space,
        });
    }

    /// Views and updates in place lie where their input does; other outputs start a buffer.
    fn place_outputs(&mut self, id: NodeId, tick: usize) {
        let aliases = &self.flow.about(id).aliases;
        for (index, output) in self.flow.writes(id).enumerate() {
            let alias = aliases.iter().find(|a| a.output == index && a.kind != AliasKind::May);
            match alias.and_then(|alias| Some((alias, self.flow.read(id, alias.input)?))) {
                None => self.new_buffer(output, tick),
                Some((alias, input)) => {
                    let at = self.places[input.index()];
                    self.places[output.index()] = Place { offset: at.offset + alias.skip_bytes, ..at };
                }
            }
        }
    }

    /// What a node touches is needed until it runs, if not longer.
    fn note_use(&mut self, id: NodeId, tick: usize) {
        let flow = self.flow;
        for value in flow.reads(id).chain(flow.writes(id)) {
            if let Storage::Buffer(buffer) = self.places[value.index()].storage {
                self.buffers[buffer].last = tick;
            }
        }
    }

    /// What the host reads is needed to the end.
    fn hold_kept(&mut self, order: &[NodeId]) {
        for value in self.flow.kept() {
            if let Storage::Buffer(buffer) = self.places[value.index()].storage {
                self.buffers[buffer].last = order.len().saturating_sub(1);
            }
        }
    }

    fn root(&self, mut buffer: usize) -> usize {
        while self.merged[buffer] != buffer {
            buffer = self.merged[buffer];
        }
        buffer
    }

    fn buffer_of(&self, value: ValueId) -> Option<usize> {
        match self.places[value.index()].storage {
            Storage::Buffer(buffer) => Some(self.root(buffer)),
            Storage::Resident(_) => None,
        }
    }

    fn overwrite_dead_inputs(&mut self, id: NodeId, tick: usize) {
        let flow = self.flow;
        for alias in flow.about(id).aliases.iter().filter(|alias| alias.kind == AliasKind::May) {
            if let (Some(input), Some(output)) = (flow.read(id, alias.input), flow.writes(id).nth(alias.output)) {
                self.try_overwrite(id, tick, input, output);
            }
        }
    }

    /// Puts `output` over `input` if the input's whole buffer dies here and nothing else of this node lies in it.
    fn try_overwrite(&mut self, id: NodeId, tick: usize, input: ValueId, output: ValueId) {
        let (Some(from), Some(to)) = (self.buffer_of(input), self.buffer_of(output)) else { return };
        let whole = self.places[input.index()].offset == 0 && self.buffers[from].bytes == self.buffers[to].bytes;
        // What is soon told comes first.
        if from == to || self.buffers[from].last != tick || !whole || self.is_kept(from) {
            return;
        }
        let mut others = self.flow.reads(id).chain(self.flow.writes(id)).filter(|&v| v != input && v != output);
        if others.all(|v| self.buffer_of(v).is_none_or(|buffer| buffer != from && buffer != to)) {
            self.buffers[from].last = self.buffers[to].last;
            self.merged[to] = from;
        }
    }

    /// Whether the host reads it after the last tick.
    fn is_kept(&self, buffer: usize) -> bool {
        self.flow.kept().iter().any(|&value| self.buffer_of(value) == Some(buffer))
    }

    fn finish(self, order: &[NodeId]) -> Lifetimes {
        let roots: Vec<usize> = (0..self.buffers.len()).map(|b| self.root(b)).collect();
        let mut index = vec![usize::MAX; self.buffers.len()];
        let mut buffers = Vec::with_capacity(self.buffers.len());
        for (old, lifetime) in self.buffers.into_iter().enumerate().filter(|(old, _)| roots[*old] == *old) {
            index[old] = buffers.len();
            buffers.push(lifetime);
        }
        let renumber = |place: Place| match place.storage {
            Storage::Buffer(old) => Place { storage: Storage::Buffer(index[roots[old]]), ..place },
            Storage::Resident(_) => place,
        };
        let places = self.places.into_iter().map(renumber).collect();
        let workspaces = add_workspaces(self.flow, order, &mut buffers);
        Lifetimes { buffers, places, workspaces }
    }
}

/// A workspace lives for the one tick of its node.
fn add_workspaces(flow: &impl Flow, order: &[NodeId], buffers: &mut Vec<Lifetime>) -> Vec<Option<usize>> {
    let mut by_node = vec![None; flow.node_bound()];
    for (id, workspace) in workspaces(flow, order) {
        by_node[id.index()] = Some(buffers.len());
        buffers.push(workspace);
    }
    by_node
}

fn workspaces(flow: &impl Flow, order: &[NodeId]) -> impl Iterator<Item = (NodeId, Lifetime)> {
    let (component, space) = (Component::Workspace, Space::Device);
    let workspace = move |(tick, &id): (usize, &NodeId)| {
        let (owner, bytes) = (Owner::Workspace(id), flow.about(id).workspace_bytes);
        (bytes > 0).then_some((id, Lifetime { owner, bytes, first: tick, last: tick, component, space }))
    };
    order.iter().enumerate().filter_map(workspace)
}
