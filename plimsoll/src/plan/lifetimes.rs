//! Which values share a buffer, and from which tick to which it is needed.

use super::layout::{Owner, Place, Storage};
use super::{PlanError, Program, aligned};
use crate::graph::{Component, Graph, InputKind, NodeId, Source, Space, ValueId};
use crate::ops::{AliasKind, Target};
use std::collections::HashMap;

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

/// Decides what shares memory (views, updates in place, and outputs that overwrite a dead input if `sharing`).
pub fn lifetimes(
    program: &Program,
    graph: &Graph,
    order: &[NodeId],
    target: &Target,
    sharing: bool,
) -> Result<Lifetimes, PlanError> {
    let residents: HashMap<&str, usize> =
        program.residents.iter().enumerate().map(|(i, r)| (r.name.as_str(), i)).collect();
    let mut pass = Pass::new(graph);
    pass.place_inputs(&residents);
    for (tick, &id) in order.iter().enumerate() {
        pass.place_outputs(id, tick);
    }
    pass.find_last_reads(order);
    if sharing {
        for (tick, &id) in order.iter().enumerate() {
            pass.overwrite_dead_inputs(id, tick);
        }
    }
    Ok(pass.finish(order, target))
}

struct Pass<'g> {
    graph: &'g Graph,
    buffers: Vec<Lifetime>,
    places: Vec<Place>,
    /// Buffers merged into an earlier one.
    merged: Vec<usize>,
}

impl<'g> Pass<'g> {
    fn new(graph: &'g Graph) -> Self {
        let nowhere = Place { storage: Storage::Buffer(usize::MAX), offset: 0 };
        Pass { graph, buffers: Vec::new(), places: vec![nowhere; graph.values().len()], merged: Vec::new() }
    }

    fn place_inputs(&mut self, residents: &HashMap<&str, usize>) {
        for id in self.graph.value_ids() {
            let value = self.graph.value(id);
            match (&value.source, &value.input) {
                (Source::Input, Some(InputKind::Data)) => self.new_buffer(id, 0),
                (Source::Input, _) => {
                    let storage = Storage::Resident(residents[value.name.as_str()]);
                    self.places[id.index()] = Place { storage, offset: 0 };
                }
                _ => {}
            }
        }
    }

    fn new_buffer(&mut self, id: ValueId, tick: usize) {
        let value = self.graph.value(id);
        self.places[id.index()] = Place { storage: Storage::Buffer(self.buffers.len()), offset: 0 };
        self.merged.push(self.buffers.len());
        self.buffers.push(Lifetime {
            owner: Owner::Value(id),
            bytes: aligned(value.ty.span_bytes()),
            first: tick,
            last: tick,
            component: value.component,
            space: value.space,
        });
    }

    /// Views and updates in place lie where their input does; other outputs start a buffer.
    fn place_outputs(&mut self, id: NodeId, tick: usize) {
        let node = self.graph.node(id);
        let aliases = node.op.op().aliases(&self.graph.input_types(id));
        for (index, &output) in node.outputs.iter().enumerate() {
            let forced = aliases.iter().find(|a| a.output == index && a.kind != AliasKind::May);
            match forced {
                None => self.new_buffer(output, tick),
                Some(alias) => {
                    let at = self.places[node.inputs[alias.input].index()];
                    let skip = match alias.kind {
                        AliasKind::View { offset } => offset * self.graph.ty(output).dtype.bytes(),
                        _ => 0,
                    };
                    self.places[output.index()] = Place { offset: at.offset + skip, ..at };
                }
            }
        }
    }

    fn find_last_reads(&mut self, order: &[NodeId]) {
        for (tick, &id) in order.iter().enumerate() {
            let node = self.graph.node(id);
            for value in node.inputs.iter().chain(&node.outputs) {
                if let Storage::Buffer(buffer) = self.places[value.index()].storage {
                    let lifetime = &mut self.buffers[buffer];
                    lifetime.last = lifetime.last.max(tick);
                }
            }
        }
        for value in self.graph.kept() {
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
        let node = self.graph.node(id);
        for alias in node.op.op().aliases(&self.graph.input_types(id)) {
            if alias.kind == AliasKind::May {
                self.try_overwrite(id, tick, node.inputs[alias.input], node.outputs[alias.output]);
            }
        }
    }

    /// Puts `output` over `input` if the input's whole buffer dies here and nothing else of this node lies in it.
    fn try_overwrite(&mut self, id: NodeId, tick: usize, input: ValueId, output: ValueId) {
        let (Some(from), Some(to)) = (self.buffer_of(input), self.buffer_of(output)) else { return };
        let node = self.graph.node(id);
        let others = node.inputs.iter().chain(&node.outputs).filter(|&&v| v != input && v != output);
        let alone = others.clone().all(|&v| self.buffer_of(v) != Some(from) && self.buffer_of(v) != Some(to));
        let whole = self.places[input.index()].offset == 0 && self.buffers[from].bytes == self.buffers[to].bytes;
        if from != to && alone && whole && self.buffers[from].last == tick {
            self.buffers[from].last = self.buffers[to].last;
            self.merged[to] = from;
        }
    }

    fn finish(self, order: &[NodeId], target: &Target) -> Lifetimes {
        let roots: Vec<usize> = (0..self.buffers.len()).map(|b| self.root(b)).collect();
        let mut index = vec![usize::MAX; self.buffers.len()];
        let mut buffers = Vec::new();
        for (old, lifetime) in self.buffers.into_iter().enumerate().filter(|(old, _)| roots[*old] == *old) {
            index[old] = buffers.len();
            buffers.push(lifetime);
        }
        let renumber = |place: Place| match place.storage {
            Storage::Buffer(old) => Place { storage: Storage::Buffer(index[roots[old]]), ..place },
            Storage::Resident(_) => place,
        };
        let places = self.places.into_iter().map(renumber).collect();
        let workspaces = add_workspaces(self.graph, order, target, &mut buffers);
        Lifetimes { buffers, places, workspaces }
    }
}

/// A workspace lives for the one tick of its node.
fn add_workspaces(graph: &Graph, order: &[NodeId], target: &Target, buffers: &mut Vec<Lifetime>) -> Vec<Option<usize>> {
    let mut workspaces = vec![None; graph.nodes().len()];
    for (tick, &id) in order.iter().enumerate() {
        let bytes = aligned(graph.node(id).op.op().workspace(&graph.input_types(id), target));
        if bytes > 0 {
            workspaces[id.index()] = Some(buffers.len());
            let (owner, component, space) = (Owner::Workspace(id), Component::Workspace, Space::Device);
            buffers.push(Lifetime { owner, bytes, first: tick, last: tick, component, space });
        }
    }
    workspaces
}
