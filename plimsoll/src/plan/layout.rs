//! The layout of a program: residents first, then one region that the temporaries of all phases share.

use super::lifetimes::{Lifetimes, lifetimes};
use super::order::order;
use super::place::{self, Placement};
use super::{PlanError, Program, aligned};
use crate::graph::{Component, NodeId, ValueId};
use crate::ops::Target;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    Resident(usize),
    /// An index into the phase's buffers.
    Buffer(usize),
}

/// Where a value starts: a storage and bytes into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub storage: Storage,
    pub offset: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Value(ValueId),
    Workspace(NodeId),
}

/// A stretch of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub offset: usize,
    pub bytes: usize,
}

/// A temporary of one phase, with its slot and its lifetime in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    pub owner: Owner,
    pub slot: Slot,
    pub first: usize,
    pub last: usize,
    pub component: Component,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PhaseLayout {
    pub order: Vec<NodeId>,
    pub buffers: Vec<Buffer>,
    /// By value.
    pub places: Vec<Place>,
    /// By node: its workspace's buffer.
    pub workspaces: Vec<Option<usize>>,
    /// Most bytes of temporaries alive at once, and when.
    pub live_bytes: usize,
    pub peak_tick: usize,
}

/// An address for everything.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    pub residents: Vec<Slot>,
    pub phases: Vec<PhaseLayout>,
    pub resident_bytes: usize,
    pub arena_bytes: usize,
    /// Most bytes alive at once in any phase, residents included.
    pub live_peak_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutOptions {
    pub target: Target,
    /// Off: every buffer has its own address, nothing is overwritten. For comparison only.
    pub sharing: bool,
}

impl Layout {
    /// Bytes lost to gaps between buffers at the peak.
    pub fn fragmentation_bytes(&self) -> usize {
        self.arena_bytes - self.live_peak_bytes
    }

    /// The address of a value of a phase, in bytes from the start of the arena.
    pub fn address(&self, phase: usize, value: ValueId) -> usize {
        let place = self.phases[phase].places[value.index()];
        let base = match place.storage {
            Storage::Resident(index) => self.residents[index].offset,
            Storage::Buffer(index) => self.phases[phase].buffers[index].slot.offset,
        };
        base.saturating_add(place.offset)
    }

    /// The phase with the most bytes alive.
    pub fn peak_phase(&self) -> usize {
        let live = |i: &usize| (self.phases[*i].live_bytes, usize::MAX - i);
        (0..self.phases.len()).max_by_key(live).unwrap_or(0)
    }
}

/// Lays out a program and has the result checked by code that did not make it.
pub fn lay_out(program: &Program, options: LayoutOptions) -> Result<Layout, PlanError> {
    let (residents, resident_bytes) = place_residents(program)?;
    let mut phases = Vec::with_capacity(program.phases.len());
    let mut end = resident_bytes;
    for phase in &program.phases {
        let order = order(&phase.graph)?;
        let lives = lifetimes(program, &phase.graph, &order, &options.target, options.sharing)?;
        check_total(&lives)?;
        let placement = if options.sharing { place::pack(&lives.buffers) } else { place::side_by_side(&lives.buffers) };
        end = end.max(resident_bytes + placement.end);
        phases.push(phase_layout(order, lives, placement, resident_bytes));
    }
    let live = phases.iter().map(|p| p.live_bytes).max().unwrap_or(0);
    let layout = Layout { residents, phases, resident_bytes, arena_bytes: end, live_peak_bytes: resident_bytes + live };
    super::verify(program, &layout, options)?;
    Ok(layout)
}

/// Lays out further phases of a run in the arena it has. `None` if they do not fit.
pub fn lay_out_within(program: &Program, arena: &Layout, options: LayoutOptions) -> Result<Option<Layout>, PlanError> {
    let layout = lay_out(program, options)?;
    if layout.residents != arena.residents || layout.arena_bytes > arena.arena_bytes {
        return Ok(None);
    }
    Ok(Some(Layout { arena_bytes: arena.arena_bytes, ..layout }))
}

/// The bytes alive at the peak, without placing anything: no layout can be smaller.
pub fn live_peak(program: &Program, target: &Target) -> Result<usize, PlanError> {
    let (_, resident_bytes) = place_residents(program)?;
    let mut peak = 0;
    for phase in &program.phases {
        let order = order(&phase.graph)?;
        let lives = lifetimes(program, &phase.graph, &order, target, true)?;
        check_total(&lives)?;
        peak = peak.max(place::live_peak(&lives.buffers).0);
    }
    Ok(resident_bytes + peak)
}

fn place_residents(program: &Program) -> Result<(Vec<Slot>, usize), PlanError> {
    let mut end = 0usize;
    let mut slots = Vec::with_capacity(program.residents.len());
    for resident in &program.residents {
        let bytes = aligned(resident.ty.span_bytes());
        slots.push(Slot { offset: end, bytes });
        end = end.checked_add(bytes).filter(|&end| end <= isize::MAX as usize).ok_or(PlanError::TooLarge)?;
    }
    Ok((slots, end))
}

/// No sum of sizes below may overflow.
fn check_total(lives: &Lifetimes) -> Result<(), PlanError> {
    let total = lives.buffers.iter().try_fold(0usize, |sum, b| sum.checked_add(b.bytes));
    match total {
        Some(total) if total <= isize::MAX as usize / 4 => Ok(()),
        _ => Err(PlanError::TooLarge),
    }
}

fn phase_layout(order: Vec<NodeId>, lives: Lifetimes, placement: Placement, base: usize) -> PhaseLayout {
    let (live_bytes, peak_tick) = place::live_peak(&lives.buffers);
    let buffer = |(life, offset): (&super::lifetimes::Lifetime, &usize)| Buffer {
        owner: life.owner,
        slot: Slot { offset: base + offset, bytes: life.bytes },
        first: life.first,
        last: life.last,
        component: life.component,
    };
    let buffers = lives.buffers.iter().zip(&placement.offsets).map(buffer).collect();
    PhaseLayout { order, buffers, places: lives.places, workspaces: lives.workspaces, live_bytes, peak_tick }
}
