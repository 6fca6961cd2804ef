//! Where a laid-out program has what its nodes read and write.

use super::launches::Touched;
use plimsoll_core::graph::{NodeId, Space, ValueId};
use plimsoll_core::kernels::cuda::DeviceTensor;
use plimsoll_core::plan::{Layout, Program, Slot};
use std::iter::once;
use std::ops::Range;

/// Where the two memories of a layout start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bases {
    pub device: u64,
    pub host: u64,
}

impl Bases {
    pub fn of(self, space: Space) -> u64 {
        match space {
            Space::Device => self.device,
            Space::Host => self.host,
        }
    }
}

/// Where a layout has what a node reads and writes.
pub(super) struct Places {
    pub inputs: Vec<DeviceTensor>,
    pub outputs: Vec<DeviceTensor>,
    pub workspace: Slot,
}

impl Places {
    pub(super) fn of(program: &Program, layout: &Layout, phase: usize, id: NodeId, bases: Bases) -> Places {
        let (graph, plan) = (&program.phases[phase].graph, &layout.phases[phase]);
        let node = graph.node(id);
        let tensors = |values: &[ValueId]| values.iter().map(|&v| tensor(program, layout, phase, v, bases)).collect();
        Places {
            inputs: tensors(&node.inputs),
            outputs: tensors(&node.outputs),
            workspace: plan.workspaces[id.index()].map_or(Slot { offset: 0, bytes: 0 }, |b| plan.buffers[b].slot),
        }
    }
}

/// Where a layout has a value.
pub(super) fn tensor(program: &Program, layout: &Layout, phase: usize, value: ValueId, bases: Bases) -> DeviceTensor {
    let graph = &program.phases[phase].graph;
    let address = bases.of(graph.value(value).space) + layout.address(phase, value) as u64;
    DeviceTensor { address, ty: graph.ty(value).clone() }
}

pub(super) fn bytes(tensor: &DeviceTensor) -> Range<u64> {
    tensor.address..tensor.address + tensor.ty.span_bytes() as u64
}

/// The bytes that a node reads and writes.
pub(super) fn touched(program: &Program, layout: &Layout, phase: usize, id: NodeId, bases: Bases) -> Touched {
    let Places { inputs, outputs, workspace } = Places::of(program, layout, phase, id, bases);
    let scratch = bases.device + workspace.offset as u64;
    Touched {
        reads: inputs.iter().map(bytes).collect(),
        writes: outputs.iter().map(bytes).chain(once(scratch..scratch + workspace.bytes as u64)).collect(),
    }
}
