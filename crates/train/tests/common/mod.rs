//! Shared by the integration tests: run a graph once, with or without sharing memory.
#![allow(dead_code)]

pub(crate) mod case;
pub(crate) mod golden;
pub(crate) mod random_graph;
pub(crate) mod steps;

use plimsoll_core::graph::Graph;
use plimsoll_core::graph::Target;
use plimsoll_core::plan::{Layout, LayoutOptions, Phase, Program, lay_out};
use plimsoll_core::types::DType;
use plimsoll_exec::cpu::CpuExecutor;

pub(crate) const TARGET: Target = Target::cpu(2);

pub(crate) fn options(sharing: bool) -> LayoutOptions {
    LayoutOptions { target: TARGET, sharing }
}

/// The same seed in every run of the gate, so that a red gate is somebody's change; another one from the clock with
/// PLIMSOLL_FRESH=1, or the one in PLIMSOLL_TEST_SEED to repeat a failure. Print it.
pub(crate) fn fresh_seed() -> u64 {
    let clock = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    seed_or(if std::env::var_os("PLIMSOLL_FRESH").is_some() { clock() } else { 20_261_116 })
}

/// All of `rounds` where fresh seeds are asked for, a fifth of them in the gate.
pub(crate) fn rounds(rounds: usize) -> usize {
    if std::env::var_os("PLIMSOLL_FRESH").is_some() { rounds } else { rounds / 5 }
}

/// The seed in PLIMSOLL_TEST_SEED, or this one.
pub(crate) fn seed_or(otherwise: u64) -> u64 {
    std::env::var("PLIMSOLL_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(otherwise)
}

/// A graph as a program of one phase, with its executor.
pub(crate) struct Run {
    pub program: Program,
    pub layout: Layout,
    pub executor: CpuExecutor,
}

impl Run {
    pub(crate) fn new(graph: Graph, sharing: bool) -> Run {
        let program = Program::new(vec![Phase { name: "only".into(), graph, repeat: 1 }]).unwrap();
        let layout = lay_out(&program, options(sharing)).unwrap();
        let mut executor = CpuExecutor::new(&program, &layout, TARGET.threads).unwrap();
        executor.poison_dead_slots();
        Run { program, layout, executor }
    }

    /// Writes an input or resident from f64 values, converted to its own type.
    pub(crate) fn write(&mut self, name: &str, values: &[f64]) {
        let graph = &self.program.phases[0].graph;
        let id = graph.find(name).unwrap();
        let (dtype, resident) = (graph.ty(id).dtype, graph.value(id).is_resident());
        let e = &mut self.executor;
        macro_rules! fill {
            ($t:ty) => {{
                let to = if resident { e.resident_mut::<$t>(name) } else { e.input_mut::<$t>(0, name) };
                to.unwrap().iter_mut().zip(values).for_each(|(to, &x)| *to = x as $t);
            }};
        }
        match dtype {
            DType::F32 => fill!(f32),
            DType::F64 => fill!(f64),
            DType::I32 => fill!(i32),
            DType::I64 => fill!(i64),
            other => panic!("no test writes {other:?}"),
        }
    }

    /// Reads a kept value or resident as f64.
    pub(crate) fn read(&self, name: &str) -> Vec<f64> {
        let e = &self.executor;
        let as_f32 = e.output::<f32>(0, name).or_else(|| e.resident::<f32>(name));
        let as_f64 = || e.output::<f64>(0, name).or_else(|| e.resident::<f64>(name));
        match as_f32 {
            Some(values) => values.iter().map(|&x| x as f64).collect(),
            None => as_f64().unwrap_or_else(|| panic!("{name} is not readable")).to_vec(),
        }
    }

    pub(crate) fn run(&mut self) {
        self.executor.run(0);
    }
}

/// ‖a − b‖ / max(‖b‖, floor). Equal infinities (the log-sum-exp of a row that sees nothing) do not differ.
pub(crate) fn relative(a: &[f64], b: &[f64], floor: f64) -> f64 {
    assert_eq!(a.len(), b.len());
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let difference = norm(&mut a.iter().zip(b).map(|(x, y)| if x == y { 0.0 } else { x - y }));
    difference / norm(&mut b.iter().copied().filter(|x| !x.is_infinite())).max(floor)
}
