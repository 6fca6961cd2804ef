//! Runs a verified layout on a GPU: one arena, each phase captured once as a CUDA graph and replayed. The host is always
//! ahead of the device; it waits only where it reads.

use super::commands::{Command, Commands, Graph, Preparer};
use super::driver::{DeviceArena, Event, HostRegion};
use super::landing::Landing;
use super::lanes::{Lanes, events};
use super::readback::Readback;
use super::reserve::LENGTHS_BYTES;
use super::staging::{Staging, Way, staging_half_bytes};
use super::{Bases, Gpu};
use plimsoll_core::graph::{InputKind, ValueId};
use plimsoll_core::kernels::cuda::CudaError;
use plimsoll_core::plan::{LANDING, Layout, Program, Slot};
use plimsoll_core::types::DType;
use plimsoll_exec::Algorithms;
use plimsoll_exec::{Asked, ExecError, Executor, Fill, Scalars, copy_of, fill_in_pieces, floats};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaOptions {
    /// Whether f32 products may be computed in tf32.
    pub tf32: bool,
    /// Off: every kernel is launched on its own, each time.
    pub graphs: bool,
    /// Bytes beside the arena that the plan counts with. Graphs are captured as long as they fit in them.
    pub reserve_bytes: u64,
    /// Whether phases for batches of other lengths will be added.
    pub has_lengths: bool,
}

impl Default for CudaOptions {
    fn default() -> CudaOptions {
        CudaOptions { tf32: false, graphs: true, reserve_bytes: u64::MAX, has_lengths: false }
    }
}

/// What a captured launch takes at most: 3.8 KiB on an H200, whatever it launches.
const BYTES_PER_CAPTURED: u64 = 6 << 10;
/// The driver takes memory in pieces of this size.
const PIECE_BYTES: u64 = 2 << 20;
/// Events behind one another with nothing in between: the least time between two of them is their own.
const BARE_EVENTS: usize = 8;

/// Where something lies, on the device or in the host region.
#[derive(Clone, Copy)]
struct Stretch {
    address: u64,
    bytes: usize,
}

/// A program with its arena on a device.
pub struct CudaExecutor {
    phases: Vec<Phase>,
    residents: HashMap<String, Stretch>,
    // Before what its copies read: it is waited for when it is dropped.
    landing: Landing,
    /// Where some phase has something in host memory.
    lanes: Option<Lanes>,
    staging: Staging,
    readback: Readback,
    arena: DeviceArena,
    /// What the plan put into host memory.
    host: HostRegion,
    resident_bytes: usize,
    options: CudaOptions,
    /// What may be taken beside the arena.
    most_beside: u64,
    /// The first thing that went wrong: everything after it is void.
    failure: RefCell<Option<CudaError>>,
    // Last: it outlives what uses it.
    gpu: Rc<Gpu>,
}

struct Phase {
    commands: Commands,
    inputs: HashMap<String, Stretch>,
    outputs: HashMap<String, (Stretch, DType)>,
    replay: Replay,
}

enum Replay {
    Graph(Graph),
    /// Launch by launch: graphs are off, or there is no room for another.
    Plain,
}

impl CudaExecutor {
    /// Takes the arena and makes everything ready: kernels are compiled and loaded, algorithms chosen.
    pub fn new(
        gpu: Rc<Gpu>,
        program: &Program,
        layout: &Layout,
        options: CudaOptions,
    ) -> Result<CudaExecutor, CudaError> {
        let arena = DeviceArena::new(layout.arena_bytes)?;
        gpu.stream.fill(arena.base, 0, arena.bytes)?;
        let mut host = HostRegion::new(layout.host_bytes)?;
        fill_in_pieces(host.bytes_mut(), 0, &|_, piece| piece.fill(0));
        let bases = Bases { device: arena.base, host: host.base };
        let slots = program.residents.iter().zip(&layout.residents);
        let stretch = |(r, slot): (&plimsoll_core::plan::Resident, &Slot)| {
            let address = bases.of(r.space) + slot.offset as u64;
            (r.name.clone(), Stretch { address, bytes: r.ty.span_bytes() })
        };
        let mut residents: HashMap<String, Stretch> = slots.map(stretch).collect();
        // Not for others to write: they would do it on the other stream, and what has landed would be gone.
        let place = residents.remove(LANDING).map(|place| place.address..place.address + place.bytes as u64);
        let mut executor = CudaExecutor {
            phases: Vec::new(),
            residents,
            landing: Landing::new(place)?,
            lanes: None,
            staging: Staging::new(staging_half_bytes(program))?,
            readback: Readback::new()?,
            arena,
            host,
            resident_bytes: layout.resident_bytes,
            options,
            most_beside: options.reserve_bytes,
            failure: RefCell::new(None),
            gpu,
        };
        executor.prepare(program, layout)?;
        executor.most_beside = most_beside(executor.beside_bytes()?, &options);
        Ok(executor)
    }

