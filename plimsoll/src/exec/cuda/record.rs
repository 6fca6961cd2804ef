//! A phase of a laid-out program as launches on a queue: what the executor runs and what checks without a GPU look at.

use super::{CudaError, DeviceTensor, Launch, Queue};
use crate::graph::{NodeId, Space, ValueId};
use crate::plan::{Layout, Program, Slot};

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

/// Puts one node of a phase on the queue. Views launch nothing.
pub fn record_node(
    program: &Program,
    layout: &Layout,
    phase: usize,
    id: NodeId,
    bases: Bases,
    tf32: bool,
    queue: &mut dyn Queue,
) -> Result<(), CudaError> {
    let (graph, plan) = (&program.phases[phase].graph, &layout.phases[phase]);
    if graph.is_view(id) {
        return Ok(());
    }
    let node = graph.node(id);
    let tensor = |&value: &ValueId| DeviceTensor {
        address: bases.of(graph.value(value).space) + layout.address(phase, value) as u64,
        ty: graph.ty(value).clone(),
    };
    let inputs: Vec<DeviceTensor> = node.inputs.iter().map(tensor).collect();
    let outputs: Vec<DeviceTensor> = node.outputs.iter().map(tensor).collect();
    let workspace = plan.workspaces[id.index()].map_or(Slot { offset: 0, bytes: 0 }, |b| plan.buffers[b].slot);
    node.op.op().cuda(&mut Launch {
        inputs: &inputs,
        outputs: &outputs,
        workspace: bases.device + workspace.offset as u64,
        workspace_bytes: workspace.bytes,
        tf32,
        queue,
    })
}

/// All nodes of a phase, in order.
pub fn record_phase(
    program: &Program,
    layout: &Layout,
    phase: usize,
    bases: Bases,
    tf32: bool,
    queue: &mut dyn Queue,
) -> Result<(), CudaError> {
    let order = &layout.phases[phase].order;
    order.iter().try_for_each(|&id| record_node(program, layout, phase, id, bases, tf32, queue))
}
