//! A phase of a laid-out program as launches on a queue: what the executor runs and what checks without a GPU look at.

use super::join::{Joined, Shares, Step, Touched, join};
use super::lanes::{Lane, touched_by_copy};
use super::together::{Together, togethers};
use plimsoll_core::graph::{NodeId, Space, ValueId};
use plimsoll_core::kernels::cuda::{CudaError, DeviceTensor, Launch, Queue, Recorded, Recorder};
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
    let graph = &program.phases[phase].graph;
    if graph.is_view(id) {
        return Ok(());
    }
    let Places { inputs, outputs, workspace } = Places::of(program, layout, phase, id, bases);
    graph.node(id).op.op().cuda(&mut Launch {
        inputs: &inputs,
        outputs: &outputs,
        workspace: bases.device + workspace.offset as u64,
        workspace_bytes: workspace.bytes,
        tf32,
        queue,
    })
}

/// Where a layout has what a node reads and writes.
struct Places {
    inputs: Vec<DeviceTensor>,
    outputs: Vec<DeviceTensor>,
    workspace: Slot,
}

impl Places {
    fn of(program: &Program, layout: &Layout, phase: usize, id: NodeId, bases: Bases) -> Places {
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

/// What a phase puts on a device: its nodes in order, several at once where one kernel can, their launches joined where
/// possible.
pub fn record_phase(
    program: &Program,
    layout: &Layout,
    phase: usize,
    bases: Bases,
    tf32: bool,
    arch: u32,
) -> Result<Vec<Joined>, CudaError> {
    let host = bases.host..bases.host + layout.host_bytes as u64;
    let mut steps = Vec::new();
    let togethers = togethers(program, layout, phase, bases);
    for (tick, &id) in layout.phases[phase].order.iter().enumerate() {
        let mut recorder = Recorder { arch, ..Recorder::default() };
        let (touched, ticks) = match togethers.get(&tick) {
            Some(Together::Later) => continue,
            Some(Together::Here(all)) => {
                all.record(tf32, &mut recorder)?;
                (all.touched.clone(), all.ticks.clone())
            }
            None => {
                record_node(program, layout, phase, id, bases, tf32, &mut recorder)?;
                if recorder.launches.is_empty() {
                    continue;
                }
                (touched(program, layout, phase, id, bases), Shares::from_elem((tick, 1.0), 1))
            }
        };
        let step = |launch: Recorded| {
            let (lane, copied) = (Lane::of(&launch, &host), touched_by_copy(&launch));
            Step { launch, touched: copied.unwrap_or_else(|| touched.clone()), ticks: ticks.clone(), lane }
        };
        steps.extend(recorder.launches.into_iter().map(step));
    }
    Ok(join(steps))
}