    /// Residents hold what was written to them; everything behind them is free while nothing runs.
    fn prepare(&mut self, program: &Program, layout: &Layout) -> Result<(), CudaError> {
        let bases = Bases { device: self.arena.base, host: self.host.base };
        for phase in 0..program.phases.len() {
            let commands = self.commands(program, layout, phase, bases)?;
            self.make_lanes(&commands)?;
            let graph = &program.phases[phase].graph;
            let slot = |id: ValueId| {
                let bytes = graph.ty(id).span_bytes();
                let address = bases.of(graph.value(id).space) + layout.address(phase, id) as u64;
                (graph.value(id).name.to_string(), Stretch { address, bytes })
            };
            let output = |id: ValueId| {
                let (name, place) = slot(id);
                (name, (place, graph.ty(id).dtype))
            };
            let is_data = |id: &ValueId| matches!(graph.value(*id).input, Some(InputKind::Data));
            self.phases.push(Phase {
                replay: self.replay(&commands)?,
                commands,
                inputs: graph.value_ids().filter(is_data).map(slot).collect(),
                outputs: graph.kept().iter().map(|&id| output(id)).collect(),
            });
        }
        self.gpu.stream.wait()
    }

    fn commands(&self, program: &Program, layout: &Layout, phase: usize, bases: Bases) -> Result<Commands, CudaError> {
        let mut preparer = Preparer {
            modules: &mut self.gpu.modules.borrow_mut(),
            blas: &mut self.gpu.blas.borrow_mut(),
            stream: &self.gpu.stream,
            bases,
            scratch: bases.device + self.resident_bytes as u64..bases.device + self.arena.bytes as u64,
            tf32: self.options.tf32,
        };
        preparer.phase(program, layout, phase)
    }

    fn make_lanes(&mut self, commands: &Commands) -> Result<(), CudaError> {
        if commands.turns.is_empty() {
            return Ok(());
        }
        let mut lanes = self.lanes.take().map_or_else(Lanes::new, Ok)?;
        lanes.reserve(events(&commands.turns))?;
        self.lanes = Some(lanes);
        Ok(())
    }

    /// Fills everything but residents with NaN patterns. For tests: what is read before it is written shows.
    pub fn poison_temporaries(&mut self) {
        let bytes = self.arena.bytes - self.resident_bytes;
        let filled = self.gpu.stream.fill(self.arena.base + self.resident_bytes as u64, 0xFF, bytes);
        self.note(filled);
    }

    /// The device rests for so long before it goes on. For tests: what the host gives it meanwhile must wait its turn.
    pub fn pause(&mut self, ms: u32) {
        let paused = self.gpu.stream.pause(ms);
        self.note(paused);
    }

    /// Waits until the device has done all it was given.
    pub fn wait(&self) {
        self.note(self.gpu.stream.wait());
    }

