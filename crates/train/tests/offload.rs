//! Memory that comes from waiting elsewhere or not at all: gradients used as soon as they are there, moments and saved
//! values in host memory. Nothing of it changes a bit of what is learned.

mod common;

use common::random_graph::{Decisions, RandomStep, bits_after_two_steps, random_recompute};
use common::steps::{HYBRID, MU_SOTA, after_three_steps, build, check_memory, plain, recipe, scalar};
use common::{TARGET, fresh_seed};
use plimsoll_base::heap;
use plimsoll_core::graph::Space;
use plimsoll_core::graph::Target;
use plimsoll_core::ops::SampleRng;
use plimsoll_core::plan::{
    Layout, LayoutOptions, Offload, Phase, PlanFile, Program, Recompute, Summary, lay_out, live_peak, offload,
    offloaded_values, verify,
};
use plimsoll_exec::NullExecutor;
use plimsoll_models::recipe::Recipe;
use plimsoll_planner::Device;
use plimsoll_planner::PlanFailure;
use plimsoll_planner::choose::{family, plan};
use plimsoll_planner::program::Settings;
use plimsoll_train::steps::Pass;
use plimsoll_train::steps::shapes;
use std::collections::BTreeMap;

#[global_allocator]
static HEAP: heap::CountingAllocator = heap::CountingAllocator;

const OPTIONS: LayoutOptions = LayoutOptions { target: TARGET, sharing: true };

const MOMENTS: Offload = Offload { optimizer: true, activation_layers: 0 };
const SAVED: Offload = Offload { optimizer: false, activation_layers: 9 };
const BOTH: Offload = Offload { optimizer: true, activation_layers: 9 };

const BERT: &str = "[model]\nfamily = \"bert\"\nvocab_size = 50\nhidden_size = 24\nnum_hidden_layers = 3\n\
    num_attention_heads = 3\nintermediate_size = 40\nmax_position_embeddings = 20\n[data]\ntrain = \"a.jsonl\"\n\
    tokenizer = \"t.json\"\nmax_length = 16\n[train]\neffective_batch = 6\n";
const T5: &str = "[model]\nfamily = \"t5\"\nvocab_size = 50\nd_model = 12\nd_kv = 4\nd_ff = 20\nnum_layers = 2\n\
    num_heads = 3\n[data]\ntrain = \"a.jsonl\"\ntokenizer = \"t.json\"\nmax_length = 14\nmax_target_length = 9\n[train]\n\
    effective_batch = 6\n";

const ADAMW: &str = "train.optimizer={ name = \"adamw\", lr = 1e-2, weight_decay = 0.01 }";

fn device() -> Device {
    Device::cpu(2, 1 << 40)
}

/// All residents after three steps.
fn run(program: &Program, settings: &Settings) -> BTreeMap<String, Vec<u8>> {
    after_three_steps(program, settings, true, 5)
}

/// The residents whose bytes differ.
fn differences(a: &BTreeMap<String, Vec<u8>>, b: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    assert!(a.keys().eq(b.keys()));
    a.iter().filter(|(name, bytes)| b[*name] != **bytes).map(|(name, _)| name.clone()).collect()
}

/// Bytes on the device at the peak.
fn breakdown(program: &Program) -> BTreeMap<&'static str, usize> {
    Summary::of(program, &lay_out(program, OPTIONS).unwrap()).breakdown
}

#[test]
fn gradients_used_at_once_train_the_same_weights() {
    for text in [BERT, HYBRID, MU_SOTA, T5] {
        // A limit that is never reached: every update waits for all gradients and multiplies them by one.
        let recipes = ["0", "1e6"].map(|norm| recipe(text, &[ADAMW, &format!("train.clip_norm={norm}")]));
        let settings = plain(&recipes[0], 6);
        let [at_once, waiting] = recipes.map(|recipe| build(&recipe, &settings));
        let (a, b) = (run(&at_once, &settings), run(&waiting, &settings));
        let differing: Vec<String> = differences(&a, &b).into_iter().filter(|name| name != "metrics.norm").collect();
        assert!(differing.is_empty(), "{differing:?}");
        let [norm, other] = [&a, &b].map(|all| scalar(all, "metrics.norm"));
        assert!((norm - other).abs() < 1e-6 * other, "norm {norm} instead of {other}");
        assert!(live_peak(&at_once, &TARGET).unwrap() <= live_peak(&waiting, &TARGET).unwrap());
    }
}

