//! Compiles the kernels that the ops and the shipped recipes launch, for every architecture, without a GPU:
//! `cuda_kernels [--all] [--only TEXT] [--arch N]…` from the root of the repository. Needs libnvrtc:
//! tools/cuda/compile-kernels brings it.
//!
//! The samples of every op and their gradients are put on a queue that only looks, in f32, bf16 and f16; so are the
//! programs of the shipped recipes in every precision. What comes out is compiled, and its registers and shared memory
//! are held against what a block of that architecture has. A file or kernel that nothing launches is an error: what is
//! never compiled is never checked.

#[path = "../tests/common/case.rs"]
#[allow(dead_code)]
mod case;
#[path = "cuda/cubin.rs"]
mod cubin;
#[path = "cuda/launches.rs"]
mod launches;
#[path = "cuda/modules.rs"]
mod modules;
#[path = "cuda/programs.rs"]
mod programs;

use cubin::{Resources, resources};
use launches::Launches;
use modules::{Module, covering, modules, told_apart};
use plimsoll_core::kernels::cuda::CudaError;
use plimsoll_cuda::Compiler;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// An architecture that machine code is made for: compute capability 7.5 is 75.
#[derive(Clone, Copy)]
struct Arch {
    number: u32,
    /// The most shared memory of a block.
    shared_bytes: u32,
}

impl Arch {
    /// Those that its machine code stands for: 8.6 for all, where they launch the same.
    fn stands_for(self) -> impl Iterator<Item = Arch> {
        ARCHS.into_iter().filter(move |arch| self.number == 86 || arch.number == self.number)
    }
}

const ARCHS: [Arch; 6] = [
    Arch { number: 75, shared_bytes: 64 << 10 },
    Arch { number: 80, shared_bytes: 163 << 10 },
    Arch { number: 86, shared_bytes: 99 << 10 },
    Arch { number: 89, shared_bytes: 99 << 10 },
    Arch { number: 90, shared_bytes: 227 << 10 },
    Arch { number: 120, shared_bytes: 99 << 10 },
];
const REGISTERS_PER_BLOCK: u32 = 65536;

/// Where the files of kernels are, beside their ops.
const SOURCES: &str = "crates/core/src/ops";
const CACHE: &str = "target/cubins";

/// One module for one architecture.
struct Compiled<'a> {
    module: &'a Module,
    arch: Arch,
    found: Result<BTreeMap<String, Resources>, CudaError>,
    took: Duration,
}

impl Compiled<'_> {
    fn new<'a>(compiler: &Compiler, arch: Arch, module: &'a Module) -> Compiled<'a> {
        let start = Instant::now();
        let damaged = || CudaError::Compile {
            source_name: module.kernel.source.name,
            arch: arch.number,
            log: "the compiler's answer is no cubin".into(),
        };
        let found = compiler.cubin(&module.kernel).and_then(|cubin| resources(&cubin).ok_or_else(damaged));
        Compiled { module, arch, found, took: start.elapsed() }
    }

    /// What is wrong with it.
    fn faults(&self) -> Vec<String> {
        let found = match &self.found {
            Ok(found) => found,
            Err(error) => return vec![format!("{error}\n{}", self.module)],
        };
        let mut faults = Vec::new();
        for (&entry, need) in &self.module.launched {
            let place = format!("{entry} for sm_{} of {}", self.arch.number, self.module);
            let Some(used) = found.get(entry) else {
                faults.push(format!("{place}: there is no such kernel in the file"));
                continue;
            };
            let (shared, registers) = (used.shared_bytes + need.shared_bytes, used.registers * need.threads);
            let launching = self.arch.stands_for().filter(|arch| need.archs().contains(&arch.number));
            for Arch { number, .. } in launching.filter(|arch| shared > arch.shared_bytes) {
                faults.push(format!("{place}: {shared} bytes of shared memory, more than sm_{number} has"));
            }
            if registers > REGISTERS_PER_BLOCK {
                faults.push(format!("{place}: {} registers × {} threads do not fit", used.registers, need.threads));
            }
        }
        faults
    }
}

/// What is compiled for what: modules with the places of architectures, by file.
fn jobs<'a>(modules: &'a [Module], archs: &[Arch], is_every: bool) -> Vec<(&'a Module, usize)> {
    let asked = |arch: &Arch| {
        let is_its_own = |module: &Module| module.is_for(arch.number) && (is_every || module.is_apart(arch.number));
        let mut asked: BTreeSet<usize> = (0..modules.len()).filter(|&index| is_its_own(&modules[index])).collect();
        asked.extend(told_apart(modules, arch.number));
        asked
    };
    let places = archs.iter().enumerate();
    let jobs: BTreeSet<(usize, usize)> =
        places.flat_map(|(at, arch)| asked(arch).into_iter().map(move |m| (m, at))).collect();
    jobs.into_iter().map(|(index, at)| (&modules[index], at)).collect()
}