    /// Remembers what went wrong first.
    fn note<T>(&self, result: Result<T, CudaError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.failure.borrow_mut().get_or_insert(error);
                None
            }
        }
    }

    fn is_sound(&self) -> bool {
        self.failure.borrow().is_none()
    }

    fn try_run(&mut self, phase: usize) -> Result<(), CudaError> {
        self.landing.settle(&self.gpu.stream)?;
        let Phase { replay, commands, .. } = &self.phases[phase];
        match replay {
            Replay::Graph(graph) => graph.launch(&self.gpu.stream),
            Replay::Plain => self.put_all(commands),
        }
    }

    /// As a graph with an event behind every launch: the device's own clock, without waiting for the host in between.
    /// Events take time themselves; how much, those before the first launch tell.
    fn try_run_timed(&mut self, phase: usize, seconds: &mut [f64]) -> Result<(), CudaError> {
        self.landing.settle(&self.gpu.stream)?;
        let Commands { list, shares, .. } = &self.phases[phase].commands;
        let marks = (0..=BARE_EVENTS + list.len()).map(|_| Event::new()).collect::<Result<Vec<_>, _>>()?;
        let (bare, behind) = marks.split_at(BARE_EVENTS + 1);
        let stream = &self.gpu.stream;
        let graph = Graph::capture(stream, || {
            bare.iter().try_for_each(|mark| mark.record_in_graph(stream))?;
            list.iter().zip(behind).try_for_each(|(command, mark)| {
                self.put(std::slice::from_ref(command))?;
                mark.record_in_graph(stream)
            })
        })?;
        graph.launch(stream)?;
        stream.wait()?;
        let between = |pair: &[Event]| pair[1].ms_since(&pair[0]).map(|ms| f64::from(ms) / 1e3);
        let gaps = bare.windows(2).map(between).collect::<Result<Vec<_>, _>>()?;
        let gap = gaps.into_iter().fold(f64::INFINITY, f64::min);
        for (shares, pair) in shares.iter().zip(marks[BARE_EVENTS..].windows(2)) {
            let spent = (between(pair)? - gap).max(0.0);
            shares.iter().for_each(|&(tick, share)| seconds[tick] += spent * share);
        }
        Ok(())
    }

    /// A whole phase, what goes from or to the host beside the rest.
    fn put_all(&self, commands: &Commands) -> Result<(), CudaError> {
        let blas = self.gpu.blas.borrow();
        match &self.lanes {
            Some(lanes) if !commands.turns.is_empty() => {
                lanes.put(&self.gpu.stream, &commands.turns, |index, stream| commands.list[index].put(&blas, stream))
            }
            _ => self.put(&commands.list),
        }
    }

    /// One after the other.
    fn put(&self, commands: &[Command]) -> Result<(), CudaError> {
        let blas = self.gpu.blas.borrow();
        commands.iter().try_for_each(|command| command.put(&blas, &self.gpu.stream))
    }

    /// What is taken beside the arena; what the arena's last piece has left counts too.
    fn beside_bytes(&self) -> Result<u64, CudaError> {
        Ok(self.gpu.used_bytes()?.saturating_sub(self.arena.bytes as u64))
    }

    /// A graph, if graphs are wanted and the reserve has room for it.
    fn replay(&self, commands: &Commands) -> Result<Replay, CudaError> {
        let graph_bytes = commands.list.len() as u64 * BYTES_PER_CAPTURED + PIECE_BYTES;
        if !self.options.graphs || self.beside_bytes()?.saturating_add(graph_bytes) > self.most_beside {
            return Ok(Replay::Plain);
        }
        match Graph::capture(&self.gpu.stream, || self.put_all(commands)) {
            Err(CudaError::Full { .. }) => Ok(Replay::Plain),
            captured => Ok(Replay::Graph(captured?)),
        }
    }

    /// A word goes by itself; everything else by way of pinned memory.
    fn fill(&mut self, to: Stretch, fill: &Fill<'_>) -> Result<(), ExecError> {
        if self.is_sound() {
            let filled = match to.bytes == size_of::<u32>() && self.arena.holds(to.address) {
                true => {
                    let mut word = [0; size_of::<u32>()];
                    fill(0, &mut word);
                    self.gpu.stream.set_word(to.address, u32::from_ne_bytes(word))
                }
                false => {
                    let way = Way { streams: [&self.gpu.stream, &self.landing.stream], by: 0 };
                    self.staging.fill(way, to.address, to.bytes, fill)
                }
            };
            self.note(filled);
        }
        self.check()
    }

    fn resident(&self, name: &str) -> Result<Stretch, ExecError> {
        self.residents.get(name).copied().ok_or_else(|| ExecError::NoResident { name: name.into() })
    }

    /// An input lands while the phase before may still be running; what finds no room is copied when that is over.
    fn land(&mut self, to: Stretch, fill: &Fill<'_>) -> Result<bool, CudaError> {
        let Some(at) = self.landing.take(to.address, to.bytes)? else {
            self.landing.settle(&self.gpu.stream)?;
            return Ok(false);
        };
        let way = Way { streams: [&self.gpu.stream, &self.landing.stream], by: 1 };
        self.staging.fill(way, at, to.bytes, fill)?;
        Ok(true)
    }

    /// `None` if the device failed: what it holds means nothing any more.
    fn read(&self, from: Stretch) -> Option<Cow<'_, [u8]>> {
        let mut bytes = vec![0u8; from.bytes];
        self.is_sound().then(|| self.note(self.gpu.stream.read(from.address, &mut bytes)))??;
        Some(Cow::Owned(bytes))
    }
}

/// What stays beside an arena once its program stands, where `beside` is taken: that, and room for other lengths if they
/// come, within what was planned.
fn most_beside(beside: u64, options: &CudaOptions) -> u64 {
    let lengths = if options.has_lengths { LENGTHS_BYTES } else { 0 };
    beside.saturating_add(lengths).min(options.reserve_bytes).max(beside)
}

impl Drop for CudaExecutor {
    /// The device may still be reading what is freed next.
    fn drop(&mut self) {
        self.wait();
    }
}