#[test]
fn without_clipping_few_gradients_exist_at_a_time() {
    let text = "[model]\npreset = \"bert-large-uncased\"\n[data]\ntrain = \"a.jsonl\"\nmax_length = 128\n[train]\n\
                effective_batch = 1\nclip_norm = 1.0\n";
    let clipped = recipe(text, &[]);
    let free = recipe(text, &["train.clip_norm=0"]);
    let [clipped, free] = [clipped, free].map(|recipe| build(&recipe, &plain(&recipe, 1)));
    let gradients = |program: &Program| breakdown(program)["gradients"];
    let peaks = [&clipped, &free].map(|program| live_peak(program, &TARGET).unwrap());
    println!("gradients {} → {} bytes, peak {} → {}", gradients(&clipped), gradients(&free), peaks[0], peaks[1]);
    assert!(gradients(&free) < gradients(&clipped) / 5);
    assert!(peaks[1] < peaks[0] - gradients(&clipped) / 2);
}

#[test]
fn moments_in_host_memory_change_no_bit() {
    let rules =
        [ADAMW, "train.optimizer={ name = \"sgd\", lr = 1e-2, momentum = 0.9 }", "train.optimizer.name=adafactor"];
    for (text, rule) in [BERT, HYBRID, MU_SOTA, T5].into_iter().flat_map(|text| rules.map(|rule| (text, rule))) {
        for clip in [&["train.clip_norm=0"][..], &["train.clip_norm=0.5"]] {
            let recipe = recipe(text, &[&[rule], clip].concat());
            let micro_batches = if family(&recipe.model).batch_norm().is_some() { &[6][..] } else { &[6, 2] };
            for &micro in micro_batches {
                let settings = plain(&recipe, micro);
                let near = build(&recipe, &settings);
                let far = build(&recipe, &Settings { offload: MOMENTS, ..settings.clone() });
                assert_eq!(differences(&run(&far, &settings), &run(&near, &settings)), [""; 0]);
                check_moments_are_away(&near, &far);
            }
        }
    }
}

/// No moment stays on the device, and at the peak at most those of one parameter are there.
fn check_moments_are_away(near: &Program, far: &Program) {
    let is_moment = |name: &str| name.starts_with("moment");
    assert!(far.residents.iter().all(|r| (r.space == Space::Host) == is_moment(&r.name)));
    let moments = far.residents.iter().filter(|r| is_moment(&r.name)).map(|r| r.ty.span_bytes());
    let layout = lay_out(far, OPTIONS).unwrap();
    assert!(layout.host_bytes >= moments.clone().sum());
    // (64 bytes: slots are aligned.)
    let largest = 2 * (moments.max().unwrap() + 64);
    let on_device = Summary::of(far, &layout).breakdown["optimizer"];
    assert!(on_device <= largest, "{on_device} of {largest} bytes of moments on the device");
    assert!(layout.live_peak_bytes < lay_out(near, OPTIONS).unwrap().live_peak_bytes);
}

#[test]
fn saved_values_in_host_memory_change_no_bit() {
    for text in [BERT, HYBRID, MU_SOTA, T5] {
        let recipe = recipe(text, &[ADAMW]);
        let micro = if family(&recipe.model).batch_norm().is_some() { 6 } else { 3 };
        let settings = plain(&recipe, micro);
        let expected = run(&build(&recipe, &settings), &settings);
        for recompute in [Recompute::None, Recompute::Cheap, Recompute::Layers] {
            for offload in [Offload { activation_layers: 1, ..SAVED }, SAVED, BOTH] {
                let far = build(&recipe, &Settings { recompute: recompute.clone(), offload, ..settings.clone() });
                assert_eq!(differences(&run(&far, &settings), &expected), [""; 0], "{recompute:?} {offload:?}");
            }
        }
    }
}

