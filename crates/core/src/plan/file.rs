//! plan.json: a layout by stable names, so that a later run uses the very same one.

use super::{Buffer, Layout, LayoutOptions, Owner, PhaseLayout, Place, PlanError, Program, Slot, Storage};
use crate::graph::{Backend, Target};
use crate::graph::{Component, Graph, NodeId, Space, ValueId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum PlanFileError {
    #[error("the plan is for another {0}")]
    Another(String),
    #[error("the plan names {0}, which is not in the graph")]
    Unknown(String),
    #[error("the plan is not sound: {0}")]
    Unsound(#[from] PlanError),
}

/// The part of plan.json that the executor needs. Decisions and the recipe's hash stand beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    pub arena_bytes: usize,
    pub resident_bytes: usize,
    pub live_peak_bytes: usize,
    /// The host's region; absent where nothing is kept there.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub host_bytes: usize,
    #[serde(skip_serializing_if = "is_zero", default)]
    pub host_resident_bytes: usize,
    #[serde(rename = "processor")]
    pub backend: Backend,
    pub threads: usize,
    pub sharing: bool,
    /// Name → (offset, bytes).
    pub residents: BTreeMap<String, (usize, usize)>,
    pub phases: Vec<PhaseFile>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseFile {
    pub name: String,
    pub fingerprint: String,
    pub live_bytes: usize,
    pub peak_tick: usize,
    pub order: Vec<String>,
    pub buffers: Vec<BufferFile>,
    /// Value → (buffer, bytes into it), for everything that is not a resident.
    pub values: BTreeMap<String, (usize, usize)>,
    /// Value → (resident, bytes into it).
    pub in_residents: BTreeMap<String, (String, usize)>,
    /// Node → its workspace's buffer.
    pub workspaces: BTreeMap<String, usize>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferFile {
    pub offset: usize,
    pub bytes: usize,
    pub first: usize,
    pub last: usize,
    pub component: Component,
    #[serde(skip_serializing_if = "is_on_device", default)]
    pub space: Space,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub workspace_of: Option<String>,
}

fn is_zero(bytes: &usize) -> bool {
    *bytes == 0
}

fn is_on_device(space: &Space) -> bool {
    *space == Space::Device
}

impl PlanFile {
    pub fn new(program: &Program, layout: &Layout, options: LayoutOptions) -> PlanFile {
        let residents = program.residents.iter().zip(&layout.residents);
        let phases = program.phases.iter().zip(&layout.phases);
        PlanFile {
            arena_bytes: layout.arena_bytes,
            resident_bytes: layout.resident_bytes,
            live_peak_bytes: layout.live_peak_bytes,
            host_bytes: layout.host_bytes,
            host_resident_bytes: layout.host_resident_bytes,
            backend: options.target.backend,
            threads: options.target.threads,
            sharing: options.sharing,
            residents: residents.map(|(r, slot)| (r.name.clone(), (slot.offset, slot.bytes))).collect(),
            phases: phases.map(|(phase, plan)| phase_file(program, &phase.name, &phase.graph, plan)).collect(),
        }
    }

    pub fn options(&self) -> LayoutOptions {
        LayoutOptions { target: Target { backend: self.backend, threads: self.threads }, sharing: self.sharing }
    }

    /// The layout for a program built anew. It must be the same program, and the layout is verified again.
    pub fn layout(&self, program: &Program) -> Result<Layout, PlanFileError> {
        if self.phases.len() != program.phases.len() || self.residents.len() != program.residents.len() {
            return Err(PlanFileError::Another("program".into()));
        }
        let slot = |r: &super::Resident| match self.residents.get(&r.name) {
            Some(&(offset, bytes)) => Ok(Slot { offset, bytes }),
            None => Err(PlanFileError::Another(format!("program: it has no {}", r.name))),
        };
        let residents = program.residents.iter().map(slot).collect::<Result<Vec<_>, _>>()?;
        let mut phases = Vec::new();
        for (file, phase) in self.phases.iter().zip(&program.phases) {
            if file.name != phase.name || file.fingerprint != phase.graph.fingerprint() {
                return Err(PlanFileError::Another(format!("graph of phase {}", phase.name)));
            }
            phases.push(file.layout(program, &phase.graph)?);
        }
        let layout = Layout {
            residents,
            phases,
            resident_bytes: self.resident_bytes,
            arena_bytes: self.arena_bytes,
            live_peak_bytes: self.live_peak_bytes,
            host_bytes: self.host_bytes,
            host_resident_bytes: self.host_resident_bytes,
        };
        self.check_sizes(program, &layout)?;
        super::verify(program, &layout, self.options())?;
        Ok(layout)
    }

    fn check_sizes(&self, program: &Program, layout: &Layout) -> Result<(), PlanFileError> {
        let in_order = |space: Space| {
            let residents = program.residents.iter().zip(&layout.residents).filter(|(r, _)| r.space == space);
            let slots: Vec<&Slot> = residents.map(|(_, slot)| slot).collect();
            slots.windows(2).all(|w| w[0].offset.saturating_add(w[0].bytes) <= w[1].offset)
        };
        let sound = layout.resident_bytes <= layout.live_peak_bytes
            && layout.live_peak_bytes <= layout.arena_bytes
            && layout.arena_bytes <= isize::MAX as usize
            && layout.host_bytes <= isize::MAX as usize
            && Space::ALL.into_iter().all(in_order);
        match sound {
            true => Ok(()),
            false => Err(PlanError::Broken("its sizes contradict each other".into()).into()),
        }
    }
}

fn phase_file(program: &Program, name: &str, graph: &Graph, plan: &PhaseLayout) -> PhaseFile {
    let (mut values, mut in_residents) = (BTreeMap::new(), BTreeMap::new());
    for id in graph.value_ids() {
        let (name, place) = (graph.value(id).name.to_string(), plan.places[id.index()]);
        match place.storage {
            Storage::Buffer(buffer) => drop(values.insert(name, (buffer, place.offset))),
            Storage::Resident(index) => {
                in_residents.insert(name, (program.residents[index].name.clone(), place.offset));
            }
        }
    }
    let workspace = |id: NodeId| plan.workspaces[id.index()].map(|b| (graph.node(id).name.to_string(), b));
    PhaseFile {
        name: name.into(),
        fingerprint: graph.fingerprint(),
        live_bytes: plan.live_bytes,
        peak_tick: plan.peak_tick,
        order: plan.order.iter().map(|&id| graph.node(id).name.to_string()).collect(),
        buffers: plan.buffers.iter().map(|b| buffer_file(graph, b)).collect(),
        values,
        in_residents,
        workspaces: graph.node_ids().filter_map(workspace).collect(),
    }
}

fn buffer_file(graph: &Graph, buffer: &Buffer) -> BufferFile {
    let (value, workspace_of) = match buffer.owner {
        Owner::Value(id) => (Some(graph.value(id).name.to_string()), None),
        Owner::Workspace(id) => (None, Some(graph.node(id).name.to_string())),
    };
    let Slot { offset, bytes } = buffer.slot;
    BufferFile {
        offset,
        bytes,
        first: buffer.first,
        last: buffer.last,
        component: buffer.component,
        space: buffer.space,
        value,
        workspace_of,
    }
}

impl PhaseFile {
    fn layout(&self, program: &Program, graph: &Graph) -> Result<PhaseLayout, PlanFileError> {
        let nodes: HashMap<&str, NodeId> = graph.node_ids().map(|id| (&*graph.node(id).name, id)).collect();
        let values: HashMap<&str, ValueId> = graph.value_ids().map(|id| (&*graph.value(id).name, id)).collect();
        let node = |name: &str| nodes.get(name).copied().ok_or_else(|| PlanFileError::Unknown(name.into()));
        let owner = |b: &BufferFile| match (&b.value, &b.workspace_of) {
            (Some(name), None) => values.get(name.as_str()).map(|&id| Owner::Value(id)),
            (None, Some(name)) => nodes.get(name.as_str()).map(|&id| Owner::Workspace(id)),
            _ => None,
        };
        let mut buffers = Vec::with_capacity(self.buffers.len());
        for b in &self.buffers {
            let owner = owner(b).ok_or_else(|| PlanFileError::Unknown("a buffer of nobody".into()))?;
            let slot = Slot { offset: b.offset, bytes: b.bytes };
            let BufferFile { first, last, component, space, .. } = *b;
            buffers.push(Buffer { owner, slot, first, last, component, space });
        }
        let mut workspaces = vec![None; graph.nodes().len()];
        for (name, &buffer) in &self.workspaces {
            workspaces[node(name)?.index()] = Some(buffer);
        }
        let places =
            graph.value_ids().map(|id| self.place(program, &graph.value(id).name)).collect::<Result<_, _>>()?;
        let order = self.order.iter().map(|name| node(name)).collect::<Result<_, _>>()?;
        Ok(PhaseLayout { order, buffers, places, workspaces, live_bytes: self.live_bytes, peak_tick: self.peak_tick })
    }

    fn place(&self, program: &Program, name: &str) -> Result<Place, PlanFileError> {
        let unknown = || PlanFileError::Another(format!("graph: it does not place {name}"));
        if let Some(&(buffer, offset)) = self.values.get(name) {
            let known = buffer < self.buffers.len();
            return known.then_some(Place { storage: Storage::Buffer(buffer), offset }).ok_or_else(unknown);
        }
        let (resident, offset) = self.in_residents.get(name).ok_or_else(unknown)?;
        let index = program.resident(resident).ok_or_else(unknown)?;
        Ok(Place { storage: Storage::Resident(index), offset: *offset })
    }
}
