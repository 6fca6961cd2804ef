//! The search for a plan: every recipe has one in every budget that can hold it, what learning sees is the same in all
//! of them, and the plans of one recipe learn the same.

use plimsoll_core::graph::Target;
use plimsoll_core::plan::Recompute;
use plimsoll_exec::cpu::CpuExecutor;
use plimsoll_models::families::{AttentionForm, FeedForwardForm};
use plimsoll_models::recipe::{Precision, Recipe};
use plimsoll_planner::Device;
use plimsoll_planner::PlanFailure;
use plimsoll_planner::cards::card;
use plimsoll_planner::choose::{Choice, Planned, family, length, plan, spec};
use plimsoll_planner::program::{Settings, StepSpec, program};
use plimsoll_planner::whatif::{Attempt, FrontierPoint, Outline, attempt, attempts, frontier_of};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

const GIB: u64 = 1 << 30;
const BUDGETS_GIB: [u64; 5] = [8, 12, 16, 24, 32];

fn recipes() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "toml"));
    files.sort();
    assert!(files.len() >= 11);
    files
}

fn load(path: &Path, sets: &[&str]) -> Recipe {
    let sets: Vec<String> = sets.iter().map(|s| s.to_string()).collect();
    Recipe::load(path, &sets).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn shipped(name: &str, sets: &[&str]) -> Recipe {
    load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes").join(name), sets)
}

/// A card of some memory, planned for, not run on.
fn card_with(free_bytes: u64, reserve_bytes: u64) -> Device {
    Device {
        name: "card".into(),
        reserve_bytes,
        profile: card("rtx-4090").unwrap().profile(),
        target: Target::CUDA,
        precision: Precision::Bf16Mixed,
        runs: false,
        ..Device::cpu(1, free_bytes)
    }
}

fn cpu(free_bytes: u64) -> Device {
    Device::cpu(2, free_bytes)
}

/// The budget of a recipe without one is 95 % of what is free: this much makes it `gib`.
fn free_for(gib: u64) -> u64 {
    gib * GIB * 100 / 95 + 1
}

/// Plan, and what every plan must hold.
fn checked_plan(recipe: &Recipe, device: &Device, what: &str) -> Result<Planned, PlanFailure> {
    let planned = plan(recipe, device)?;
    let Choice { settings, layout, .. } = &planned.choice;
    let effective = recipe.train.effective_batch;
    assert_eq!(settings.accumulation, effective.div_ceil(settings.micro_batch), "{what}: the effective batch is kept");
    assert!(planned.planned_peak_bytes() <= planned.budget_bytes, "{what}: over its budget");
    let lost = layout.fragmentation_bytes() as f64 / layout.arena_bytes as f64;
    assert!(lost <= 0.02, "{what}: {:.2} % lost to gaps", 100.0 * lost);
    Ok(planned)
}

#[test]
fn every_recipe_has_a_plan_or_the_smallest_budget() {
    let mut smallest_seen = 0;
    for path in recipes() {
        let recipe = load(&path, &[]);
        for device in [card_with, |free, _| cpu(free)] {
            for gib in BUDGETS_GIB {
                let (device, start) = (device(free_for(gib), 700 << 20), Instant::now());
                let what = format!("{} in {gib} GiB on {}", path.file_stem().unwrap().display(), device.name);
                if device.runs && recipe.memory.precision.pinned().is_some() {
                    continue;
                }
                match checked_plan(&recipe, &device, &what) {
                    Ok(planned) => println!("{what}: {:?} in {:.0?}", planned.choice, start.elapsed()),
                    Err(PlanFailure::DoesNotFit(smallest)) => {
                        let needed = smallest.planned_peak_bytes();
                        println!("{what}: needs {needed} bytes, {:.0?}", start.elapsed());
                        assert!(needed > smallest.budget_bytes, "{what}");
                        smallest_fits(&recipe, &device, needed, &what);
                        smallest_seen += 1;
                    }
                    Err(error) => panic!("{what}: {error}"),
                }
            }
        }
    }
    assert!(smallest_seen > 0, "no budget was too small: nothing of that was tested");
}

/// In exactly the memory of what someone pins by hand, the search finds a plan that is as fast.
#[test]
fn no_pinned_strategy_is_faster_in_its_own_memory() {
    let encoder = ["model.num_hidden_layers=6", "model.hidden_size=512", "train.effective_batch=32"];
    let mut compared = 0;
    for (name, sets) in [
        ("encoder-small.toml", &encoder[..]),
        ("clip-small.toml", &[]),
        ("flan-t5-xl-small.toml", &[]),
        ("mu-sota-small.toml", &[]),
    ] {
        for device in [card_with(8 * GIB, 700 << 20), cpu(8 * GIB)] {
            for (level, parts) in [("none", 1), ("none", 4), ("cheap", 1), ("layers", 1), ("layers", 4)] {
                let recipe = shipped(name, sets);
                let micro_batch = recipe.train.effective_batch / parts;
                let pins = [format!("memory.recompute={level}"), format!("memory.micro_batch={micro_batch}")];
                let pinned =
                    plan(&shipped(name, &[sets, &pins.each_ref().map(String::as_str)].concat()), &device).unwrap();
                let mut free = recipe;
                free.memory.budget = plimsoll_models::recipe::Budget::Bytes(pinned.planned_peak_bytes());
                let found = plan(&free, &device).unwrap();
                let [found_ms, pinned_ms] = [&found, &pinned].map(|planned| planned.choice.predicted_step_ms);
                let what = format!("{name} with {pins:?} on {}", device.name);
                // A faster plan that gaps take over the budget may leave a slightly slower one.
                assert!(
                    found_ms <= 1.02 * pinned_ms,
                    "{what}: {found_ms} ms instead of {pinned_ms}: {:?}",
                    found.choice
                );
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 40);
}

/// With the budget that is said to be the smallest there is a plan, and with less there is none.
fn smallest_fits(recipe: &Recipe, device: &Device, needed: u64, what: &str) {
    let with = |budget: u64| {
        let mut recipe = recipe.clone();
        recipe.memory.budget = plimsoll_models::recipe::Budget::Bytes(budget);
        // A budget above what is free is not believed: the same device with as much.
        plan(&recipe, &Device { free_bytes: budget, ..device.clone() })
    };
    assert!(with(needed).is_ok(), "{what}: no plan in the smallest budget");
    assert!(matches!(with(needed - 1), Err(PlanFailure::DoesNotFit(_))), "{what}: a plan in less than the smallest");
}

/// A search over encoders: 7 batches × 6 accumulations × 13 lengths are 546 combinations, 221 different trainings.
#[test]
fn every_training_of_the_encoder_search_fits_24_gib() {
    let mut trainings: Vec<(usize, usize)> = Vec::new();
    let mut combinations = 0;
    for batch in [8, 12, 16, 24, 32, 48, 64] {
        for accumulation in [1, 2, 3, 4, 6, 8] {
            for length in (128..=512).step_by(32) {
                combinations += 1;
                trainings.push((batch * accumulation, length));
            }
        }
    }
    trainings.sort();
    trainings.dedup();
    assert_eq!((combinations, trainings.len()), (546, 221));
    let planned = |preset: &str| -> Vec<Recipe> {
        trainings.iter().map(|&(effective, length)| training(preset, effective, length)).collect()
    };
    let deberta = planned("microsoft/deberta-v3-large");
    let found = attempts(&deberta.iter().collect::<Vec<_>>(), &rtx_4090(), &|_, _| {}).unwrap();
    for (attempt, &(effective, length)) in found.iter().zip(&trainings) {
        assert!(attempt.fits && attempt.budget_bytes < 24 * GIB, "{effective} × {length}: {attempt:?}");
    }
    // Planned together they are planned as each alone, which another test is about; these are laid out and verified.
    for recipe in deberta.iter().chain(&planned("bert-large-uncased")).step_by(CHECKED) {
        let what = format!("{} × {}", recipe.train.effective_batch, length(recipe));
        checked_plan(recipe, &rtx_4090(), &what).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}

/// One in so many plans is looked at in detail.
const CHECKED: usize = 11;

fn training(preset: &str, effective: usize, length: usize) -> Recipe {
    let sets = [
        format!("model.preset={preset}"),
        format!("train.effective_batch={effective}"),
        format!("data.max_length={length}"),
    ];
    shipped("encoder.toml", &[&sets[0], &sets[1], &sets[2]])
}

fn rtx_4090() -> Device {
    let found = card("rtx-4090").unwrap();
    card_with(found.total_bytes, found.reserve_bytes)
}

#[test]
fn the_cases_fit_their_cards() {
    let rtx_4090 = card("rtx-4090").unwrap();
    let device = card_with(rtx_4090.total_bytes, rtx_4090.reserve_bytes);
    let untied = ["model.tie_word_embeddings=false", "train.effective_batch=128", "data.max_length=256"];
    let recipe = shipped("flan-t5-xl.toml", &untied);
    assert_eq!(recipe.memory.precision.pinned(), Some(Precision::Bf16));
    println!("{:?}", checked_plan(&recipe, &device, "flan-t5-xl in an rtx-4090").unwrap());

    let recipe = shipped("mu-sota.toml", &[]);
    assert_eq!((recipe.train.effective_batch, plimsoll_planner::choose::length(&recipe)), (32, 512));
    println!("{:?}", checked_plan(&recipe, &cpu(free_for(8)), "mu-sota in 8 GiB").unwrap());

    // Whole, with recompute, or in micro-batches: then the loss still sees all 128 pairs.
    for sets in [&[][..], &["memory.micro_batch=16"], &["memory.recompute=none"]] {
        let recipe = shipped("clip.toml", sets);
        assert_eq!(recipe.train.effective_batch, 128);
        let planned = checked_plan(&recipe, &cpu(free_for(4)), "clip in 4 GiB").unwrap();
        println!("{planned:?}");
        let is_cut = planned.choice.settings.accumulation > 1;
        assert_eq!(planned.choice.program.phase("contrast").is_some(), is_cut);
        assert!(is_cut || sets.is_empty());
    }
}

/// Seconds that this thread has computed: others on the machine do not count.
fn cpu_seconds() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Full searches and plans with everything pinned, in this build's speed; and the memory that planning takes.
#[test]
fn planning_is_quick_and_small() {
    // In a process of its own: the peak is that of all who are in it.
    const ALONE: &str = "PLIMSOLL_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["search::planning_is_quick_and_small", "--exact", "--nocapture"]).env(ALONE, "1");
        let ended = child.output().unwrap();
        println!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert!(ended.status.success());
        return;
    }
    let pinned = ["memory.micro_batch=1", "memory.recompute=layers", "memory.loss_chunk=512", "memory.attention=fused"];
    let presets = ["bert-base-uncased", "bert-large-uncased", "microsoft/deberta-v3-large", "xlm-roberta-base"];
    let preset = |name: &str| format!("model.preset={name}");
    let mut recipes: Vec<(String, Recipe)> =
        presets.iter().map(|name| (name.to_string(), shipped("encoder.toml", &[&preset(name)]))).collect();
    for name in ["flan-t5-xl.toml", "mu-sota.toml", "clip.toml", "hybrid.toml"] {
        recipes.push((name.into(), shipped(name, &[])));
    }
    recipes.push(("flan-t5-xl.toml, pinned".into(), shipped("flan-t5-xl.toml", &pinned)));
    for (name, recipe) in recipes {
        for gib in [12, 24, 140] {
            let start = cpu_seconds();
            let planned = plan(&recipe, &card_with(gib * GIB, 700 << 20));
            let took = cpu_seconds() - start;
            println!("{name} in {gib} GiB: {:.0} ms, fits: {}", 1e3 * took, planned.is_ok());
            assert!(took < 10.0, "{name} in {gib} GiB took {took:.1} s");
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    println!("planning took at most {} MiB", peak_kib >> 10);
    assert!(peak_kib < 250 << 10, "{peak_kib} KiB");
}

/// Budget and device move how a step is computed, never what is learned.
#[test]
fn what_learning_sees_is_the_same_in_every_plan() {
    for name in ["mu-sota-small.toml", "encoder-small.toml", "clip-small.toml"] {
        let recipe = shipped(name, &[]);
        let plenty = checked_plan(&recipe, &cpu(64 * GIB), name).unwrap();
        let arena = plenty.choice.layout.arena_bytes as u64;
        let mut seen: Vec<Settings> = Vec::new();
        for percent in [100, 80, 60, 50, 40, 30] {
            let mut tight = recipe.clone();
            tight.memory.budget = plimsoll_models::recipe::Budget::Bytes(arena * percent / 100);
            let Ok(planned) = checked_plan(&tight, &cpu(64 * GIB), name) else { continue };
            let now = spec(&tight, &planned.device);
            assert_eq!(now, spec(&recipe, &plenty.device), "{name}: the plan changed what is learned");
            assert_eq!(tight.train, recipe.train);
            same_parameters(&planned, &plenty);
            seen.push(planned.choice.settings);
        }
        seen.dedup();
        assert!(seen.len() > 2, "{name}: only {seen:?}");
    }
}

/// Weights, their decay groups and moments do not depend on the plan; nor does dropout, which goes by names and places.
fn same_parameters(a: &Planned, b: &Planned) {
    let weights = |p: &Planned| {
        let kept = p.choice.program.residents.iter().filter(|r| r.is_parameter || r.name.starts_with("moment"));
        let mut named: Vec<(String, String)> = kept.map(|r| (r.name.clone(), r.ty.to_string())).collect();
        named.sort();
        named
    };
    assert_eq!(weights(a), weights(b));
    let dropouts = |p: &Planned| {
        let nodes = p.choice.program.phases.iter().filter(|ph| ph.repeat > 0).flat_map(|ph| ph.graph.nodes());
        // The number of samples in a micro-batch is how it is computed; site and probability are what is dropped.
        let site = |text: String| text.split("samples").next().unwrap_or_default().to_string();
        let dropped = nodes.map(|n| format!("{:?}", n.op.op())).filter(|op| op.contains("ropout {"));
        let mut sites: Vec<String> = dropped.map(site).collect();
        sites.sort();
        sites.dedup();
        sites
    };
    assert_eq!(dropouts(a), dropouts(b));
}

#[test]
fn a_frontier_trades_memory_for_time() {
    let recipe = shipped("mu-sota-small.toml", &[]);
    let device = cpu(64 * GIB);
    let planned = plan(&recipe, &device).unwrap();
    let points: Vec<Outline> =
        frontier_of(&recipe, &planned).unwrap().into_iter().map(|FrontierPoint { plan, .. }| plan).collect();
    points.iter().for_each(|point| println!("{point:?}"));
    assert!((4..=25).contains(&points.len()), "{} points", points.len());
    for pair in points.windows(2) {
        assert!(pair[0].arena_bytes < pair[1].arena_bytes && pair[0].predicted_step_ms > pair[1].predicted_step_ms);
    }
    let fastest = points.last().unwrap();
    assert_eq!(*fastest, Outline::from(&planned), "with room for all, the plan is the fastest point");
    // Every point is what a plan of just that budget is, or slower by nothing.
    for point in &points {
        let mut tight = recipe.clone();
        tight.memory.budget = plimsoll_models::recipe::Budget::Bytes(point.arena_bytes);
        let planned = plan(&tight, &device).unwrap();
        let ratio = planned.choice.predicted_step_ms / point.predicted_step_ms;
        assert!(ratio <= 1.02, "{ratio:.3} times the time of the frontier in {} bytes", point.arena_bytes);
    }
}

/// Batches share what they are built from where many are planned at once: no answer may be another for it.
#[test]
fn recipes_planned_together_are_planned_as_each_alone() {
    let device = Device::from_name("t4").unwrap();
    for name in ["encoder-small", "hybrid-small", "mu-sota-small", "clip-small", "flan-t5-xl-small"] {
        let file = format!("{name}.toml");
        let sets = |batch: usize, budget: &str| {
            [format!("train.effective_batch={batch}"), format!("memory.budget=\"{budget}\"")]
        };
        let recipe = |batch, budget| shipped(&file, &sets(batch, budget).each_ref().map(String::as_str));
        let recipes: Vec<Recipe> = ["720MiB", "760MiB", "4GiB"]
            .into_iter()
            .flat_map(|budget| [8, 3, 12, 40, 24, 64].map(|batch| recipe(batch, budget)))
            .collect();
        let together = attempts(&recipes.iter().collect::<Vec<_>>(), &device, &|_, _| ()).unwrap();
        let alone: Vec<Attempt> = recipes.iter().map(|recipe| attempt(recipe, &device).unwrap()).collect();
        assert_eq!(together, alone, "{name}");
        let forms: BTreeSet<_> =
            alone.iter().filter_map(|a| a.plan.as_ref()).map(|p| (p.micro_batch, p.recompute)).collect();
        assert!(forms.len() > 2, "{name}: all plans are alike, which shows little: {forms:?}");
    }
}

/// A plan's settings, stored and read, give the same nodes to compute again.
#[test]
fn a_choice_of_recompute_survives_its_file() {
    let recipe = shipped("encoder-small.toml", &[]);
    let plenty = plan(&recipe, &cpu(64 * GIB)).unwrap();
    let mut tight = recipe.clone();
    tight.memory.budget = plimsoll_models::recipe::Budget::Bytes(plenty.choice.layout.arena_bytes as u64 * 9 / 10);
    tight.memory.micro_batch = plimsoll_models::recipe::Choice::Pinned(plenty.choice.settings.micro_batch);
    let planned = plan(&tight, &cpu(64 * GIB)).unwrap();
    assert!(matches!(planned.choice.settings.recompute, Recompute::Some(_)), "{:?}", planned.choice.settings);
    let text = serde_json::to_string(&planned.choice.settings).unwrap();
    println!("{text}");
    let read: Settings = serde_json::from_str(&text).unwrap();
    let again = program(family(&tight.model).as_ref(), &spec(&tight, &planned.device), &read).unwrap();
    for (a, b) in again.phases.iter().zip(&planned.choice.program.phases) {
        assert_eq!(a.graph.fingerprint(), b.graph.fingerprint());
    }
}

#[path = "search/curves.rs"]
mod curves;
