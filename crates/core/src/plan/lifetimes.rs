//! Which values share a buffer, and from which tick to which it is needed.

use super::layout::{Owner, Place, Storage};
use super::place;
use super::sketch::{Origin, Sketch};
use crate::graph::AliasKind;
use crate::graph::{Component, NodeId, Space, ValueId};

/// A stretch of memory that is needed from tick `first` to tick `last`, both included.
#[derive(Clone, Debug, PartialEq)]
pub struct Lifetime {
    pub owner: Owner,
    pub bytes: usize,
    pub first: usize,
    pub last: usize,
    pub component: Component,
    pub space: Space,
}

/// Everything about a phase's memory but the addresses.
pub struct Lifetimes {
    pub buffers: Vec<Lifetime>,
    /// Where each value lies.
    pub places: Vec<Place>,
    /// The workspace buffer of each node.
    pub workspaces: Vec<Option<usize>>,
}

impl Lifetimes {
    /// The most bytes alive at once on the device; without sharing, those of all buffers there.
    pub fn live_bytes(&self, sharing: bool) -> usize {
        match sharing {
            true => place::device_peak(&self.buffers).0,
            false => self.buffers.iter().filter(|b| b.space == Space::Device).map(|b| b.bytes).sum(),
        }
    }
}

/// Decides what shares memory (views, updates in place, and outputs that overwrite a dead input if `sharing`).
pub fn lifetimes(sketch: &Sketch, order: &[NodeId], sharing: bool) -> Lifetimes {
    let mut pass = Pass::new(sketch);
    pass.place_inputs();
    for (tick, &id) in order.iter().enumerate() {
        pass.place_outputs(id, tick);
    }
    pass.find_last_reads(order);
    if sharing {
        for (tick, &id) in order.iter().enumerate() {
            pass.overwrite_dead_inputs(id, tick);
        }
    }
    pass.finish(order)
}

struct Pass<'s> {
    sketch: &'s Sketch,
    buffers: Vec<Lifetime>,
    places: Vec<Place>,
    /// Buffers merged into an earlier one.
    merged: Vec<usize>,
}

impl<'s> Pass<'s> {
    fn new(sketch: &'s Sketch) -> Self {
        let nowhere = Place { storage: Storage::Buffer(usize::MAX), offset: 0 };
        let n = sketch.values.len();
        Pass { sketch, buffers: Vec::with_capacity(n), places: vec![nowhere; n], merged: Vec::with_capacity(n) }
    }

    fn place_inputs(&mut self) {
        for index in 0..self.sketch.values.len() {
            match self.sketch.values[index].origin {
                Origin::Data => self.new_buffer(ValueId(index as u32), 0),
                Origin::Resident(at) => self.places[index] = Place { storage: Storage::Resident(at), offset: 0 },
                Origin::Node(_) => {}
            }
        }
    }

    fn new_buffer(&mut self, id: ValueId, tick: usize) {
        let value = self.sketch.values[id.index()];
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
        let node = self.sketch.node(id);
        for (index, &output) in node.outputs.iter().enumerate() {
            match node.aliases.iter().find(|a| a.output == index && a.kind != AliasKind::May) {
                None => self.new_buffer(output, tick),
                Some(alias) => {
                    let at = self.places[node.inputs[alias.input].index()];
                    self.places[output.index()] = Place { offset: at.offset + alias.skip_bytes, ..at };
                }
            }
        }
    }

    fn find_last_reads(&mut self, order: &[NodeId]) {
        for (tick, &id) in order.iter().enumerate() {
            let node = self.sketch.node(id);
            for value in node.inputs.iter().chain(&node.outputs) {
                if let Storage::Buffer(buffer) = self.places[value.index()].storage {
                    let lifetime = &mut self.buffers[buffer];
                    lifetime.last = lifetime.last.max(tick);
                }
            }
        }
        for value in &self.sketch.kept {
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
        let node = self.sketch.node(id);
        for alias in node.aliases.iter().filter(|alias| alias.kind == AliasKind::May) {
            self.try_overwrite(id, tick, node.inputs[alias.input], node.outputs[alias.output]);
        }
    }

    /// Puts `output` over `input` if the input's whole buffer dies here and nothing else of this node lies in it.
    fn try_overwrite(&mut self, id: NodeId, tick: usize, input: ValueId, output: ValueId) {
        let (Some(from), Some(to)) = (self.buffer_of(input), self.buffer_of(output)) else { return };
        let node = self.sketch.node(id);
        let others = node.inputs.iter().chain(&node.outputs).filter(|&&v| v != input && v != output);
        let alone = others.clone().all(|&v| self.buffer_of(v) != Some(from) && self.buffer_of(v) != Some(to));
        let whole = self.places[input.index()].offset == 0 && self.buffers[from].bytes == self.buffers[to].bytes;
        if from != to && alone && whole && self.buffers[from].last == tick && !self.is_kept(from) {
            self.buffers[from].last = self.buffers[to].last;
            self.merged[to] = from;
        }
    }

    /// Whether the host reads it after the last tick.
    fn is_kept(&self, buffer: usize) -> bool {
        self.sketch.kept.iter().any(|&value| self.buffer_of(value) == Some(buffer))
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
        let workspaces = add_workspaces(self.sketch, order, &mut buffers);
        Lifetimes { buffers, places, workspaces }
    }
}

/// A workspace lives for the one tick of its node.
fn add_workspaces(sketch: &Sketch, order: &[NodeId], buffers: &mut Vec<Lifetime>) -> Vec<Option<usize>> {
    let mut workspaces = vec![None; sketch.nodes.len()];
    for (tick, &id) in order.iter().enumerate() {
        let bytes = sketch.node(id).workspace_bytes;
        if bytes > 0 {
            workspaces[id.index()] = Some(buffers.len());
            let (owner, component, space) = (Owner::Workspace(id), Component::Workspace, Space::Device);
            buffers.push(Lifetime { owner, bytes, first: tick, last: tick, component, space });
        }
    }
    workspaces
}
