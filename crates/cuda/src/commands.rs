//! A phase as a list of commands with everything resolved: put on a stream one by one, or captured once and replayed.

use super::blas::{Blas, Product};
use super::driver::{Stream, check};
use super::lanes::{Turn, turns};
use super::launches::Shares;
use super::modules::Modules;
use super::{Bases, record_phase};
use cudarc::driver::sys;
use plimsoll_core::kernels::cuda::{Arg, CudaError, Grid, Kernel, Recorded, Sweep};
use plimsoll_core::plan::{Layout, Program};
use smallvec::SmallVec;
use std::ffi::c_void;
use std::ops::Range;

pub(super) enum Command {
    Kernel { function: sys::CUfunction, grid: Grid, args: Args },
    Product(Box<Product>),
    Fill { address: u64, byte: u8, bytes: usize },
    Copy { to: u64, from: u64, bytes: usize },
}

impl Command {
    pub(crate) fn put(&self, blas: &Blas, stream: &Stream) -> Result<(), CudaError> {
        match self {
            Command::Kernel { function, grid, args } => launch(*function, *grid, args, stream),
            Command::Product(product) => blas.run(product, stream),
            Command::Fill { address, byte, bytes } => stream.fill(*address, *byte, *bytes),
            Command::Copy { to, from, bytes } => stream.copy(*to, *from, *bytes),
        }
    }
}

/// A kernel's arguments, one after the other: a number or an address takes a word, a table of sets many.
#[derive(Default)]
pub(super) struct Args {
    words: Vec<u64>,
    /// Where each begins.
    starts: Vec<usize>,
}

impl Args {
    fn push(&mut self, words: &[u64]) {
        self.starts.push(self.words.len());
        self.words.extend_from_slice(words);
    }

    fn of(args: &[Arg]) -> Args {
        let mut all = Args::default();
        args.iter().for_each(|arg| all.push(&[bits(arg)]));
        all
    }

    fn of_sweep(sweep: &Sweep) -> Args {
        let mut all = Args::default();
        all.push(&sweep.table());
        all.push(&[sweep.sets.len() as u64]);
        sweep.shared.iter().for_each(|arg| all.push(&[bits(arg)]));
        all
    }
}

fn launch(function: sys::CUfunction, grid: Grid, args: &Args, stream: &Stream) -> Result<(), CudaError> {
    // The driver reads as many bytes of each as the kernel declares: little-endian, so from the front.
    let mut pointers: SmallVec<[*mut c_void; 12]> =
        args.starts.iter().map(|&start| (&args.words[start] as *const u64 as *mut u64).cast()).collect();
    let (Grid { blocks: [bx, by, bz], threads: [tx, ty, tz], shared_bytes }, none) = (grid, std::ptr::null_mut());
    // SAFETY: the arguments are those that the op declared for its kernel, and addresses lie in the arena.
    let answer = unsafe {
        sys::cuLaunchKernel(function, bx, by, bz, tx, ty, tz, shared_bytes, stream.0, pointers.as_mut_ptr(), none)
    };
    check("cuLaunchKernel", answer)
}

fn bits(arg: &Arg) -> u64 {
    match *arg {
        Arg::Address(n) | Arg::U64(n) => n,
        Arg::I64(n) => n as u64,
        Arg::U32(n) => n.into(),
        Arg::I32(n) => (n as u32).into(),
        Arg::F32(x) => x.to_bits().into(),
    }
}

/// What turns launches into commands.
pub(super) struct Preparer<'a> {
    pub modules: &'a mut Modules,
    pub blas: &'a mut Blas,
    pub stream: &'a Stream,
    /// Where the memories start, and the part of the arena that no resident lives in.
    pub bases: Bases,
    pub scratch: Range<u64>,
    pub tf32: bool,
}

/// The commands of a phase, and whose work each of them does.
pub(super) struct Commands {
    pub list: Vec<Command>,
    pub shares: Vec<Shares>,
    /// Of each, where some go from or to the host; none otherwise.
    pub turns: Vec<Turn>,
}

impl Preparer<'_> {
    pub(crate) fn phase(&mut self, program: &Program, layout: &Layout, phase: usize) -> Result<Commands, CudaError> {
        let launches = record_phase(program, layout, phase, self.bases, self.tf32, self.modules.arch())?;
        let kernels: Vec<Kernel> = launches.iter().filter_map(|joined| joined.launch.kernel()).collect();
        self.modules.load(&kernels)?;
        let list = launches.iter().map(|joined| self.command(&joined.launch)).collect::<Result<_, _>>()?;
        self.blas.save();
        let turns = turns(&launches);
        Ok(Commands { list, turns, shares: launches.into_iter().map(|joined| joined.shares).collect() })
    }

    fn command(&mut self, launch: &Recorded) -> Result<Command, CudaError> {
        Ok(match launch {
            Recorded::Kernel { kernel, grid, args } => Command::Kernel {
                function: self.modules.function(kernel, grid.shared_bytes)?,
                grid: *grid,
                args: Args::of(args),
            },
            Recorded::Sweep(sweep) => Command::Kernel {
                function: self.modules.function(&sweep.kernel(), 0)?,
                grid: sweep.grid(),
                args: Args::of_sweep(sweep),
            },
            Recorded::Gemm(gemm) => {
                Command::Product(Box::new(self.blas.prepare(gemm, self.stream, self.scratch.clone())?))
            }
            &Recorded::Fill { address, byte, bytes } => Command::Fill { address, byte, bytes },
            &Recorded::Copy { to, from, bytes } => Command::Copy { to, from, bytes },
        })
    }
}

/// A captured phase.
pub(super) struct Graph(sys::CUgraphExec);

impl Graph {
    /// Records what `put` puts on the stream, without running it.
    pub(crate) fn capture(stream: &Stream, put: impl FnOnce() -> Result<(), CudaError>) -> Result<Graph, CudaError> {
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
        let (mut graph, mut ready) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the capture is ended whatever happens in between; the graph is freed once it is instantiated.
        unsafe {
            check("cuStreamBeginCapture", sys::cuStreamBeginCapture_v2(stream.0, mode))?;
            let put = put();
            let ended = check("cuStreamEndCapture", sys::cuStreamEndCapture(stream.0, &mut graph));
            put.and(ended)?;
            let made = check("cuGraphInstantiate", sys::cuGraphInstantiateWithFlags(&mut ready, graph, 0));
            sys::cuGraphDestroy(graph);
            made?;
            let captured = Graph(ready);
            // Takes its memory now, not in the first step.
            check("cuGraphUpload", sys::cuGraphUpload(ready, stream.0))?;
            Ok(captured)
        }
    }

    pub(crate) fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: the graph exists, and what it reads and writes lies in the arena.
        unsafe { check("cuGraphLaunch", sys::cuGraphLaunch(self.0, stream.0)) }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: instantiated in `capture`; the stream is waited for before anything is dropped.
        unsafe { sys::cuGraphExecDestroy(self.0) };
    }
}