/// Compiles everything, on all cores.
fn compile<'a>(jobs: &[(&'a Module, usize)], archs: &[Arch]) -> Result<Vec<Compiled<'a>>, CudaError> {
    let new = |arch: &Arch| Compiler::new(arch.number, Some(PathBuf::from(CACHE)));
    let compilers = archs.iter().map(new).collect::<Result<Vec<_>, _>>()?;
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(&(module, at)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let compiled = Compiled::new(&compilers[at], archs[at], module);
            done.lock().unwrap_or_else(|e| e.into_inner()).push(compiled);
        }
    };
    std::thread::scope(|scope| {
        (0..std::thread::available_parallelism().map_or(1, usize::from)).for_each(|_| _ = scope.spawn(work));
    });
    Ok(done.into_inner().unwrap_or_else(|e| e.into_inner()))
}

/// Compiled kernels, and files beside the ops, that nothing launches.
fn unreached(launches: &Launches, compiled: &[Compiled<'_>]) -> Result<BTreeSet<String>, Box<dyn Error>> {
    let launched: BTreeSet<(&str, &str)> = launches.kernels.keys().map(|k| (k.source.name, k.entry)).collect();
    let mut unreached = BTreeSet::new();
    for (name, found) in compiled.iter().filter_map(|c| Some((c.module.kernel.source.name, c.found.as_ref().ok()?))) {
        let idle = found.keys().filter(|entry| !launched.contains(&(name, entry.as_str())));
        unreached.extend(idle.map(|entry| format!("{name}.cu: nothing launches {entry}")));
    }
    let files: BTreeSet<&str> = launched.iter().map(|(name, _)| *name).collect();
    let idle = sources(Path::new(SOURCES))?.into_iter().filter(|name| !files.contains(name.as_str()));
    unreached.extend(idle.map(|name| format!("{name}.cu: nothing launches a kernel of this file")));
    Ok(unreached)
}

/// The names of all `.cu` files below a folder, as `Source` has them: `attention/tile`.
fn sources(folder: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(stem) = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()) else { continue };
        if path.is_dir() {
            names.extend(sources(&path)?.into_iter().map(|name| format!("{stem}/{name}")));
        } else if path.extension().is_some_and(|extension| extension == "cu") {
            names.push(stem);
        }
    }
    Ok(names)
}

fn print_slowest(mut compiled: Vec<Compiled<'_>>) {
    compiled.sort_by_key(|c| std::cmp::Reverse(c.took));
    for Compiled { module, arch, took, .. } in compiled.iter().take(3) {
        println!("{:5.1} s for sm_{} of {module}", took.as_secs_f64(), arch.number);
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let values = |flag: &str| arguments.windows(2).filter(|w| w[0] == flag).map(|w| w[1].clone()).collect::<Vec<_>>();
    let (only, chosen) = (values("--only").pop(), values("--arch"));
    let is_chosen = |arch: &Arch| chosen.is_empty() || chosen.contains(&arch.number.to_string());
    let archs: Vec<Arch> = ARCHS.into_iter().filter(is_chosen).collect();
    if archs.is_empty() {
        return Err("--arch takes one of 75, 80, 86, 89, 90, 120".into());
    }
    let start = Instant::now();
    let launches = Launches::record()?;
    let all = modules(&launches.kernels);
    let count = all.len();
    let is_every = arguments.iter().any(|argument| argument == "--all");
    let mut modules = if is_every { all } else { covering(all) };
    modules.retain(|module| only.as_ref().is_none_or(|text| module.kernel.source.name.contains(text)));
    let jobs = jobs(&modules, &archs, is_every || !chosen.is_empty());
    println!(
        "{} of {count} modules for {} architectures, {} in all, found in {:.0} s",
        modules.len(),
        archs.len(),
        jobs.len(),
        start.elapsed().as_secs_f64()
    );
    let start = Instant::now();
    let compiled = compile(&jobs, &archs)?;
    println!("compiled in {:.0} s, longest:", start.elapsed().as_secs_f64());
    let mut wrong: BTreeSet<String> = compiled.iter().flat_map(Compiled::faults).collect();
    wrong.extend(unreached(&launches, &compiled)?);
    wrong.extend(launches.wrong);
    print_slowest(compiled);
    wrong.iter().for_each(|text| println!("WRONG {text}"));
    println!("{} wrong", wrong.len());
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
