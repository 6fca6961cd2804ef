//! Runs a verified layout on the CPU. Everything a step needs is prepared here; a step allocates nothing.

use super::arena::Arena;
use crate::{ExecError, Executor, Fill, fill_in_pieces};
use plimsoll_base::heap;
use plimsoll_core::graph::{InputKind, OpRef, Space, ValueId};
use plimsoll_core::kernels::cpu::parallel::with_threads;
use plimsoll_core::kernels::cpu::subnormals;
use plimsoll_core::kernels::cpu::{CpuIo, Element, Tensor};
use plimsoll_core::plan::{Layout, Program, Resident, Slot};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::time::Instant;

/// A program with an arena, ready to run.
pub struct CpuExecutor {
    memory: Memory,
    phases: Vec<Compiled>,
    residents: HashMap<String, Tensor>,
    threads: usize,
    poison: bool,
}

/// The arena, and beside it what a plan keeps in host memory: on a CPU just another allocation.
struct Memory {
    arena: Arena,
    host: Option<Arena>,
}

impl Memory {
    fn new(layout: &Layout) -> io::Result<Memory> {
        let host = (layout.host_bytes > 0).then(|| Arena::new(layout.host_bytes));
        Ok(Memory { arena: Arena::new(layout.arena_bytes)?, host: host.transpose()? })
    }

    fn holds(&self, layout: &Layout) -> bool {
        let host_bytes = self.host.as_ref().map_or(0, Arena::bytes);
        layout.arena_bytes <= self.arena.bytes() && layout.host_bytes <= host_bytes
    }

    /// What is `offset` bytes into a memory. Without a region of the host nothing lies there but what has no bytes.
    fn at(&self, space: Space, offset: usize) -> *mut u8 {
        let region = match space {
            Space::Device => &self.arena,
            Space::Host => self.host.as_ref().unwrap_or(&self.arena),
        };
        region.base().wrapping_add(offset)
    }
}

#[derive(Default)]
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
    /// Stretches that nobody reads after this tick: where they start and how many bytes they have.
    dying: Vec<(*mut u8, usize)>,
}

// SAFETY: the pointers lead into `memory`, which moves along with them.
unsafe impl Send for CpuExecutor {}

impl CpuExecutor {
    /// Takes the arena. The layout was verified when it was made or read; `threads` are those it was made for.
    pub fn new(program: &Program, layout: &Layout, threads: usize) -> io::Result<CpuExecutor> {
        let memory = Memory::new(layout)?;
        let phases = (0..program.phases.len()).map(|i| compile(program, layout, i, &memory)).collect();
        let slots = program.residents.iter().zip(&layout.residents);
        let tensor = |(r, slot): (&Resident, &Slot)| {
            (r.name.clone(), Tensor { ptr: memory.at(r.space, slot.offset), ty: r.ty.clone() })
        };
        let residents = slots.map(tensor).collect();
        Ok(CpuExecutor { memory, phases, residents, threads, poison: false })
    }

    /// Further phases over the same residents, laid out within this arena. Returns the number of the first.
    pub fn add_phases(&mut self, program: &Program, layout: &Layout) -> usize {
        assert!(self.memory.holds(layout), "the layout was made for a larger arena");
        let first = self.phases.len();
        self.phases.extend((0..program.phases.len()).map(|i| compile(program, layout, i, &self.memory)));
        first
    }

    /// Another phase instead of this one, which nobody runs any more.
    pub fn replace_phase(&mut self, phase: usize, program: &Program, layout: &Layout) {
        assert!(self.memory.holds(layout), "the layout was made for a larger arena");
        // First the old one goes: both together were counted nowhere.
        self.phases[phase] = Compiled::default();
        self.phases[phase] = compile(program, layout, 0, &self.memory);
    }

    /// From now on a slot is filled with NaN patterns as soon as it is dead. For tests: a stale read shows.
    pub fn poison_dead_slots(&mut self) {
        self.poison = true;
    }

    pub fn arena(&self) -> &Arena {
        &self.memory.arena
    }

    /// Bytes of the host's region; 0 if the plan keeps nothing there.
    pub fn host_bytes(&self) -> usize {
        self.memory.host.as_ref().map_or(0, Arena::resident_bytes)
    }

    /// Runs all nodes of a phase in order. Inputs have been written since its last run.
    pub fn run(&mut self, phase: usize) {
        self.run_watched(phase, |_| {});
    }

    /// The same; `watch` is told after each node that its tick is over. For profiles.
    pub(crate) fn run_watched(&mut self, phase: usize, mut watch: impl FnMut(usize)) {
        let _zero = subnormals::AsZero::begin();
        with_threads(self.threads, || {
            for (tick, launch) in self.phases[phase].launches.iter().enumerate() {
                self.launch(launch);
                watch(tick);
            }
        });
    }

    fn launch(&self, launch: &Launch) {
        let workspace = self.memory.at(Space::Device, launch.workspace.offset);
        // SAFETY: the layout was verified, and its addresses were computed inside this executor's memory.
        launch.op.op().cpu(&unsafe { CpuIo::new(&launch.inputs, &launch.outputs, workspace, launch.workspace.bytes) });
        if self.poison {
            // SAFETY: they lie inside the memory, and no kernel is running.
            launch.dying.iter().for_each(|&(start, bytes)| unsafe { std::ptr::write_bytes(start, 0xFF, bytes) });
        }
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
        let tensor = self.residents.get(name).filter(|t| t.ty.dtype == T::DTYPE)?;
        // SAFETY: the slot holds these elements.
        Some(unsafe { std::slice::from_raw_parts(tensor.ptr.cast(), tensor.ty.elements()) })
    }

