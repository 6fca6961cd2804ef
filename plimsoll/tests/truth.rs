//! The number is true: for every recipe the plan adds up and hardly fragments; where it is run, what is measured is what
//! was planned, steps allocate nothing, and sharing or recomputing memory changes no bit.

mod common;

use common::fresh_seed;
use plimsoll::exec::Executor;
use plimsoll::exec::cpu::{CpuExecutor, page_bytes};
use plimsoll::heap;
use plimsoll::models::AttentionForm;
use plimsoll::ops::SampleRng;
use plimsoll::plan::{LayoutOptions, Offload, Program, Recompute, Summary, lay_out};
use plimsoll::recipe::Recipe;
use plimsoll::train::{Device, Settings, family, initialize, plan, program, spec};
use std::path::{Path, PathBuf};

#[global_allocator]
static HEAP: heap::CountingAllocator = heap::CountingAllocator;

fn recipes() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../recipes");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "toml"));
    files.sort();
    assert!(files.len() >= 5);
    files
}

fn device(free_bytes: u64) -> Device {
    Device::cpu(2, free_bytes)
}

#[test]
fn every_recipe_plans_with_little_fragmentation_and_a_breakdown_that_adds_up() {
    for path in recipes() {
        for gib in [6, 12, 24, 64] {
            let recipe = Recipe::load(&path, &[]).unwrap();
            let Ok(planned) = plan(&recipe, &device(gib << 30)) else { continue };
            let (program, layout) = (&planned.choice.program, &planned.choice.layout);
            let lost = layout.fragmentation_bytes() as f64 / layout.arena_bytes as f64;
            assert!(lost <= 0.02, "{} in {gib} GiB: {:.1} % lost to gaps", path.display(), 100.0 * lost);
            let summary = Summary::of(program, layout);
            assert_eq!(summary.breakdown.values().sum::<usize>(), layout.live_peak_bytes, "{}", path.display());
            assert_eq!(summary.layers.values().sum::<usize>(), layout.live_peak_bytes, "{}", path.display());
            assert_eq!(summary.live.iter().map(|b| b.bytes).sum::<usize>(), layout.live_peak_bytes);
            assert!(layout.arena_bytes as u64 <= planned.budget_bytes);
            let Settings { micro_batch, accumulation, .. } = planned.choice.settings;
            let effective = recipe.train.effective_batch;
            assert_eq!(effective.div_ceil(micro_batch), accumulation, "the effective batch is kept");
        }
    }
}

/// What PyTorch needed 59.6 GiB for.
#[test]
fn the_full_block_model_lives_in_eight_gibibytes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../recipes/mu-sota.toml");
    let sets = ["memory.micro_batch=32", "memory.recompute=layers", "memory.attention=fused"].map(String::from);
    let recipe = Recipe::load(&path, &sets).unwrap();
    assert_eq!((recipe.train.effective_batch, plimsoll::train::length(&recipe)), (32, 512));
    let planned = plan(&recipe, &device(24 << 30)).unwrap();
    assert_eq!(planned.choice.program.parameters(), 26_721_024);
    let live = planned.choice.layout.live_peak_bytes;
    println!("live peak {:.2} GiB", live as f64 / (1u64 << 30) as f64);
    assert!(live < 8 << 30, "{live} bytes");
}

/// Small enough to run here, and between them every op of both families.
fn small_recipes() -> Vec<Recipe> {
    let hybrid = "[model]\nfamily = \"hybrid-cnn-lstm\"\nfeatures = 5\nwindow = 12\nchannels = [6, 10]\nhidden = 8\n\
                  heads = 2\nclasses = 3\ndropout = 0.2\n[data]\nsource = \"synthetic:regimes\"\n[train]\n\
                  task = \"series\"\neffective_batch = 8\nepochs = 1\nclip_norm = 1.0\n";
    let mu_sota = "[model]\nfamily = \"mu-sota\"\nvocab = 257\nlayers = 2\nblocks = 4\nblock_width = 4\n\
                   block_heads = 2\ncross_heads = 2\nffn = 24\nmax_length = 20\n[data]\n\
                   source = \"synthetic:grammar\"\nmax_length = 20\n[train]\ntask = \"language-model\"\n\
                   effective_batch = 8\nepochs = 1\nclip_norm = 1.0\n";
    [hybrid, mu_sota].map(|text| Recipe::parse(text, "small.toml", &[]).unwrap()).into()
}

fn build(recipe: &Recipe, settings: &Settings) -> Program {
    program(family(&recipe.model).as_ref(), &spec(recipe, &device(u64::MAX)), settings).unwrap()
}

fn plain(recipe: &Recipe) -> Settings {
    Settings {
        micro_batch: recipe.train.effective_batch,
        accumulation: 1,
        recompute: Recompute::None,
        attention: AttentionForm::Fused,
        block_group: usize::MAX,
        loss_chunk: usize::MAX,
        sharing: true,
        offload: Offload::NONE,
    }
}

