//! The number is true: for every recipe the plan adds up and hardly fragments; where it is run, what is measured is what
//! was planned, steps allocate nothing, and sharing or recomputing memory changes no bit.

mod common;

use common::fresh_seed;
use common::steps::{HYBRID, MU_SOTA, after_three_steps, build, check_memory, plain, recipe};
use plimsoll_base::heap;
use plimsoll_core::plan::{Recompute, Summary};
use plimsoll_models::families::{AttentionForm, FeedForwardForm};
use plimsoll_models::recipe::Recipe;
use plimsoll_planner::Device;
use plimsoll_planner::choose::{family, plan};
use plimsoll_planner::program::Settings;
use std::path::{Path, PathBuf};

#[global_allocator]
static HEAP: heap::CountingAllocator = heap::CountingAllocator;

fn recipes() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "toml"));
    files.sort();
    assert!(files.len() >= 5);
    files
}

#[test]
fn every_recipe_plans_with_little_fragmentation_and_a_breakdown_that_adds_up() {
    for path in recipes() {
        for gib in [6, 12, 24, 64] {
            let recipe = Recipe::load(&path, &[]).unwrap();
            let Ok(planned) = plan(&recipe, &Device::cpu(2, gib << 30)) else { continue };
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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/mu-sota.toml");
    let sets = ["memory.micro_batch=32", "memory.recompute=layers", "memory.attention=fused"].map(String::from);
    let recipe = Recipe::load(&path, &sets).unwrap();
    assert_eq!((recipe.train.effective_batch, plimsoll_planner::choose::length(&recipe)), (32, 512));
    let planned = plan(&recipe, &Device::cpu(2, 24 << 30)).unwrap();
    assert_eq!(planned.choice.program.parameters(), 26_721_024);
    let live = planned.choice.layout.live_peak_bytes;
    println!("live peak {:.2} GiB", live as f64 / (1u64 << 30) as f64);
    assert!(live < 8 << 30, "{live} bytes");
}

/// Small enough to run here.
fn small_recipes() -> [Recipe; 2] {
    [HYBRID, MU_SOTA].map(|text| recipe(text, &["train.effective_batch=8", "train.clip_norm=1.0"]))
}

#[test]
fn sharing_and_recomputing_change_no_bit() {
    let seed = fresh_seed();
    println!("PLIMSOLL_TEST_SEED={seed}");
    for recipe in small_recipes() {
        let whole = plain(&recipe, 8);
        let mut forms = vec![whole.clone(), Settings { attention: AttentionForm::Materialized, ..whole.clone() }];
        if family(&recipe.model).has_fused_feed_forward() {
            forms.push(Settings { feed_forward: FeedForwardForm::Fused, ..whole.clone() });
        }
        forms.push(Settings { block_group: 3, loss_chunk: 30, ..whole });
        if family(&recipe.model).batch_norm().is_none() {
            forms.push(Settings { block_group: 1, ..plain(&recipe, 3) });
        }
        for settings in forms {
            let reference = after_three_steps(&build(&recipe, &settings), &settings, false, seed);
            for recompute in [Recompute::None, Recompute::Cheap, Recompute::Layers] {
                let settings = Settings { recompute, ..settings.clone() };
                let shared = after_three_steps(&build(&recipe, &settings), &settings, true, seed);
                assert!(shared == reference, "{settings:?} differs from the unshared run");
            }
        }
    }
}

#[test]
fn measured_is_planned_and_steps_allocate_nothing() {
    for recipe in small_recipes() {
        let whole = plain(&recipe, 8);
        let mut forms = vec![whole.clone(), Settings { recompute: Recompute::Layers, ..whole.clone() }];
        if family(&recipe.model).has_fused_feed_forward() {
            forms.push(Settings { feed_forward: FeedForwardForm::Fused, ..whole });
        }
        for settings in forms {
            check_memory(&build(&recipe, &settings));
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
