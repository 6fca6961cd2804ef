//! The independent check of a layout. It shares no code with what made it: it walks every phase in order, keeps a map
//! of which value owns which bytes of which memory, and refuses any read of bytes that someone else has written since.

use super::{ALIGN, Layout, LayoutOptions, PlanError, Program, Slot};
use crate::graph::AliasKind;
use crate::graph::{Graph, InputKind, NodeId, Source, Space, Value, ValueId};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

pub fn verify(program: &Program, layout: &Layout, options: LayoutOptions) -> Result<(), PlanError> {
    let slots = program.residents.len() == layout.residents.len() && program.phases.len() == layout.phases.len();
    if !slots {
        return Err(PlanError::Broken("the layout is for another program".into()));
    }
    for phase in 0..program.phases.len() {
        let graph = &program.phases[phase].graph;
        let complete = layout.phases[phase].places.len() == graph.values().len()
            && layout.phases[phase].workspaces.len() == graph.nodes().len();
        if !complete {
            return Err(PlanError::Broken(format!("{}: the layout is for another graph", graph.name)));
        }
        let walk = Walk {
            program,
            layout,
            options,
            phase,
            graph,
            owners: Default::default(),
            roots: vec![None; graph.values().len()],
            versions: FxHashMap::default(),
        };
        walk.run()?;
    }
    super::accounts::check(program, layout)
}

/// Bytes of one memory, from `start` to one before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    space: Space,
    start: usize,
    end: usize,
}

impl Stretch {
    fn overlaps(&self, other: &Stretch) -> bool {
        let (a, b) = (self, other);
        a.space == b.space && a.start < b.end && b.start < a.end && a.start < a.end && b.start < b.end
    }
}

/// Who wrote a stretch last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Writer {
    Resident(usize),
    Value(ValueId),
    Workspace(NodeId),
}

struct Walk<'p> {
    program: &'p Program,
    layout: &'p Layout,
    options: LayoutOptions,
    phase: usize,
    graph: &'p Graph,
    /// Of each memory, start → (end, writer); stretches do not overlap.
    owners: [BTreeMap<usize, (usize, Writer)>; Space::ALL.len()],
    /// By value, whose write is read there: of a view, that of the value it is a view of. None before it is written.
    roots: Vec<Option<Writer>>,
    /// Who writes the next version of a resident: an update in place of the one before.
    versions: FxHashMap<Writer, usize>,
}