#[test]
fn saved_values_in_host_memory_are_not_on_the_device() {
    let sizes = ["model.num_hidden_layers=8", "train.effective_batch=64", "train.optimizer.name=adafactor"];
    let recipe = recipe(BERT, &sizes);
    let peak = |offload: Offload, recompute: Recompute| {
        let settings = Settings { offload, recompute, ..plain(&recipe, 64) };
        live_peak(&build(&recipe, &settings), &TARGET).unwrap()
    };
    let layers = |n: u32| Offload { activation_layers: n, ..Offload::NONE };
    let peaks: Vec<usize> = [0, 2, 4, 8].map(|n| peak(layers(n), Recompute::None)).into();
    println!("peaks by layers offloaded {peaks:?}");
    assert!(peaks.is_sorted_by(|more, less| less < more), "{peaks:?}");
    assert!(peaks[3] < peaks[0] / 3);
    // What passes from layer to layer is all that a recomputed layer saves: it can wait elsewhere too.
    assert!(peak(layers(8), Recompute::Layers) < peak(layers(0), Recompute::Layers));
}

#[test]
fn a_step_that_offloads_allocates_nothing_and_measures_as_planned() {
    let recipe = recipe(BERT, &[ADAMW]);
    check_memory(&build(&recipe, &Settings { offload: BOTH, ..plain(&recipe, 6) }));
}

#[test]
fn a_pinned_offload_is_kept_and_said() {
    for (word, expected) in [("none", Offload::NONE), ("optimizer", MOMENTS)] {
        let recipe = recipe(BERT, &[ADAMW, &format!("memory.offload={word}")]);
        let planned = plan(&recipe, &device()).unwrap();
        assert_eq!((planned.choice.settings.offload, planned.choice.settings.offload.name()), (expected, word));
    }
    let recipe = recipe(BERT, &[ADAMW, "memory.offload=activations"]);
    let choice = plan(&recipe, &device()).unwrap().choice;
    assert_eq!(choice.settings.offload, Offload { activation_layers: 3, ..Offload::NONE });
    let said = choice.decisions.iter().find(|d| d.lever == "offload").unwrap();
    assert_eq!(said.choice, "activations");
    assert!(choice.layout.host_bytes > 0);
}

/// The smallest budget without host memory, minus one byte, is met with it; on a card only, where it is other memory.
#[test]
fn host_memory_is_used_where_nothing_else_fits() {
    let recipe = recipe(BERT, &[ADAMW, "model.vocab_size=5000", "memory.offload=none"]);
    let card = |bytes: u64| Device { target: Target::CUDA, free_bytes: bytes, runs: false, ..device() };
    let smallest = |recipe: &Recipe, device: Device| match plan(recipe, &device) {
        Err(PlanFailure::DoesNotFit(planned)) => planned.choice,
        _ => panic!("nothing fits one byte"),
    };
    let without = smallest(&recipe, card(1)).layout.arena_bytes as u64;
    let free = self::recipe(BERT, &[ADAMW, "model.vocab_size=5000", "memory.budget=100%"]);
    assert_eq!(plan(&free, &card(without)).unwrap().choice.settings.offload, Offload::NONE);
    assert_eq!(plan(&free, &card(without - 1)).unwrap().choice.settings.offload, MOMENTS);
    assert!(smallest(&free, card(1)).settings.offload.optimizer);
    assert_eq!(smallest(&free, Device { free_bytes: 1, ..device() }).settings.offload, Offload::NONE);
}