/// Runs three steps on random data, the same for every layout; all weights and moments as bits.
fn run_steps(program: &Program, settings: &Settings, sharing: bool, poison: bool, seed: u64) -> Vec<Vec<u8>> {
    let options = LayoutOptions { target: common::TARGET, sharing };
    let layout = lay_out(program, options).unwrap();
    let mut executor = CpuExecutor::new(program, &layout, options.target.threads).unwrap();
    if poison {
        executor.poison_dead_slots();
    }
    initialize(program, &mut executor, 1);
    let step = program.phase("step").or(program.phase("micro-step")).unwrap();
    for number in 0..3 {
        for (name, value) in
            [("lr", 1e-2), ("loss.scale", 0.05), ("adam.correction1", 0.1), ("adam.correction2", 0.001)]
        {
            executor.write_resident(name, &(value as f32).to_le_bytes());
        }
        for name in ["metrics.loss", "metrics.correct", "metrics.norm"] {
            executor.write_resident(name, &0f32.to_le_bytes());
        }
        let mut rng = SampleRng::new(seed + number);
        for micro in 0..settings.accumulation {
            let state: Vec<u8> = [7i64, number as i64, (micro * settings.micro_batch) as i64]
                .iter()
                .flat_map(|x| x.to_le_bytes())
                .collect();
            executor.write_resident("rng", &state);
            write_random_inputs(program, step, &mut executor, &mut rng);
            executor.run(step);
        }
        if let Some(update) = program.phase("update") {
            executor.run(update);
        }
    }
    assert!(executor.resident::<f32>("metrics.loss").unwrap()[0].is_finite());
    let read = |name: &str| executor.read_resident(name).unwrap().into_owned();
    program.residents.iter().map(|r| read(&r.name)).collect()
}

fn write_random_inputs(program: &Program, phase: usize, executor: &mut CpuExecutor, rng: &mut SampleRng) {
    use plimsoll::graph::{DType, InputKind};
    for value in program.phases[phase].graph.values().iter().filter(|v| v.input == Some(InputKind::Data)) {
        let n = value.ty.elements();
        let bytes: Vec<u8> = match value.ty.dtype {
            DType::F32 if value.name.starts_with("weight") => (0..n).flat_map(|_| 1f32.to_le_bytes()).collect(),
            DType::F32 => (0..n).flat_map(|_| (rng.normal() as f32).to_le_bytes()).collect(),
            _ => (0..n).flat_map(|_| (rng.size(0, 2) as i32).to_le_bytes()).collect(),
        };
        assert!(executor.write_input(phase, &value.name, &bytes));
    }
}

#[test]
fn sharing_and_recomputing_change_no_bit() {
    let seed = fresh_seed();
    println!("PLIMSOLL_TEST_SEED={seed}");
    for recipe in small_recipes() {
        let mut forms = vec![plain(&recipe), Settings { attention: AttentionForm::Materialized, ..plain(&recipe) }];
        forms.push(Settings { block_group: 3, loss_chunk: 30, ..plain(&recipe) });
        if !family(&recipe.model).has_batch_statistics() {
            forms.push(Settings { micro_batch: 3, accumulation: 3, block_group: 1, ..plain(&recipe) });
        }
        for settings in forms {
            let reference = run_steps(&build(&recipe, &settings), &settings, false, false, seed);
            for recompute in [Recompute::None, Recompute::Cheap, Recompute::Layers] {
                let settings = Settings { recompute, ..settings.clone() };
                let shared = run_steps(&build(&recipe, &settings), &settings, true, true, seed);
                assert!(shared == reference, "{settings:?} differs from the unshared run");
            }
        }
    }
}

#[test]
fn measured_is_planned_and_steps_allocate_nothing() {
    for recipe in small_recipes() {
        for settings in [plain(&recipe), Settings { recompute: Recompute::Layers, ..plain(&recipe) }] {
            let program = build(&recipe, &settings);
            let options = LayoutOptions { target: common::TARGET, sharing: true };
            let layout = lay_out(&program, options).unwrap();
            let mut executor = CpuExecutor::new(&program, &layout, options.target.threads).unwrap();
            initialize(&program, &mut executor, 1);
            let mut rng = SampleRng::new(3);
            let step = program.phase("step").unwrap();
            write_random_inputs(&program, step, &mut executor, &mut rng);
            // The first run starts the pool's threads.
            Executor::run(&mut executor, step);
            heap::reset();
            for _ in 0..3 {
                write_random_inputs(&program, step, &mut executor, &mut rng);
                Executor::run(&mut executor, step);
            }
            assert_eq!(heap::used().allocations, 0, "a step allocated");
            let (measured, planned) = (executor.measured_bytes(), layout.arena_bytes as u64);
            assert!(
                measured >= planned - planned / 50 && measured <= planned + page_bytes() as u64,
                "{measured} of {planned}"
            );
        }
    }
}

/// The counter counts: otherwise the test above could not fail.
#[test]
fn an_allocation_on_a_marked_thread_is_seen() {
    let before = heap::used().allocations;
    heap::counted(|| drop(std::hint::black_box(vec![1u8; 100])));
    assert!(heap::used().allocations > before);
}
