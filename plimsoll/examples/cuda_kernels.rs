//! Compiles every kernel that any op or any shipped recipe launches, for every architecture, without a GPU:
//! `cuda_kernels [--few] [--only TEXT] [--arch N]…` from the root of the repository. Needs libnvrtc:
//! tools/cuda/compile-kernels brings it.
//!
//! The samples of every op and their gradients are put on a queue that only looks, in f32, bf16 and f16; so are the
//! programs of the shipped recipes in every precision. What comes out is compiled, and its registers and shared memory
//! are held against what a block of that architecture has.

#[path = "../tests/common/case.rs"]
#[allow(dead_code)]
mod case;
#[path = "cuda/cubin.rs"]
mod cubin;
#[path = "cuda/programs.rs"]
mod programs;

use cubin::resources;
use plimsoll::exec::cuda::{Bases, Compiler, CudaError, Grid, Kernel, Recorded, Recorder, record_node};
use plimsoll::graph::DType;
use plimsoll::ops::Target;
use plimsoll::plan::{Layout, LayoutOptions, Phase, Program, lay_out};
use programs::{ON_CARDS_ONLY, PRECISIONS, SHIPPED};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Compute capabilities that machine code is made for, with the most shared memory of a block there.
const ARCHS: [(u32, u32); 6] =
    [(75, 64 << 10), (80, 163 << 10), (86, 99 << 10), (89, 99 << 10), (90, 227 << 10), (120, 99 << 10)];
const REGISTERS_PER_BLOCK: u32 = 65536;
/// Ops have other kernels from these on.
const GENERATIONS: [u32; 2] = [75, 90];
/// Aligned as device memory is; nothing is ever read there.
const BASES: Bases = Bases { device: 1 << 40, host: 1 << 44 };

/// Kernels with the most that a launch asks for, what has no kernel, and what no device would launch.
#[derive(Default)]
struct Seen {
    kernels: HashMap<Kernel, Need>,
    missing: BTreeSet<String>,
    wrong: BTreeSet<String>,
}

#[derive(Clone, Copy)]
struct Need {
    threads: u32,
    shared_bytes: u32,
    /// The first generation that launches it.
    since: u32,
}

impl Seen {
    fn samples(&mut self) {
        for (name, case) in case::cases(1, 3) {
            for float in [DType::F32, DType::Bf16, DType::F16] {
                // Not every op takes its inputs in half precision; what does not build is not launched either.
                let Ok(built) = case.build(float, case.is_differentiable()) else { continue };
                let phase = Phase { name: "only".into(), graph: built.graph, repeat: 1 };
                let options = LayoutOptions { target: Target::CUDA, sharing: true };
                let laid_out = Program::new(vec![phase]).and_then(|p| lay_out(&p, options).map(|l| (p, l)));
                match laid_out {
                    Ok((program, layout)) => self.program(name, &program, &layout),
                    Err(error) => _ = self.wrong.insert(format!("{name}: {error}")),
                }
            }
        }
    }

    fn recipes(&mut self) -> Result<(), Box<dyn Error>> {
        for shipped in SHIPPED.iter().chain(&ON_CARDS_ONLY) {
            for precision in PRECISIONS {
                let choice = shipped.planned(precision)?.choice;
                self.program(&format!("{} in {precision}", shipped.name), &choice.program, &choice.layout);
            }
        }
        Ok(())
    }

    fn program(&mut self, who: &str, program: &Program, layout: &Layout) {
        for (phase, plan) in layout.phases.iter().enumerate() {
            let each = |arch: u32| plan.order.iter().flat_map(move |&id| [(id, arch, false), (id, arch, true)]);
            for (id, arch, tf32) in GENERATIONS.into_iter().flat_map(each) {
                let mut recorder = Recorder { arch, ..Recorder::default() };
                match record_node(program, layout, phase, id, BASES, tf32, &mut recorder) {
                    Ok(()) => recorder.launches.into_iter().for_each(|launch| self.launch(who, arch, launch)),
                    Err(CudaError::NoKernel { op, dtype }) => {
                        let kind = op.split([' ', '{', '(']).next().unwrap_or(&op);
                        self.missing.insert(format!("{kind} in {}", dtype.name()));
                    }
                    Err(error) => _ = self.wrong.insert(format!("{who}: {error}")),
                }
            }
        }
    }

    fn launch(&mut self, who: &str, arch: u32, launch: Recorded) {
        match launch {
            Recorded::Kernel { kernel, grid, .. } => self.kernel(who, arch, kernel, grid),
            // However many it is joined with.
            Recorded::Sweep(sweep) => {
                sweep.kernels().for_each(|(_, kernel)| self.kernel(who, arch, kernel, sweep.grid()))
            }
            _ => {}
        }
    }

    fn kernel(&mut self, who: &str, arch: u32, kernel: Kernel, grid: Grid) {
        if !is_legal(grid) {
            self.wrong.insert(format!("{who}: {} asks for {grid:?}", kernel.entry));
        }
        let need = self.kernels.entry(kernel).or_insert(Need { threads: 0, shared_bytes: 0, since: arch });
        need.since = need.since.min(arch);
        need.threads = need.threads.max(grid.threads.iter().product());
        need.shared_bytes = need.shared_bytes.max(grid.shared_bytes);
    }
}