impl Walk<'_> {
    fn run(mut self) -> Result<(), PlanError> {
        self.place_residents()?;
        self.write_inputs()?;
        let order = &self.layout.phases[self.phase].order;
        let mut done = vec![false; self.graph.nodes().len()];
        for &id in order {
            if id.index() >= done.len() || std::mem::replace(&mut done[id.index()], true) {
                return self.broken("the order names a node twice or a node that is not there");
            }
            self.step(id)?;
        }
        if done.contains(&false) {
            return self.broken("the order leaves nodes out");
        }
        for &value in self.graph.kept() {
            self.check_intact(value, "the host")?;
        }
        self.check_residents()
    }

    fn broken<T>(&self, what: &str) -> Result<T, PlanError> {
        Err(PlanError::Broken(format!("phase {}: {what}", self.program.phases[self.phase].name)))
    }

    fn place_residents(&mut self) -> Result<(), PlanError> {
        for (index, slot) in self.layout.residents.iter().enumerate() {
            let resident = &self.program.residents[index];
            if slot.offset % ALIGN != 0 || slot.bytes < resident.ty.span_bytes() {
                return self.broken(&format!("resident {} has a bad slot", resident.name));
            }
            let space = resident.space;
            let range = Stretch { space, start: slot.offset, end: slot.offset.saturating_add(slot.bytes) };
            let room = self.layout.bases()[space as usize].min(self.layout.ends()[space as usize]);
            if range.end > room || self.is_taken(range) {
                return self.broken(&format!("resident {} overlaps another", resident.name));
            }
            self.take(range, Writer::Resident(index));
        }
        Ok(())
    }

    fn write_inputs(&mut self) -> Result<(), PlanError> {
        for id in self.graph.value_ids() {
            let value = self.graph.value(id);
            if value.source != Source::Input {
                continue;
            }
            if let Some(InputKind::Data) = value.input {
                let range = self.range(id)?;
                if range.start % ALIGN != 0 || self.is_taken(range) {
                    return self.broken(&format!("input {} overlaps another", value.name));
                }
                self.write(id, range);
            } else {
                self.bind_resident(id, value)?;
            }
        }
        Ok(())
    }

    fn bind_resident(&mut self, id: ValueId, value: &Value) -> Result<(), PlanError> {
        let index = self.program.resident(&value.name);
        let Some(index) = index.filter(|&i| self.layout.residents[i].offset == self.layout.address(self.phase, id))
        else {
            return self.broken(&format!("{} is not where its resident is", value.name));
        };
        self.roots[id.index()] = Some(Writer::Resident(index));
        Ok(())
    }

    /// One node: its inputs are intact, and its outputs destroy nothing it still reads.
    fn step(&mut self, id: NodeId) -> Result<(), PlanError> {
        let node = self.graph.node(id);
        for &input in &node.inputs {
            self.check_intact(input, &node.name)?;
        }
        let aliases = node.op.op().aliases(&self.graph.input_types(id));
        let mut written: Vec<Stretch> = Vec::new();
        for (index, &output) in node.outputs.iter().enumerate() {
            let range = self.range(output)?;
            let same_start =
                |input: usize, skip: usize| self.layout.address(self.phase, node.inputs[input]) + skip == range.start;
            let fixed = aliases.iter().find(|a| a.output == index && a.kind != AliasKind::May);
            match fixed.map(|a| (a.kind, a.input)) {
                Some((AliasKind::View { offset }, input)) => {
                    if !same_start(input, offset * self.graph.ty(output).dtype.bytes()) {
                        return self.broken(&format!("{} is not inside what it is a view of", node.name));
                    }
                    self.roots[output.index()] = self.roots[node.inputs[input].index()];
                    continue;
                }
                Some((_, input)) if !same_start(input, 0) => {
                    return self.broken(&format!("{} is not over what it updates", node.name));
                }
                Some((_, input)) => self.note_version(node.inputs[input], output),
                None => {}
            }
            for &input in &node.inputs {
                let allowed = aliases.iter().any(|a| {
                    a.output == index && node.inputs[a.input] == input && !matches!(a.kind, AliasKind::View { .. })
                }) && self.range(input)?.start == range.start;
                if range.overlaps(&self.range(input)?) && !allowed {
                    return self.broken(&format!("{} overwrites its own input", node.name));
                }
            }
            let aligned = fixed.is_some() || range.start % ALIGN == 0;
            if !aligned || written.iter().any(|other| range.overlaps(other)) {
                return self.broken(&format!("outputs of {} overlap or are not aligned", node.name));
            }
            written.push(range);
        }
        self.check_workspace(id, &written)?;
        for &output in &node.outputs {
            if self.roots[output.index()].is_none() {
                let range = self.range(output)?;
                self.write(output, range);
            }
        }
        Ok(())
    }

    fn check_workspace(&mut self, id: NodeId, written: &[Stretch]) -> Result<(), PlanError> {
        let node = self.graph.node(id);
        let needed = node.op.op().workspace(&self.graph.input_types(id), &self.options.target);
        let buffer = self.layout.phases[self.phase].workspaces[id.index()];
        let slot = buffer.and_then(|b| self.layout.phases[self.phase].buffers.get(b)).map(|b| b.slot);
        let Some(slot) = slot else {
            return if needed == 0 { Ok(()) } else { self.broken(&format!("{} has no workspace", node.name)) };
        };
        let range = Stretch { space: Space::Device, start: slot.offset, end: slot.offset.saturating_add(slot.bytes) };
        if slot.bytes < needed || range.end > self.layout.arena_bytes || slot.offset % ALIGN != 0 {
            return self.broken(&format!("the workspace of {} is too small or not aligned", node.name));
        }
        let mut touched = written.to_vec();
        for &input in &node.inputs {
            touched.push(self.range(input)?);
        }
        if touched.iter().any(|other| range.overlaps(other)) {
            return self.broken(&format!("the workspace of {} overlaps what it reads or writes", node.name));
        }
        self.take(range, Writer::Workspace(id));
        Ok(())
    }

    /// The bytes a value spans, inside its memory.
    fn range(&self, id: ValueId) -> Result<Stretch, PlanError> {
        let (start, space) = (self.layout.address(self.phase, id), self.graph.value(id).space);
        let end = start.checked_add(self.graph.ty(id).span_bytes());
        match end.filter(|&end| end <= self.layout.ends()[space as usize]) {
            Some(end) => Ok(Stretch { space, start, end }),
            None => self.broken(&format!("{} lies outside its memory", self.graph.value(id).name)),
        }
    }

    fn write(&mut self, id: ValueId, range: Stretch) {
        self.take(range, Writer::Value(id));
        self.roots[id.index()] = Some(Writer::Value(id));
    }

    fn check_intact(&self, id: ValueId, reader: &str) -> Result<(), PlanError> {
        let range = self.range(id)?;
        let intact = self.roots[id.index()].is_some_and(|root| {
            let mut at = range.start;
            while at < range.end {
                match self.owners[range.space as usize].range(..=at).next_back() {
                    Some((_, &(end, writer))) if end > at && writer == root => at = end,
                    _ => return false,
                }
            }
            true
        });
        match intact {
            true => Ok(()),
            false => self.broken(&format!("{reader} reads {} after it was lost", self.graph.value(id).name)),
        }
    }

    fn is_taken(&self, range: Stretch) -> bool {
        let owners = &self.owners[range.space as usize];
        owners.range(..range.end).next_back().is_some_and(|(_, &(end, _))| end > range.start)
    }

    /// `writer` owns `range` from now on; what others owned there is cut away.
    fn take(&mut self, range: Stretch, writer: Writer) {
        if range.start >= range.end {
            return;
        }
        let owners = &mut self.owners[range.space as usize];
        while let Some((&start, &(end, owner))) =
            owners.range(..range.end).next_back().filter(|(_, o)| o.0 > range.start)
        {
            owners.remove(&start);
            if start < range.start {
                owners.insert(start, (range.start, owner));
            }
            if end > range.end {
                owners.insert(range.end, (end, owner));
            }
        }
        owners.insert(range.start, (range.end, writer));
    }

    /// If `input` is a resident or a version of one, `output` is its next version.
    fn note_version(&mut self, input: ValueId, output: ValueId) {
        let before = self.roots[input.index()];
        let resident = before.and_then(|writer| match writer {
            Writer::Resident(index) => Some(index),
            _ => self.versions.get(&writer).copied(),
        });
        if let Some(index) = resident {
            self.versions.insert(Writer::Value(output), index);
        }
    }

    /// After the phase every resident holds one of its own versions.
    fn check_residents(&self) -> Result<(), PlanError> {
        Space::ALL.iter().try_for_each(|&space| self.check_residents_in(space))
    }

    fn check_residents_in(&self, space: Space) -> Result<(), PlanError> {
        let residents = self.program.residents.iter().zip(&self.layout.residents).enumerate();
        let mut there: Vec<(usize, Slot)> = residents
            .filter(|(_, (r, slot))| r.space == space && slot.bytes > 0)
            .map(|(i, (_, &slot))| (i, slot))
            .collect();
        there.sort_by_key(|(_, slot)| slot.offset);
        for (&start, &(end, writer)) in &self.owners[space as usize] {
            let touched = there.partition_point(|(_, slot)| slot.offset + slot.bytes <= start);
            let Some(&(index, slot)) = there.get(touched).filter(|(_, slot)| slot.offset < end) else { continue };
            let own = writer == Writer::Resident(index) || self.versions.get(&writer) == Some(&index);
            if !own || end > slot.offset + slot.bytes {
                return self.broken(&format!("{} is overwritten by a temporary", self.program.residents[index].name));
            }
        }
        Ok(())
    }
}