impl Executor for CudaExecutor {
    fn run(&mut self, phase: usize) {
        if self.is_sound() {
            let ran = self.try_run(phase);
            self.note(ran);
        }
    }
    fn run_timed(&mut self, phase: usize, seconds: &mut [f64]) {
        if self.is_sound() {
            let timed = self.try_run_timed(phase, seconds);
            self.note(timed);
        }
    }
    fn fill_input(&mut self, phase: usize, name: &str, bytes: usize, fill: &Fill<'_>) -> Result<(), ExecError> {
        // After a failure in `add_phases` the phase may not be there, and that failure is what there is to say.
        self.check()?;
        let to = self.phases.get(phase).and_then(|phase| phase.inputs.get(name)).copied();
        let to = to.ok_or_else(|| ExecError::NoInput { phase, name: name.into() })?;
        ExecError::check_size(name, to.bytes, bytes)?;
        if bytes <= size_of::<u32>() || !self.arena.holds(to.address) {
            return self.fill(to, fill);
        }
        let landed = self.land(to, fill);
        match self.note(landed) {
            Some(false) => self.fill(to, fill),
            _ => self.check(),
        }
    }
    fn fill_resident(&mut self, name: &str, bytes: usize, fill: &Fill<'_>) -> Result<(), ExecError> {
        let to = self.resident(name)?;
        ExecError::check_size(name, to.bytes, bytes)?;
        self.fill(to, fill)
    }
    fn clear_resident(&mut self, name: &str) -> Result<(), ExecError> {
        let to = self.resident(name)?;
        // Memory of the host is filled by the host.
        if !self.arena.holds(to.address) {
            return self.fill(to, &|_, piece| piece.fill(0));
        }
        self.check()?;
        self.note(self.gpu.stream.fill(to.address, 0, to.bytes));
        self.check()
    }
    fn write_resident_at(&mut self, name: &str, offset: usize, data: &[u8]) -> Result<(), ExecError> {
        let all = self.resident(name)?;
        ExecError::check_inside(name, all.bytes, offset, data.len())?;
        self.fill(Stretch { address: all.address + offset as u64, bytes: data.len() }, &copy_of(data))
    }
    fn ask(&mut self, names: &[&str]) -> Asked {
        let scalar = |name: &&str| self.residents.get(*name).filter(|r| r.bytes == size_of::<f32>()).map(|r| r.address);
        let ordered = match self.is_sound() {
            true => self.readback.order(&self.gpu.stream, names.iter().map(scalar)),
            false => Ok(0),
        };
        Asked::Later { slot: self.note(ordered).unwrap_or(0), count: names.len() }
    }
    fn answer(&self, asked: &Asked) -> Scalars {
        let void = |count: usize| Scalars::from_elem(f64::NAN, count);
        match *asked {
            Asked::Known(ref scalars) => scalars.clone(),
            Asked::Later { count, .. } if !self.is_sound() => void(count),
            Asked::Later { slot, count } => {
                self.note(self.readback.numbers(slot, count)).unwrap_or_else(|| void(count))
            }
        }
    }
    fn read_resident(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.read(*self.residents.get(name)?)
    }
    fn read_output(&self, phase: usize, name: &str) -> Option<Cow<'_, [u8]>> {
        self.read(self.phases.get(phase)?.outputs.get(name)?.0)
    }
    fn read_floats(&self, phase: usize, name: &str) -> Option<Cow<'_, [f32]>> {
        let (slot, dtype) = *self.phases.get(phase)?.outputs.get(name)?;
        Some(floats(dtype, &self.read(slot)?).into())
    }
    fn add_phases(&mut self, program: &Program, layout: &Layout) -> usize {
        let first = self.phases.len();
        let prepared = self.prepare(program, layout);
        self.note(prepared);
        first
    }
    fn measured_bytes(&self) -> u64 {
        self.gpu.used_bytes().unwrap_or(0)
    }
    fn reserve_bytes(&self) -> Option<u64> {
        Some(self.most_beside)
    }
    fn take_algorithms(&mut self) -> Option<Algorithms> {
        self.gpu.blas.borrow_mut().added()
    }
    fn check(&self) -> Result<(), ExecError> {
        self.failure.borrow().clone().map_or(Ok(()), |failure| Err(ExecError::device(failure)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_one_length_keeps_what_it_has() {
        let options = CudaOptions { reserve_bytes: 620 << 20, ..CudaOptions::default() };
        assert_eq!(most_beside(534 << 20, &options), 534 << 20);
        let options = CudaOptions { has_lengths: true, ..options };
        assert_eq!(most_beside(534 << 20, &options), (534 << 20) + LENGTHS_BYTES);
        // Never more than was planned, but never less than is taken.
        assert_eq!(most_beside(600 << 20, &options), 620 << 20);
        assert_eq!(most_beside(700 << 20, &options), 700 << 20);
    }
}