fn is_legal(grid: Grid) -> bool {
    let ([x, y, z], threads) = (grid.blocks, grid.threads.iter().product::<u32>());
    (1..=1024).contains(&threads) && (1..1 << 31).contains(&x) && [y, z].iter().all(|n| (1..65536).contains(n))
}

/// All kernels of one file under the same macros are one compilation.
fn modules(seen: &HashMap<Kernel, Need>, only: Option<&str>) -> Vec<Vec<(Kernel, Need)>> {
    let mut modules: HashMap<_, Vec<(Kernel, Need)>> = HashMap::new();
    for (kernel, &need) in seen.iter().filter(|(kernel, _)| only.is_none_or(|text| kernel.source.name.contains(text))) {
        modules.entry((kernel.source, kernel.defines.clone())).or_default().push((kernel.clone(), need));
    }
    let mut modules: Vec<_> = modules.into_values().collect();
    modules.sort_by_key(|kernels| (kernels[0].0.source.name, format!("{:?}", kernels[0].0.defines)));
    modules
}

/// Of each file and element type the module with the most that its launches ask for.
fn few(modules: Vec<Vec<(Kernel, Need)>>) -> Vec<Vec<(Kernel, Need)>> {
    let size = |module: &[(Kernel, Need)]| {
        let shared = module.iter().map(|(_, need)| need.shared_bytes).max();
        (shared, format!("{:?}", module[0].0.defines).len(), module.len())
    };
    let mut chosen: BTreeMap<(&str, String), Vec<(Kernel, Need)>> = BTreeMap::new();
    for module in modules {
        let kernel = &module[0].0;
        let element = kernel.defines.iter().find(|(name, _)| *name == "T").map(|(_, value)| value.clone());
        let key = (kernel.source.name, element.unwrap_or_default());
        if chosen.get(&key).is_none_or(|other| size(other) < size(&module)) {
            chosen.insert(key, module);
        }
    }
    chosen.into_values().collect()
}

/// Compiles one module for one architecture; what is wrong with it.
fn check(compiler: &Compiler, (arch, shared_limit): (u32, u32), module: &[(Kernel, Need)]) -> Vec<String> {
    let cubin = match compiler.cubin(&module[0].0) {
        Ok(cubin) => cubin,
        Err(error) => return vec![format!("{error}\n{:?}", module[0].0.defines)],
    };
    let Some(found) = resources(&cubin) else { return vec!["the compiler's answer is no cubin".into()] };
    let mut wrong = Vec::new();
    for (kernel, need) in module {
        let place = format!("{}.cu {} sm_{arch} {:?}", kernel.source.name, kernel.entry, kernel.defines);
        let Some(used) = found.get(kernel.entry) else {
            wrong.push(format!("{place}: there is no such kernel in the file"));
            continue;
        };
        let (shared, registers) = (used.shared_bytes + need.shared_bytes, used.registers * need.threads);
        if shared > shared_limit {
            wrong.push(format!("{place}: {shared} bytes of shared memory, a block has {shared_limit}"));
        }
        if registers > REGISTERS_PER_BLOCK {
            wrong.push(format!("{place}: {} registers × {} threads do not fit", used.registers, need.threads));
        }
    }
    wrong
}

/// Compiles everything, on all cores.
fn check_all(modules: &[Vec<(Kernel, Need)>], archs: &[(u32, u32)]) -> Result<Vec<String>, CudaError> {
    let cache = || Some(PathBuf::from("target/cubins"));
    let compilers = archs.iter().map(|&(arch, _)| Compiler::new(arch, cache())).collect::<Result<Vec<_>, _>>()?;
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((module, at)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            modules.get(index / archs.len()).map(|module| (module, index % archs.len()))
        } {
            if module.iter().any(|(_, need)| need.since > archs[at].0) {
                continue;
            }
            let found = check(&compilers[at], archs[at], module);
            wrong.lock().unwrap_or_else(|e| e.into_inner()).extend(found);
        }
    };
    std::thread::scope(|scope| {
        (0..std::thread::available_parallelism().map_or(1, usize::from)).for_each(|_| _ = scope.spawn(work));
    });
    Ok(wrong.into_inner().unwrap_or_else(|e| e.into_inner()))
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let values = |flag: &str| arguments.windows(2).filter(|w| w[0] == flag).map(|w| w[1].clone()).collect::<Vec<_>>();
    let (only, chosen) = (values("--only").pop(), values("--arch"));
    let archs: Vec<(u32, u32)> =
        ARCHS.into_iter().filter(|(arch, _)| chosen.is_empty() || chosen.contains(&arch.to_string())).collect();
    let mut seen = Seen::default();
    seen.samples();
    seen.recipes()?;
    let mut modules = modules(&seen.kernels, only.as_deref());
    if arguments.iter().any(|argument| argument == "--few") {
        modules = few(modules);
    }
    let kernels: usize = modules.iter().map(Vec::len).sum();
    println!("{kernels} kernels in {} modules for {} architectures", modules.len(), archs.len());
    let mut wrong = check_all(&modules, &archs)?;
    wrong.extend(seen.wrong);
    wrong.sort();
    seen.missing.iter().for_each(|op| println!("no kernel: {op}"));
    wrong.iter().for_each(|text| println!("WRONG {text}"));
    println!("{} wrong, {} without a kernel", wrong.len(), seen.missing.len());
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