    pub fn resident_mut<T: Element>(&mut self, name: &str) -> Option<&mut [T]> {
        let tensor = self.residents.get(name).filter(|t| t.ty.dtype == T::DTYPE)?;
        // SAFETY: the slot holds these elements, and `&mut self` keeps the executor from running.
        Some(unsafe { std::slice::from_raw_parts_mut(tensor.ptr.cast(), tensor.ty.elements()) })
    }
}

fn compile(program: &Program, layout: &Layout, phase: usize, memory: &Memory) -> Compiled {
    let (graph, plan) = (&program.phases[phase].graph, &layout.phases[phase]);
    let tensor = |id: ValueId| {
        let ptr = memory.at(graph.value(id).space, layout.address(phase, id));
        Tensor { ptr, ty: graph.ty(id).clone() }
    };
    let mut dying: Vec<Vec<(*mut u8, usize)>> = vec![Vec::new(); plan.order.len()];
    let last_tick = plan.order.len().saturating_sub(1);
    for buffer in plan.buffers.iter().filter(|b| b.last < last_tick) {
        dying[buffer.last].push((memory.at(buffer.space, buffer.slot.offset), buffer.slot.bytes));
    }
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
    let named = |id: ValueId| (graph.value(id).name.to_string(), tensor(id));
    let is_data = |id: &ValueId| matches!(graph.value(*id).input, Some(InputKind::Data));
    Compiled {
        launches,
        inputs: graph.value_ids().filter(is_data).map(named).collect(),
        outputs: graph.kept().iter().map(|&id| named(id)).collect(),
    }
}

impl CpuExecutor {
    fn bytes_of(&self, tensor: &Tensor) -> &[u8] {
        // SAFETY: the slot holds the tensor's bytes.
        unsafe { std::slice::from_raw_parts(tensor.ptr, tensor.ty.span_bytes()) }
    }

    fn resident_range(&self, name: &str) -> Option<(*mut u8, usize)> {
        self.residents.get(name).map(|t| (t.ptr, t.ty.span_bytes()))
    }

    /// The same for those who cannot go on without it.
    fn resident_at(&self, name: &str) -> Result<(*mut u8, usize), ExecError> {
        self.resident_range(name).ok_or_else(|| ExecError::NoResident { name: name.into() })
    }
}

/// Lets `fill` write the bytes at `pointer`.
///
/// # Safety
/// `pointer` leads to that many bytes of an arena that the caller holds exclusively.
unsafe fn fill_with(pointer: *mut u8, bytes: usize, threads: usize, fill: &Fill<'_>) {
    // SAFETY: the caller's promise; an arena's bytes are initialized, whatever they are.
    let to = unsafe { std::slice::from_raw_parts_mut(pointer, bytes) };
    with_threads(threads, || fill_in_pieces(to, 0, fill));
}

impl Executor for CpuExecutor {
    fn run(&mut self, phase: usize) {
        heap::counted(|| CpuExecutor::run(self, phase));
    }
    fn fill_input(&mut self, phase: usize, name: &str, bytes: usize, fill: &Fill<'_>) -> Result<(), ExecError> {
        let input = self.phases.get(phase).and_then(|phase| phase.inputs.get(name));
        let input = input.ok_or_else(|| ExecError::NoInput { phase, name: name.into() })?;
        ExecError::check_size(name, input.ty.span_bytes(), bytes)?;
        // SAFETY: the slot holds these bytes, and `&mut self` is the only way to them.
        unsafe { fill_with(input.ptr, bytes, self.threads, fill) };
        Ok(())
    }
    fn fill_resident(&mut self, name: &str, bytes: usize, fill: &Fill<'_>) -> Result<(), ExecError> {
        let (pointer, there) = self.resident_at(name)?;
        ExecError::check_size(name, there, bytes)?;
        // SAFETY: the slot holds these bytes, and `&mut self` is the only way to them.
        unsafe { fill_with(pointer, bytes, self.threads, fill) };
        Ok(())
    }
    fn clear_resident(&mut self, name: &str) -> Result<(), ExecError> {
        let (pointer, bytes) = self.resident_at(name)?;
        // SAFETY: the slot holds these bytes.
        unsafe { std::ptr::write_bytes(pointer, 0, bytes) };
        Ok(())
    }
    fn write_resident_at(&mut self, name: &str, offset: usize, data: &[u8]) -> Result<(), ExecError> {
        let (pointer, bytes) = self.resident_at(name)?;
        ExecError::check_inside(name, bytes, offset, data.len())?;
        // SAFETY: the slot holds these bytes from the offset on; nobody else can borrow the arena meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), pointer.add(offset), data.len()) };
        Ok(())
    }
    fn read_resident(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let (pointer, bytes) = self.resident_range(name)?;
        // SAFETY: the slot holds these bytes.
        Some(Cow::Borrowed(unsafe { std::slice::from_raw_parts(pointer, bytes) }))
    }
    fn read_output(&self, phase: usize, name: &str) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(self.bytes_of(self.phases[phase].outputs.get(name)?)))
    }
    fn add_phases(&mut self, program: &Program, layout: &Layout) -> usize {
        CpuExecutor::add_phases(self, program, layout)
    }
    fn replace_phase(&mut self, phase: usize, program: &Program, layout: &Layout) -> bool {
        CpuExecutor::replace_phase(self, phase, program, layout);
        true
    }
    fn measured_bytes(&self) -> u64 {
        self.memory.arena.resident_bytes() as u64 + heap::used().peak_growth_bytes
    }
    fn run_timed(&mut self, phase: usize, seconds: &mut [f64]) {
        let mut last = Instant::now();
        self.run_watched(phase, |tick| {
            let now = Instant::now();
            seconds[tick] = (now - last).as_secs_f64();
            last = now;
        });
    }
}
