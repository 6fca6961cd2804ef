//! The second half of the independent check: the numbers a layout states about itself. A value lies inside its buffer,
//! a buffer is counted from the tick it is written to the last that reads it, and the live peak is what those add up to.

use super::{Layout, Owner, PhaseLayout, PlanError, Program, Storage};
use crate::graph::{Graph, Space, ValueId};

pub(super) fn check(program: &Program, layout: &Layout) -> Result<(), PlanError> {
    let mut most = 0;
    for (phase, plan) in program.phases.iter().zip(&layout.phases) {
        Phase { name: &phase.name, graph: &phase.graph, plan, program }.check()?;
        most = most.max(plan.live_bytes as u128);
    }
    let residents = resident_bytes(program, layout, Space::Device);
    if layout.host_resident_bytes as u128 != resident_bytes(program, layout, Space::Host) {
        return Err(PlanError::Broken("residents take other bytes of the host than it says".into()));
    }
    let true_peak = residents + most;
    if layout.resident_bytes as u128 != residents || layout.live_peak_bytes as u128 != true_peak {
        return Err(PlanError::Broken(format!("the live peak is {true_peak} bytes, not {}", layout.live_peak_bytes)));
    }
    let held = layout.live_peak_bytes <= layout.arena_bytes && layout.host_resident_bytes <= layout.host_bytes;
    match held && layout.arena_bytes.max(layout.host_bytes) <= isize::MAX as usize {
        true => Ok(()),
        false => Err(PlanError::Broken("the arena cannot hold what is alive at the peak".into())),
    }
}

fn resident_bytes(program: &Program, layout: &Layout, space: Space) -> u128 {
    let there = program.residents.iter().zip(&layout.residents).filter(|(r, _)| r.space == space);
    there.map(|(_, slot)| slot.bytes as u128).sum()
}

struct Phase<'p> {
    name: &'p str,
    graph: &'p Graph,
    plan: &'p PhaseLayout,
    program: &'p Program,
}

impl Phase<'_> {
    fn check(&self) -> Result<(), PlanError> {
        self.check_lifetimes()?;
        self.check_inputs()?;
        for (tick, &id) in self.plan.order.iter().enumerate() {
            let node = self.graph.node(id);
            node.inputs.iter().chain(&node.outputs).try_for_each(|&value| self.check_use(value, tick))?;
            self.check_workspace(id, tick)?;
        }
        let end = self.last_tick();
        self.graph.kept().iter().try_for_each(|&value| self.check_use(value, end))?;
        self.check_peak()
    }

    fn broken<T>(&self, what: String) -> Result<T, PlanError> {
        Err(PlanError::Broken(format!("phase {}: {what}", self.name)))
    }

    fn last_tick(&self) -> usize {
        self.plan.order.len().saturating_sub(1)
    }

    fn check_lifetimes(&self) -> Result<(), PlanError> {
        match self.plan.buffers.iter().position(|b| b.first > b.last || b.last > self.last_tick()) {
            Some(index) => self.broken(format!("buffer {index} lives outside the phase")),
            None => Ok(()),
        }
    }

    /// The host writes inputs before the first tick, whether anything reads them or not.
    fn check_inputs(&self) -> Result<(), PlanError> {
        let inputs = self.graph.value_ids().filter(|&id| self.graph.producer(id).is_none());
        inputs.into_iter().try_for_each(|id| self.check_use(id, 0))
    }

    /// A value that is touched at `tick` lies inside a buffer of its memory that is counted then.
    fn check_use(&self, value: ValueId, tick: usize) -> Result<(), PlanError> {
        let (place, space) = (self.plan.places[value.index()], self.graph.value(value).space);
        let end = place.offset.checked_add(self.graph.ty(value).span_bytes());
        let sound = match place.storage {
            Storage::Resident(index) => self.program.residents.get(index).is_some_and(|r| r.space == space),
            Storage::Buffer(index) => self.plan.buffers.get(index).is_some_and(|buffer| {
                let inside = end.is_some_and(|end| end <= buffer.slot.bytes) && buffer.space == space;
                inside && buffer.first <= tick && tick <= buffer.last
            }),
        };
        match sound {
            true => Ok(()),
            false => self.broken(format!("{} is not counted at tick {tick}", self.graph.value(value).name)),
        }
    }

    fn check_workspace(&self, id: crate::graph::NodeId, tick: usize) -> Result<(), PlanError> {
        let Some(index) = self.plan.workspaces[id.index()] else { return Ok(()) };
        let own = |b: &super::Buffer| {
            b.owner == Owner::Workspace(id) && b.space == Space::Device && b.first <= tick && tick <= b.last
        };
        match self.plan.buffers.get(index).is_some_and(own) {
            true => Ok(()),
            false => self.broken(format!("the workspace of {} is not counted", self.graph.node(id).name)),
        }
    }

    fn check_peak(&self) -> Result<(), PlanError> {
        let mut change = vec![0i128; self.last_tick() + 2];
        for buffer in self.plan.buffers.iter().filter(|b| b.space == Space::Device) {
            change[buffer.first] += buffer.slot.bytes as i128;
            change[buffer.last + 1] -= buffer.slot.bytes as i128;
        }
        let live = change.iter().scan(0, |live, delta| {
            *live += delta;
            Some(*live)
        });
        let live: Vec<i128> = live.collect();
        let most = live.iter().copied().max().unwrap_or(0);
        match live.get(self.plan.peak_tick) == Some(&most) && self.plan.live_bytes as i128 == most {
            true => Ok(()),
            false => self.broken(format!("{most} bytes are alive at its peak, not {}", self.plan.live_bytes)),
        }
    }
}
