//! A plan as one row of a table.

#![deny(missing_docs)]

use super::parallel::{Progress, on_all_cores};
use crate::Device;
use crate::PlanFailure;
use crate::choose::{Memo, Memos, Planned, budget_bytes, kind, plan_with};
use crate::program::Settings;
use plimsoll_base::units::format_bytes;
use plimsoll_core::graph::Component;
use plimsoll_models::families::AttentionForm;
use plimsoll_models::recipe::Recipe;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What a row says about a plan.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Outline {
    /// Samples in memory at a time.
    pub micro_batch: usize,
    /// Micro-batches to an update.
    pub accumulation: usize,
    /// What is computed again, as `memory.recompute` in a recipe.
    pub recompute: &'static str,
    /// As `memory.attention` in a recipe.
    pub attention: &'static str,
    /// What waits in host memory, as `memory.offload` in a recipe.
    pub offload: &'static str,
    /// The one allocation.
    pub arena_bytes: u64,
    /// The arena and the device's reserve: what a budget is compared with.
    pub planned_peak_bytes: u64,
    /// Milliseconds of an update, by the profile of the device.
    pub predicted_step_ms: f64,
}

impl Outline {
    /// Of a plan with these settings.
    pub fn new(settings: &Settings, arena_bytes: u64, reserve_bytes: u64, predicted_step_ms: f64) -> Outline {
        Outline {
            micro_batch: settings.micro_batch,
            accumulation: settings.accumulation,
            recompute: settings.recompute.name(),
            attention: match settings.attention {
                AttentionForm::Fused => "fused",
                AttentionForm::Materialized => "materialized",
            },
            offload: settings.offload.name(),
            arena_bytes,
            planned_peak_bytes: arena_bytes.saturating_add(reserve_bytes),
            predicted_step_ms,
        }
    }

    /// `32 × 6`
    pub fn batch(&self) -> String {
        format!("{} × {}", self.micro_batch, self.accumulation)
    }
}

impl From<&Planned> for Outline {
    fn from(planned: &Planned) -> Outline {
        let choice = &planned.choice;
        let arena = choice.layout.arena_bytes as u64;
        Outline::new(&choice.settings, arena, planned.reserve_bytes, choice.predicted_step_ms)
    }
}

/// What became of a recipe on a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Attempt {
    /// Whether the plan is inside the budget.
    pub fits: bool,
    /// What may be taken of the device.
    pub budget_bytes: u64,
    /// The plan, or the smallest there is where none fits; none where the recipe asks for what cannot be.
    #[serde(flatten)]
    pub plan: Option<Outline>,
    /// Why the recipe cannot be planned at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// What the trained weights take on disk, and what a checkpoint does.
    #[serde(skip)]
    pub model_bytes: u64,
    /// What a checkpoint takes on disk.
    #[serde(skip)]
    pub checkpoint_bytes: u64,
}

impl Attempt {
    pub(super) fn refused(cause: String) -> Attempt {
        Attempt { refused: Some(cause), ..Attempt::default() }
    }

    /// `micro-batch 4 with recompute "layers" fits with 0.6 GiB headroom`; `None` where it does not fit.
    pub(crate) fn fitting_words(&self) -> Option<String> {
        let plan = self.plan.as_ref().filter(|_| self.fits)?;
        let headroom = format_bytes(self.budget_bytes.saturating_sub(plan.planned_peak_bytes));
        let (micro, recompute) = (plan.micro_batch, plan.recompute);
        Some(format!("micro-batch {micro} with recompute \"{recompute}\" fits with {headroom} headroom"))
    }
}

impl From<(bool, &Planned)> for Attempt {
    fn from((fits, planned): (bool, &Planned)) -> Attempt {
        let bytes = |component: Component| -> u64 {
            let residents = planned.choice.program.residents.iter().filter(|resident| resident.component == component);
            residents.map(|resident| resident.ty.span_bytes() as u64).sum()
        };
        let model_bytes = bytes(Component::Weights);
        let checkpoint_bytes = model_bytes + bytes(Component::Optimizer);
        let (budget_bytes, plan) = (planned.budget_bytes, Some(planned.into()));
        Attempt { fits, budget_bytes, plan, refused: None, model_bytes, checkpoint_bytes }
    }
}

/// Plans. What the recipe itself is to blame for is an answer, anything else an error.
pub fn attempt(recipe: &Recipe, device: &Device) -> Result<Attempt, PlanFailure> {
    attempt_with(&Memo::default(), recipe, device)
}

/// The same for one of many recipes: those of a kind share what they are built from.
pub fn attempt_among(memos: &Memos, recipe: &Recipe, device: &Device) -> Result<Attempt, PlanFailure> {
    attempt_with(&memos.of(recipe, device), recipe, device)
}

fn attempt_with(memo: &Memo, recipe: &Recipe, device: &Device) -> Result<Attempt, PlanFailure> {
    let refused = |cause: String| Attempt { budget_bytes: budget_bytes(recipe, device), ..Attempt::refused(cause) };
    match plan_with(memo, recipe, device) {
        Ok(planned) => Ok((true, &planned).into()),
        Err(PlanFailure::DoesNotFit(smallest)) => Ok((false, smallest.as_ref()).into()),
        Err(PlanFailure::Refused { cause, .. }) => Ok(refused(cause)),
        Err(PlanFailure::Plan(error)) if error.is_too_large() => Ok(refused(error.to_string())),
        Err(error) => Err(error),
    }
}

/// The same for many recipes, on all cores; those that differ in their batch only share what they are built from.
pub fn attempts(recipes: &[&Recipe], device: &Device, done: Progress<'_>) -> Result<Vec<Attempt>, PlanFailure> {
    let finished = AtomicUsize::new(0);
    let plan = |index: usize, memo: &Memo| {
        let made = attempt_with(memo, recipes[index], device)?;
        done(finished.fetch_add(1, Ordering::Relaxed) + 1, recipes.len());
        Ok((index, made))
    };
    let work = |group: &Vec<usize>| {
        let memo = Memo::for_many();
        group.iter().map(|&index| plan(index, &memo)).collect::<Result<Vec<_>, PlanFailure>>()
    };
    let made = on_all_cores(&groups(recipes, device), &|_, _| (), work);
    let mut made: Vec<(usize, Attempt)> =
        made.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    made.sort_by_key(|(index, _)| *index);
    Ok(made.into_iter().map(|(_, attempt)| attempt).collect())
}

/// Recipes of the same kind, by their place in the list; no group so large that the other cores wait for it.
fn groups(recipes: &[&Recipe], device: &Device) -> Vec<Vec<usize>> {
    let mut kinds: HashMap<String, usize> = HashMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, recipe) in recipes.iter().enumerate() {
        let at = *kinds.entry(kind(recipe, device)).or_insert(groups.len());
        groups.resize_with(groups.len().max(at + 1), Vec::new);
        groups[at].push(index);
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let most = recipes.len().div_ceil(cores).max(1);
    groups.iter().flat_map(|group| group.chunks(most).map(<[usize]>::to_vec)).collect()
}
