//! What would fit when a recipe does not: every hint is a plan that was really made.

use plimsoll::recipe::{BatchNormMode, Budget, Choice, Memory, Model, Recipe};
use plimsoll::train::{Device, Planned, budget_bytes, plan};
use plimsoll::units::format_bytes;

/// Ways out, from the least to the most intrusive. The last is always a budget that is enough.
pub fn hints(recipe: &Recipe, device: &Device, smallest: &Planned) -> Vec<String> {
    let mut hints = Vec::new();
    hints.extend(without_budget(recipe, device, smallest));
    hints.extend(without_pins(recipe, device));
    hints.extend(with_micro_statistics(recipe, device));
    let enough = smallest.planned_peak_bytes();
    hints.push(format!("--memory {enough} ({}) is enough for the smallest plan", format_bytes(enough)));
    hints
}

/// The device may have more than the recipe asks for.
fn without_budget(recipe: &Recipe, device: &Device, smallest: &Planned) -> Option<String> {
    let open = Recipe { memory: Memory { budget: Budget::Auto, ..recipe.memory.clone() }, ..recipe.clone() };
    let all = budget_bytes(&open, device);
    (recipe.memory.budget != Budget::Auto && all >= smallest.planned_peak_bytes()).then(|| {
        format!("{} has {} to give: without a budget of its own the recipe fits", device.name, format_bytes(all))
    })
}

/// Each pin that stands alone in the way, or else all of them together.
fn without_pins(recipe: &Recipe, device: &Device) -> Vec<String> {
    let fits_with = |memory: Memory| plan(&Recipe { memory, ..recipe.clone() }, device).ok();
    let pinned: Vec<&Lever> = LEVERS.iter().filter(|lever| (lever.is_pinned)(&recipe.memory)).collect();
    let freed = |lever: &&Lever| {
        let mut memory = recipe.memory.clone();
        (lever.free)(&mut memory);
        let planned = fits_with(memory)?;
        Some(format!("without memory.{} pinned, {}", lever.key, fitting(&planned)))
    };
    let alone: Vec<String> = pinned.iter().copied().filter_map(|lever| freed(&lever)).collect();
    if !alone.is_empty() || pinned.len() < 2 {
        return alone;
    }
    let mut memory = recipe.memory.clone();
    pinned.iter().for_each(|lever| (lever.free)(&mut memory));
    let keys = pinned.iter().map(|lever| format!("memory.{}", lever.key)).collect::<Vec<_>>().join(", ");
    fits_with(memory).map(|planned| format!("without {keys} pinned, {}", fitting(&planned))).into_iter().collect()
}

/// Batch norm over the micro-batch is another kind of learning: offered, never chosen.
fn with_micro_statistics(recipe: &Recipe, device: &Device) -> Option<String> {
    let Model::HybridCnnLstm(model) = &recipe.model else { return None };
    if model.batch_norm == BatchNormMode::Micro {
        return None;
    }
    let mut split = model.clone();
    split.batch_norm = BatchNormMode::Micro;
    let planned = plan(&Recipe { model: Model::HybridCnnLstm(split), ..recipe.clone() }, device).ok()?;
    Some(format!(
        "with model.batch_norm = \"micro\", {}; it changes what is learned: statistics see the micro-batch only",
        fitting(&planned)
    ))
}

fn fitting(planned: &Planned) -> String {
    let settings = &planned.choice.settings;
    let recompute = settings.recompute.name();
    let headroom = format_bytes(planned.headroom_bytes.max(0) as u64);
    format!("micro-batch {} with recompute \"{recompute}\" fits with {headroom} headroom", settings.micro_batch)
}

/// A key of `[memory]` that may stand in the way.
struct Lever {
    key: &'static str,
    is_pinned: fn(&Memory) -> bool,
    free: fn(&mut Memory),
}

const LEVERS: [Lever; 6] = [
    Lever { key: "micro_batch", is_pinned: |m| m.micro_batch != Choice::Auto, free: |m| m.micro_batch = Choice::Auto },
    Lever { key: "recompute", is_pinned: |m| m.recompute != Choice::Auto, free: |m| m.recompute = Choice::Auto },
    Lever { key: "attention", is_pinned: |m| m.attention != Choice::Auto, free: |m| m.attention = Choice::Auto },
    Lever { key: "block_group", is_pinned: |m| m.block_group != Choice::Auto, free: |m| m.block_group = Choice::Auto },
    Lever { key: "loss_chunk", is_pinned: |m| m.loss_chunk != Choice::Auto, free: |m| m.loss_chunk = Choice::Auto },
    Lever { key: "sharing", is_pinned: |m| !m.sharing, free: |m| m.sharing = true },
];
