//! A phase of a laid-out program as launches on a queue: what the executor runs and what checks without a GPU look at.

use super::join::join;
use super::lanes::touched_by_copy;
use super::launches::{Joined, Lane, Shares, Step};
use super::places::{Bases, Places, touched};
use super::together::{Together, togethers};
use plimsoll_core::graph::NodeId;
use plimsoll_core::kernels::cuda::{CudaError, Launch, Queue, Recorded, Recorder};
use plimsoll_core::plan::{Layout, Program};

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
