//! Runs a verified layout on the processor. Everything a step needs is prepared here; a step allocates nothing.

use super::arena::Arena;
use super::{CpuIo, Element, Tensor};
use crate::graph::{DType, InputKind, OpRef, ValueId};
use crate::plan::{Layout, Program, Slot};
use std::collections::HashMap;
use std::io;

/// A program with an arena, ready to run.
pub struct CpuExecutor {
    arena: Arena,
    phases: Vec<Compiled>,
    residents: HashMap<String, (Slot, DType, usize)>,
    poison: bool,
}

struct Compiled {
    launches: Vec<Launch>,
    inputs: HashMap<String, Tensor>,
    outputs: HashMap<String, Tensor>,
}

/// One node with the addresses of all it touches.
struct Launch {
    op: OpRef,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
    workspace: Slot,
    /// Slots that nobody reads after this tick.
    dying: Vec<Slot>,
}

// SAFETY: the pointers lead into `arena`, which moves along with them.
unsafe impl Send for CpuExecutor {}

impl CpuExecutor {
    /// Takes the arena. The layout was verified when it was made or read.
    pub fn new(program: &Program, layout: &Layout) -> io::Result<CpuExecutor> {
        let arena = Arena::new(layout.arena_bytes)?;
        let phases = (0..program.phases.len()).map(|i| compile(program, layout, i, arena.base())).collect();
        let slots = program.residents.iter().zip(&layout.residents);
        let residents = slots.map(|(r, &slot)| (r.name.clone(), (slot, r.ty.dtype, r.ty.elements()))).collect();
        Ok(CpuExecutor { arena, phases, residents, poison: false })
    }

    /// From now on a slot is filled with NaN patterns as soon as it is dead. For tests: a stale read shows.
    pub fn poison_dead_slots(&mut self) {
        self.poison = true;
    }

    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Runs all nodes of a phase in order. Inputs have been written since its last run.
    pub fn run(&mut self, phase: usize) {
        for launch in &self.phases[phase].launches {
            let workspace = self.arena.base().wrapping_add(launch.workspace.offset);
            launch.op.op().cpu(&CpuIo {
                inputs: &launch.inputs,
                outputs: &launch.outputs,
                workspace,
                workspace_bytes: launch.workspace.bytes,
            });
            if self.poison {
                launch.dying.iter().for_each(|slot| self.fill(*slot, 0xFF));
            }
        }
    }

    /// The same, with the seconds each node took: for profiles.
    pub fn run_timed(&mut self, phase: usize, mut report: impl FnMut(usize, std::time::Duration)) {
        for (tick, launch) in self.phases[phase].launches.iter().enumerate() {
            let start = std::time::Instant::now();
            let workspace = self.arena.base().wrapping_add(launch.workspace.offset);
            let (inputs, outputs) = (&launch.inputs[..], &launch.outputs[..]);
            launch.op.op().cpu(&CpuIo { inputs, outputs, workspace, workspace_bytes: launch.workspace.bytes });
            report(tick, start.elapsed());
        }
    }

    fn fill(&self, slot: Slot, byte: u8) {
        // SAFETY: slots lie inside the arena, and no kernel is running.
        unsafe { std::ptr::write_bytes(self.arena.base().add(slot.offset), byte, slot.bytes) };
    }

    /// An input of a phase, for the host to fill.
    pub fn input_mut<T: Element>(&mut self, phase: usize, name: &str) -> Option<&mut [T]> {
        let tensor = self.phases[phase].inputs.get(name).filter(|t| t.ty.dtype == T::DTYPE)?;
        // SAFETY: the slot holds these elements, and `&mut self` keeps the executor from running.
        Some(unsafe { std::slice::from_raw_parts_mut(tensor.ptr.cast(), tensor.ty.elements()) })
    }

    /// A value that the graph keeps for the host, after the phase has run.
    pub fn output<T: Element>(&self, phase: usize, name: &str) -> Option<&[T]> {
        let tensor = self.phases[phase].outputs.get(name).filter(|t| t.ty.dtype == T::DTYPE && t.ty.is_contiguous())?;
        // SAFETY: as above, read only.
        Some(unsafe { std::slice::from_raw_parts(tensor.ptr.cast(), tensor.ty.elements()) })
    }

    /// What lives over phases: weights, moments, metrics, scalars.
    pub fn resident<T: Element>(&self, name: &str) -> Option<&[T]> {
        let &(slot, _, elements) = self.residents.get(name).filter(|r| r.1 == T::DTYPE)?;
        // SAFETY: the slot holds these elements.
        Some(unsafe { std::slice::from_raw_parts(self.arena.base().add(slot.offset).cast(), elements) })
    }

    pub fn resident_mut<T: Element>(&mut self, name: &str) -> Option<&mut [T]> {
        let &(slot, _, elements) = self.residents.get(name).filter(|r| r.1 == T::DTYPE)?;
        // SAFETY: the slot holds these elements, and `&mut self` keeps the executor from running.
        Some(unsafe { std::slice::from_raw_parts_mut(self.arena.base().add(slot.offset).cast(), elements) })
    }
}

fn compile(program: &Program, layout: &Layout, phase: usize, base: *mut u8) -> Compiled {
    let (graph, plan) = (&program.phases[phase].graph, &layout.phases[phase]);
    let tensor = |id: ValueId| Tensor { ptr: base.wrapping_add(layout.address(phase, id)), ty: graph.ty(id).clone() };
    let mut dying: Vec<Vec<Slot>> = vec![Vec::new(); plan.order.len()];
    let last_tick = plan.order.len().saturating_sub(1);
    plan.buffers.iter().filter(|b| b.last < last_tick).for_each(|b| dying[b.last].push(b.slot));
    let launches = plan.order.iter().zip(dying).map(|(&id, dying)| {
        let node = graph.node(id);
        let workspace = plan.workspaces[id.index()].map_or(Slot { offset: 0, bytes: 0 }, |b| plan.buffers[b].slot);
        Launch {
            op: node.op.clone(),
            inputs: node.inputs.iter().map(|&v| tensor(v)).collect(),
            outputs: node.outputs.iter().map(|&v| tensor(v)).collect(),
            workspace,
            dying,
        }
    });
    let launches = launches.collect();
    let named = |id: ValueId| (graph.value(id).name.clone(), tensor(id));
    let is_data = |id: &ValueId| matches!(graph.value(*id).input, Some(InputKind::Data));
    Compiled {
        launches,
        inputs: graph.value_ids().filter(is_data).map(named).collect(),
        outputs: graph.kept().iter().map(|&id| named(id)).collect(),
    }
}
