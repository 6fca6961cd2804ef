//! Every kernel that any op or any shipped recipe launches, found by putting them on a queue that only looks.

use crate::case;
use crate::programs::{ON_CARDS_ONLY, PRECISIONS, SHIPPED};
use plimsoll_core::graph::Target;
use plimsoll_core::graph::{Component, Graph, Init};
use plimsoll_core::kernels::cuda::{CudaError, Grid, Kernel, Recorded, Recorder};
use plimsoll_core::ops::{MatMul, Permute};
use plimsoll_core::plan::{Layout, LayoutOptions, Phase, Program, lay_out};
use plimsoll_core::types::{DType, Type};
use plimsoll_cuda::{Bases, record_node};
use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::ops::Range;

/// Aligned as device memory is; nothing is ever read there.
const BASES: Bases = Bases { device: 1 << 40, host: 1 << 44 };

/// Ops have other kernels from these on.
const GENERATIONS: [u32; 3] = [75, 90, 120];

/// What kernels compute in.
const FLOATS: [DType; 3] = [DType::F32, DType::Bf16, DType::F16];

/// Kernels with the most that a launch asks for, and what no device would launch.
#[derive(Default)]
pub struct Launches {
    pub kernels: HashMap<Kernel, Need>,
    pub wrong: BTreeSet<String>,
}

#[derive(Clone, Copy)]
pub struct Need {
    pub threads: u32,
    pub shared_bytes: u32,
    /// The first generation that launches it.
    pub since: u32,
    /// The last generation that launches it.
    pub until: u32,
}

impl Need {
    /// The architectures that launch it: up to the next generation, all have the kernels of the last.
    pub fn archs(&self) -> Range<u32> {
        let next = GENERATIONS.into_iter().find(|&generation| generation > self.until);
        self.since..next.unwrap_or(u32::MAX)
    }
}

impl Launches {
    pub fn record() -> Result<Launches, Box<dyn Error>> {
        let mut launches = Launches::default();
        launches.samples();
        launches.strided_products()?;
        launches.recipes()?;
        Ok(launches)
    }

    fn samples(&mut self) {
        for (name, case) in case::cases(1, 3) {
            for float in FLOATS {
                // Not every op takes its inputs in half precision; what does not build is not launched either.
                let Ok(built) = case.build(float, case.is_differentiable()) else { continue };
                self.graph(name, built.graph);
            }
        }
    }

    /// Samples are contiguous; where neither rows nor columns lie side by side, products have a kernel of their own.
    fn strided_products(&mut self) -> Result<(), Box<dyn Error>> {
        for float in FLOATS {
            let mut graph = Graph::new("strided", float);
            let input = |graph: &mut Graph, name: &str, shape: &[usize]| {
                graph.resident(name, Type::new(float, shape), Component::Inputs, Init::Zeros)
            };
            let a = input(&mut graph, "a", &[20, 30, 2])?;
            let [b, total] = [input(&mut graph, "b", &[2, 30, 40])?, input(&mut graph, "total", &[2, 20, 40])?];
            let a = graph.apply("turned", Permute { order: vec![2, 0, 1] }, &[a])?;
            graph.add("product", MatMul::PLAIN, &[a, b])?;
            graph.add("sum", MatMul { accumulate: true, ..MatMul::PLAIN }, &[a, b, total])?;
            self.graph("strided products", graph);
        }
        Ok(())
    }

    /// A program of this graph alone.
    fn graph(&mut self, who: &str, graph: Graph) {
        let phase = Phase { name: "only".into(), graph, repeat: 1 };
        let options = LayoutOptions { target: Target::CUDA, sharing: true };
        match Program::new(vec![phase]).and_then(|p| lay_out(&p, options).map(|l| (p, l))) {
            Ok((program, layout)) => self.program(who, &program, &layout),
            Err(error) => _ = self.wrong.insert(format!("{who}: {error}")),
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
                    Err(error) => _ = self.wrong.insert(refusal(who, error)),
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
        let unused = Need { threads: 0, shared_bytes: 0, since: arch, until: arch };
        let need = self.kernels.entry(kernel).or_insert(unused);
        need.since = need.since.min(arch);
        need.until = need.until.max(arch);
        need.threads = need.threads.max(grid.threads.iter().product());
        need.shared_bytes = need.shared_bytes.max(grid.shared_bytes);
    }
}

/// Sizes of the op are left out, so that it is named once.
fn refusal(who: &str, error: CudaError) -> String {
    match error {
        CudaError::NoKernel { op, dtype } => {
            let kind = op.split([' ', '{', '(']).next().unwrap_or(&op);
            format!("{who}: {kind} has no kernel in {}", dtype.name())
        }
        error => format!("{who}: {error}"),
    }
}

fn is_legal(grid: Grid) -> bool {
    let ([x, y, z], threads) = (grid.blocks, grid.threads.iter().product::<u32>());
    (1..=1024).contains(&threads) && (1..1 << 31).contains(&x) && [y, z].iter().all(|n| (1..65536).contains(n))
}
