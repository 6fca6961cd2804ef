//! The layout of a program: residents first, then one region that the temporaries of all phases share.

use super::lifetimes::{Lifetime, Lifetimes, lifetimes};
use super::order::{lowest_order, order_of};
use super::place::{self, Placement};
use super::sketch::Sketch;
use super::{PlanError, Program, aligned};
use crate::graph::{Component, Graph, NodeId, ValueId};
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
        let (order, lives) = ordered(&sketch(program, &phase.graph, &options.target), options.sharing)?;
        let placement = if options.sharing { place::pack(&lives.buffers) } else { place::side_by_side(&lives.buffers) };
        end = end.max(resident_bytes + placement.end);
        phases.push(phase_layout(order, lives, placement, resident_bytes));
    }
    let live = phases.iter().map(|p| p.live_bytes).max().unwrap_or(0);
    let layout = Layout { residents, phases, resident_bytes, arena_bytes: end, live_peak_bytes: resident_bytes + live };
    super::verify(program, &layout, options)?;
    Ok(layout)
}

/// Lays out one more phase of a run in the arena it has: phase `like` of `home` for a shorter batch. Where the two graphs
/// differ in sizes only, every buffer takes the place of its counterpart, so a shorter batch always fits; otherwise it is
/// packed anew. `None` if that does not fit.
pub fn lay_out_within(
    program: &Program,
    home: &Layout,
    like: usize,
    options: LayoutOptions,
) -> Result<Option<Layout>, PlanError> {
    let [phase] = &program.phases[..] else { return Err(PlanError::Broken("one phase at a time".into())) };
    let sketch = sketch(program, &phase.graph, &options.target);
    let (order, lives) = match sketch.runs_in(&home.phases[like].order) {
        true => (home.phases[like].order.clone(), lifetimes(&sketch, &home.phases[like].order, options.sharing)),
        false => ordered(&sketch, options.sharing)?,
    };
    check_total(&lives)?;
    let base = home.resident_bytes;
    let placement = places_of(&lives, &home.phases[like], base).unwrap_or_else(|| place::pack(&lives.buffers));
    if base + placement.end > home.arena_bytes {
        return Ok(None);
    }
    let phase = phase_layout(order, lives, placement, base);
    let layout = Layout {
        residents: home.residents.clone(),
        resident_bytes: base,
        arena_bytes: home.arena_bytes,
        live_peak_bytes: base + phase.live_bytes,
        phases: vec![phase],
    };
    super::verify(program, &layout, options)?;
    Ok(Some(layout))
}

/// The places of the buffers of a longer batch, if these are the same buffers, each at most as large.
fn places_of(lives: &Lifetimes, longer: &PhaseLayout, base: usize) -> Option<Placement> {
    let same = |(life, other): (&Lifetime, &Buffer)| {
        (life.owner, life.first, life.last) == (other.owner, other.first, other.last) && life.bytes <= other.slot.bytes
    };
    if lives.buffers.len() != longer.buffers.len() || !lives.buffers.iter().zip(&longer.buffers).all(same) {
        return None;
    }
    let offsets: Vec<usize> = longer.buffers.iter().map(|b| b.slot.offset.saturating_sub(base)).collect();
    let end = offsets.iter().zip(&lives.buffers).map(|(offset, life)| offset + life.bytes).max().unwrap_or(0);
    Some(Placement { offsets, end })
}

/// The most bytes of temporaries alive at once in a phase; without sharing, all that there are.
pub(crate) fn live_bytes(graph: &Graph, options: &LayoutOptions) -> Result<usize, PlanError> {
    let (_, lives) = ordered(&Sketch::of(graph, &options.target, |_| 0), options.sharing)?;
    Ok(lives.live_bytes(options.sharing))
}

/// The bytes alive at the peak, without placing anything: no layout can be smaller.
pub fn live_peak(program: &Program, target: &Target) -> Result<usize, PlanError> {
    let (_, resident_bytes) = place_residents(program)?;
    let mut peak = 0;
    for phase in &program.phases {
        let (_, lives) = ordered(&sketch(program, &phase.graph, target), true)?;
        peak = peak.max(place::live_peak(&lives.buffers).0);
    }
    Ok(resident_bytes + peak)
}

fn sketch(program: &Program, graph: &Graph, target: &Target) -> Sketch {
    // Every resident of a phase is one of the program's.
    Sketch::of(graph, target, |name| program.resident(name).unwrap_or(usize::MAX))
}

/// The order of a phase and the lifetimes in it: by rules, or what a search found to need less.
pub(super) fn ordered(sketch: &Sketch, sharing: bool) -> Result<(Vec<NodeId>, Lifetimes), PlanError> {
    let order = order_of(sketch)?;
    let lives = lifetimes(sketch, &order, sharing);
    check_total(&lives)?;
    if !sharing {
        return Ok((order, lives));
    }
    let peak = place::live_peak(&lives.buffers).0;
    let lower = lowest_order(sketch, peak).map(|order| (lifetimes(sketch, &order, sharing), order));
    match lower.filter(|(lives, _)| place::live_peak(&lives.buffers).0 < peak) {
        Some((lives, order)) => Ok((order, lives)),
        None => Ok((order, lives)),
    }
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
    let buffer = |(life, offset): (&Lifetime, &usize)| Buffer {
        owner: life.owner,
        slot: Slot { offset: base + offset, bytes: life.bytes },
        first: life.first,
        last: life.last,
        component: life.component,
    };
    let buffers = lives.buffers.iter().zip(&placement.offsets).map(buffer).collect();
    PhaseLayout { order, buffers, places: lives.places, workspaces: lives.workspaces, live_bytes, peak_tick }
}
