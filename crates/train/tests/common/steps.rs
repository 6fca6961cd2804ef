//! Small recipes built by hand and stepped on random data.

use super::{TARGET, options};
use plimsoll_base::heap;
use plimsoll_core::graph::InputKind;
use plimsoll_core::ops::SampleRng;
use plimsoll_core::plan::{Offload, Program, Recompute, lay_out};
use plimsoll_core::types::DType;
use plimsoll_exec::Executor;
use plimsoll_exec::cpu::{CpuExecutor, page_bytes};
use plimsoll_exec::initialize;
use plimsoll_models::families::{AttentionForm, FeedForwardForm};
use plimsoll_models::recipe::Recipe;
use plimsoll_planner::Device;
use plimsoll_planner::choose::{family, spec};
use plimsoll_planner::program::{Settings, program};
use std::collections::BTreeMap;

/// Between them every op of two families.
pub(crate) const HYBRID: &str = "[model]\nfamily = \"hybrid-cnn-lstm\"\nfeatures = 5\nwindow = 12\nchannels = [6, 10]\nhidden = 8\n\
    heads = 2\nclasses = 3\ndropout = 0.2\n[data]\nsource = \"synthetic:regimes\"\n[train]\ntask = \"series\"\n\
    effective_batch = 6\n";
pub(crate) const MU_SOTA: &str = "[model]\nfamily = \"mu-sota\"\nvocab = 257\nlayers = 2\nblocks = 4\nblock_width = 4\n\
    block_heads = 2\ncross_heads = 2\nffn = 24\nmax_length = 20\n[data]\nsource = \"synthetic:grammar\"\n\
    max_length = 20\n[train]\ntask = \"language-model\"\neffective_batch = 6\n";

pub(crate) fn recipe(text: &str, sets: &[&str]) -> Recipe {
    let sets: Vec<String> = sets.iter().map(|s| s.to_string()).collect();
    Recipe::parse(text, "small.toml", &sets).unwrap_or_else(|e| panic!("{e}"))
}

/// Nothing recomputed, cut up or elsewhere.
pub(crate) fn plain(recipe: &Recipe, micro_batch: usize) -> Settings {
    Settings {
        micro_batch,
        accumulation: recipe.train.effective_batch.div_ceil(micro_batch),
        recompute: Recompute::None,
        attention: AttentionForm::Fused,
        block_group: usize::MAX,
        loss_chunk: usize::MAX,
        feed_forward: FeedForwardForm::Plain,
        sharing: true,
        offload: Offload::NONE,
    }
}

pub(crate) fn build(recipe: &Recipe, settings: &Settings) -> Program {
    let device = Device::cpu(TARGET.threads, u64::MAX);
    program(family(&recipe.model).as_ref(), &spec(recipe, &device), settings).unwrap()
}

/// Three steps on random data, the same for every layout, dead slots poisoned: all residents by name, as bytes.
pub(crate) fn after_three_steps(
    program: &Program,
    settings: &Settings,
    sharing: bool,
    seed: u64,
) -> BTreeMap<String, Vec<u8>> {
    let layout = lay_out(program, options(sharing)).unwrap();
    let mut executor = CpuExecutor::new(program, &layout, TARGET.threads).unwrap();
    assert_eq!(executor.host_bytes(), layout.host_bytes.next_multiple_of(page_bytes()));
    executor.poison_dead_slots();
    initialize(program, &mut executor, 1).unwrap();
    let step = program.phase("step").or(program.phase("micro-step")).unwrap();
    let mut rng = SampleRng::new(seed);
    for number in 0..3i64 {
        write_scalars(&mut executor);
        for micro in 0..settings.accumulation {
            let first_sample = (micro * settings.micro_batch) as i64;
            if executor.read_resident("rng").is_some() {
                executor.write_resident("rng", bytemuck::cast_slice(&[7i64, number, first_sample])).unwrap();
            }
            write_random_inputs(program, step, &mut executor, &mut rng);
            executor.run(step);
        }
        if let Some(update) = program.phase("update") {
            executor.run(update);
        }
    }
    let read = |name: &str| executor.read_resident(name).unwrap().into_owned();
    let all: BTreeMap<String, Vec<u8>> = program.residents.iter().map(|r| (r.name.clone(), read(&r.name))).collect();
    assert!(scalar(&all, "metrics.loss").is_finite() && scalar(&all, "metrics.norm") > 0.0);
    all
}

pub(crate) fn scalar(residents: &BTreeMap<String, Vec<u8>>, name: &str) -> f64 {
    f32::from_le_bytes(residents[name][..].try_into().unwrap()) as f64
}

/// Those that a program does not have are left out.
fn write_scalars(executor: &mut CpuExecutor) {
    let scalars = [
        ("lr", 1e-2),
        ("loss.scale", 0.05),
        ("adam.correction1", 0.1),
        ("adam.correction2", 0.001),
        ("adafactor.step", 2.0),
        ("metrics.loss", 0.0),
        ("metrics.correct", 0.0),
        ("metrics.norm", 0.0),
    ];
    for (name, value) in scalars {
        if executor.read_resident(name).is_none() {
            continue;
        }
        executor.write_resident(name, &(value as f32).to_le_bytes()).unwrap();
    }
}

fn write_random_inputs(program: &Program, phase: usize, executor: &mut CpuExecutor, rng: &mut SampleRng) {
    for value in program.phases[phase].graph.values().iter().filter(|v| v.input == Some(InputKind::Data)) {
        let n = value.ty.elements();
        let bytes: Vec<u8> = match (value.ty.dtype, &*value.name) {
            (DType::F32, "weight" | "weights") => (0..n).flat_map(|_| 1f32.to_le_bytes()).collect(),
            (DType::F32, _) => (0..n).flat_map(|_| (rng.normal() as f32).to_le_bytes()).collect(),
            (_, "mask") => (0..n).flat_map(|_| 1i32.to_le_bytes()).collect(),
            _ => (0..n).flat_map(|_| (rng.size(0, 1) as i32).to_le_bytes()).collect(),
        };
        executor.write_input(phase, &value.name, &bytes).unwrap();
    }
}

/// Steps allocate nothing, and the arena is what was planned.
pub(crate) fn check_memory(program: &Program) {
    let layout = lay_out(program, options(true)).unwrap();
    let mut executor = CpuExecutor::new(program, &layout, TARGET.threads).unwrap();
    initialize(program, &mut executor, 1).unwrap();
    let (mut rng, step) = (SampleRng::new(3), program.phase("step").unwrap());
    write_random_inputs(program, step, &mut executor, &mut rng);
    // The first run starts the pool's threads.
    Executor::run(&mut executor, step);
    heap::reset();
    for _ in 0..3 {
        write_random_inputs(program, step, &mut executor, &mut rng);
        Executor::run(&mut executor, step);
    }
    assert_eq!(heap::used().allocations, 0, "a step allocated");
    let (measured, planned) = (executor.measured_bytes(), layout.arena_bytes as u64);
    assert!(measured >= planned - planned / 50 && measured <= planned + page_bytes() as u64, "{measured} of {planned}");
}
