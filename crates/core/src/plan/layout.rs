//! The layout of a program, in each memory: residents first, then one region that the temporaries of all phases share.

use super::counterpart::counterpart;
use super::lifetimes::{Lifetime, Lifetimes, check_total, lifetimes};
use super::order::{lowest_order, order_of};
use super::place::{self, Placement};
use super::sketch::Sketch;
use super::{PlanError, Program, aligned};
use crate::graph::Target;
use crate::graph::{Component, Graph, NodeId, Space, ValueId};

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

/// A stretch of the arena, or of the host's region.
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
    pub space: Space,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PhaseLayout {
    pub order: Vec<NodeId>,
    pub buffers: Vec<Buffer>,
    /// By value.
    pub places: Vec<Place>,
    /// By node: its workspace's buffer.
    pub workspaces: Vec<Option<usize>>,
    /// Most bytes of temporaries alive at once on the device, and when.
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
    /// The host's region, and how much of it residents take; both 0 where nothing is kept there.
    pub host_bytes: usize,
    pub host_resident_bytes: usize,
}

/// A number of bytes in each memory, by `Space as usize`.
pub(super) type InEach = [usize; Space::ALL.len()];

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

    /// Bytes of each memory.
    pub(super) fn ends(&self) -> InEach {
        [self.arena_bytes, self.host_bytes]
    }

    /// Bytes of residents in each memory: temporaries come behind them.
    pub(super) fn bases(&self) -> InEach {
        [self.resident_bytes, self.host_resident_bytes]
    }

    /// The address of a value of a phase, in bytes from the start of the memory it lies in.
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
    lay_out_in(program, options, usize::MAX)?.ok_or(PlanError::TooLarge)
}

/// The same in an arena of at most so many bytes; `None` as soon as it is known to need more.
pub fn lay_out_in(program: &Program, options: LayoutOptions, most: usize) -> Result<Option<Layout>, PlanError> {
    let (residents, bases) = place_residents(program)?;
    let Some(room) = most.checked_sub(bases[Space::Device as usize]) else { return Ok(None) };
    let place: Placing = if options.sharing { place::pack } else { place::side_by_side };
    let mut phases = Vec::with_capacity(program.phases.len());
    let mut ends = bases;
    for phase in &program.phases {
        let (order, lives) = ordered(&sketch(program, &phase.graph, &options.target), options.sharing)?;
        let Some(placed) = place_each(&lives.buffers, place, [room, usize::MAX]) else { return Ok(None) };
        ends = each(|space| ends[space].max(bases[space] + placed.ends[space]));
        phases.push(phase_layout(order, lives, placed, bases));
    }
    let layout = layout(residents, phases, bases, ends);
    super::verify(program, &layout, options)?;
    Ok(Some(layout))
}

/// Lays out one more phase of a run in the arena it has: phase `like` of `home` for a shorter batch. Where the two graphs
/// differ in sizes only, every buffer takes the place of its larger counterpart; otherwise it is packed anew. `None` if
/// that does not fit.
pub fn lay_out_within(
    program: &Program,
    home: &Layout,
    like: usize,
    options: LayoutOptions,
) -> Result<Option<Layout>, PlanError> {
    let [phase] = &program.phases[..] else { return Err(PlanError::Broken("one phase at a time".into())) };
    let sketch = sketch(program, &phase.graph, &options.target);
    if let Some(phase) = counterpart(&sketch, &home.phases[like]) {
        let layout = layout(home.residents.clone(), vec![phase], home.bases(), home.ends());
        // Graphs of equal numbers may still differ: the check tells, and the phase is packed instead.
        if super::verify(program, &layout, options).is_ok() {
            return Ok(Some(layout));
        }
    }
    pack_within(program, &sketch, home, options)
}

fn pack_within(
    program: &Program,
    sketch: &Sketch,
    home: &Layout,
    options: LayoutOptions,
) -> Result<Option<Layout>, PlanError> {
    let (order, lives) = ordered(sketch, options.sharing)?;
    let (bases, ends) = (home.bases(), home.ends());
    let room = each(|space| ends[space] - bases[space]);
    let Some(placed) = place_each(&lives.buffers, place::pack, room) else { return Ok(None) };
    let phase = phase_layout(order, lives, placed, bases);
    let layout = layout(home.residents.clone(), vec![phase], bases, ends);
    super::verify(program, &layout, options)?;
    Ok(Some(layout))
}

fn layout(residents: Vec<Slot>, phases: Vec<PhaseLayout>, bases: InEach, ends: InEach) -> Layout {
    let ([resident_bytes, host_resident_bytes], [arena_bytes, host_bytes]) = (bases, ends);
    let live_peak_bytes = resident_bytes + phases.iter().map(|p| p.live_bytes).max().unwrap_or(0);
    Layout { residents, phases, resident_bytes, arena_bytes, live_peak_bytes, host_bytes, host_resident_bytes }
}