/// Phases for shorter batches keep their values where the longest keeps its own, in both memories.
#[test]
fn every_shorter_batch_fits_what_the_longest_has() {
    for (text, word) in [BERT, T5].into_iter().flat_map(|text| ["optimizer", "activations"].map(|word| (text, word))) {
        for micro in ["memory.micro_batch=6", "memory.micro_batch=4"] {
            let recipe = recipe(text, &[ADAMW, micro, &format!("memory.offload={word}")]);
            let planned = plan(&recipe, &device()).unwrap();
            let (mut shapes, mut executor) = (shapes(&recipe, &planned), NullExecutor::default());
            for (length, target) in (1..=13).flat_map(|length| [1, 4, 9].map(|target| (length, target))) {
                let lengths = if text == T5 { &[length, target][..] } else { &[length] };
                shapes.phase(&mut executor, &planned.choice, Pass::Train, lengths).unwrap();
            }
        }
    }
}

/// A random part of what could be offloaded of a random program.
fn offloaded_program(step: &RandomStep, recompute: &Recompute, rng: &mut SampleRng) -> (Program, usize) {
    let mut away = 0;
    let mut phase = |phase: &Phase| {
        let mut chosen = offloaded_values(&phase.graph, u32::MAX);
        chosen.iter_mut().for_each(|c| *c &= rng.size(0, 2) > 0);
        away += chosen.iter().filter(|&&c| c).count();
        Phase { graph: offload(&phase.graph, &chosen).unwrap(), ..phase.clone() }
    };
    let phases = step.program(recompute).phases.iter().map(&mut phase).collect();
    (Program::new(phases).unwrap(), away)
}

#[test]
fn random_programs_give_the_same_bits_from_host_memory() {
    let seed = fresh_seed();
    println!("PLIMSOLL_TEST_SEED={seed}");
    let mut away = 0;
    for index in 0..200 {
        let mut rng = SampleRng::new(seed.wrapping_add(index));
        let step = RandomStep::new(&mut rng);
        let expected = {
            let program = step.program(&Recompute::None);
            let decisions = Decisions { recompute: Recompute::None, sharing: false };
            bits_after_two_steps(&program, &lay_out(&program, decisions.options()).unwrap(), false)
        };
        for recompute in [Recompute::None, random_recompute(&mut rng, &step)] {
            let (program, count) = offloaded_program(&step, &recompute, &mut rng);
            away += count;
            let layout = lay_out(&program, OPTIONS).unwrap();
            assert_eq!(
                bits_after_two_steps(&program, &layout, true),
                expected,
                "graph {index}\n{}",
                program.phases[0].graph
            );
            check_file(&program, &layout);
            check_sabotage(&program, &layout, &expected, &mut rng);
        }
    }
    println!("{away} values were offloaded");
    assert!(away > 400);
}

fn check_file(program: &Program, layout: &Layout) {
    let text = serde_json::to_string(&PlanFile::new(program, layout, OPTIONS)).unwrap();
    let read: PlanFile = serde_json::from_str(&text).unwrap();
    assert_eq!(&read.layout(program).unwrap(), layout);
    if layout.host_bytes > 0 {
        let smaller = PlanFile { host_bytes: layout.host_bytes - 64, ..read };
        assert!(smaller.layout(program).is_err(), "a region too small for what lies in it");
    }
}

/// A host buffer moved onto another is refused, unless the two never matter at the same time.
fn check_sabotage(program: &Program, layout: &Layout, expected: &[(String, Vec<u32>)], rng: &mut SampleRng) {
    let away: Vec<usize> =
        (0..layout.phases[0].buffers.len()).filter(|&b| layout.phases[0].buffers[b].space == Space::Host).collect();
    if away.len() < 2 {
        return;
    }
    let [moved, onto] = [0; 2].map(|_| away[rng.size(0, away.len() - 1)]);
    let mut moved_layout = layout.clone();
    moved_layout.phases[0].buffers[moved].slot.offset = layout.phases[0].buffers[onto].slot.offset;
    if verify(program, &moved_layout, OPTIONS).is_ok() {
        assert_eq!(bits_after_two_steps(program, &moved_layout, false), expected);
    }
    let mut elsewhere = layout.clone();
    elsewhere.phases[0].buffers[moved].space = Space::Device;
    assert!(verify(program, &elsewhere, OPTIONS).is_err(), "a host buffer counted on the device");
}