fn each(bytes: impl Fn(usize) -> usize) -> InEach {
    Space::ALL.map(|space| bytes(space as usize))
}

/// The offset of each buffer behind the residents of its memory, and the end of the highest in each memory.
struct Placed {
    offsets: Vec<usize>,
    ends: InEach,
}

/// How buffers get their offsets in so many bytes.
type Placing = fn(&[Lifetime], usize) -> Option<Placement>;

/// Places the buffers of each memory among themselves, if there is room for them.
fn place_each(buffers: &[Lifetime], place: Placing, room: InEach) -> Option<Placed> {
    let mut placed = Placed { offsets: vec![0; buffers.len()], ends: InEach::default() };
    for space in Space::ALL {
        let there: Vec<usize> = (0..buffers.len()).filter(|&i| buffers[i].space == space).collect();
        let placement = place(&in_space(buffers, space), room[space as usize])?;
        there.into_iter().zip(placement.offsets).for_each(|(i, offset)| placed.offsets[i] = offset);
        placed.ends[space as usize] = placement.end;
    }
    Some(placed)
}

fn in_space(buffers: &[Lifetime], space: Space) -> Vec<Lifetime> {
    buffers.iter().filter(|b| b.space == space).cloned().collect()
}

/// The most bytes of temporaries alive at once on the device in a phase; without sharing, all that there are.
pub fn live_bytes(graph: &Graph, options: &LayoutOptions) -> Result<usize, PlanError> {
    let (_, lives) = ordered(&Sketch::of(graph, &options.target, |_| 0), options.sharing)?;
    Ok(lives.live_bytes(options.sharing))
}

/// The bytes alive on the device at the peak, without placing anything: no layout can be smaller.
pub fn live_peak(program: &Program, target: &Target) -> Result<usize, PlanError> {
    let (_, bases) = place_residents(program)?;
    let mut peak = 0;
    for phase in &program.phases {
        let (_, lives) = ordered(&sketch(program, &phase.graph, target), true)?;
        peak = peak.max(place::device_peak(&lives.buffers).0);
    }
    Ok(bases[Space::Device as usize] + peak)
}

fn sketch(program: &Program, graph: &Graph, target: &Target) -> Sketch {
    // Every resident of a phase is one of the program's.
    Sketch::of(graph, target, |name| program.resident(name).unwrap_or(usize::MAX))
}

/// The order of a phase and the lifetimes in it: by rules, or what a search found to need less.
pub(super) fn ordered(sketch: &Sketch, sharing: bool) -> Result<(Vec<NodeId>, Lifetimes), PlanError> {
    let order = order_of(sketch)?;
    let lives = lifetimes(sketch, &order, sharing);
    check_total(&lives.buffers)?;
    if !sharing {
        return Ok((order, lives));
    }
    let peak = place::device_peak(&lives.buffers).0;
    let lower = lowest_order(sketch, peak).map(|order| (lifetimes(sketch, &order, sharing), order));
    match lower.filter(|(lives, _)| place::device_peak(&lives.buffers).0 < peak) {
        Some((lives, order)) => Ok((order, lives)),
        None => Ok((order, lives)),
    }
}

/// Slots of residents, one behind the other in the memory of each, and where they end.
fn place_residents(program: &Program) -> Result<(Vec<Slot>, InEach), PlanError> {
    let mut ends = InEach::default();
    let mut slots = Vec::with_capacity(program.residents.len());
    for resident in &program.residents {
        let (bytes, end) = (aligned(resident.ty.span_bytes()), &mut ends[resident.space as usize]);
        slots.push(Slot { offset: *end, bytes });
        *end = end.checked_add(bytes).filter(|&end| end <= isize::MAX as usize).ok_or(PlanError::TooLarge)?;
    }
    Ok((slots, ends))
}

fn phase_layout(order: Vec<NodeId>, lives: Lifetimes, placed: Placed, bases: InEach) -> PhaseLayout {
    let (live_bytes, peak_tick) = place::device_peak(&lives.buffers);
    let buffer = |(life, offset): (&Lifetime, &usize)| Buffer {
        owner: life.owner,
        slot: Slot { offset: bases[life.space as usize] + offset, bytes: life.bytes },
        first: life.first,
        last: life.last,
        component: life.component,
        space: life.space,
    };
    let buffers = lives.buffers.iter().zip(&placed.offsets).map(buffer).collect();
    PhaseLayout { order, buffers, places: lives.places, workspaces: lives.workspaces, live_bytes, peak_tick }
}
