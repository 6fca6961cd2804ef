//! What a search asks about many recipes.

use crate::{Device, PlanFailure};
use plimsoll_models::recipe::Recipe;
use plimsoll_planner::choose;
use plimsoll_planner::whatif::{self, Attempt, Progress};
use plimsoll_train::tasks::expected_data;

/// The plan of a recipe in a few numbers; what does not fit or cannot be is an answer, not an error.
///
/// # Errors
/// What neither the recipe nor the memory is to blame for.
pub fn attempt(recipe: &Recipe, device: &Device) -> Result<Attempt, PlanFailure> {
    whatif::attempt(recipe, device)
}

/// The same for many recipes, on all cores; those that differ in their batch only share what they are built from.
///
/// # Errors
/// The first.
pub fn attempts(recipes: &[&Recipe], device: &Device, done: Progress<'_>) -> Result<Vec<Attempt>, PlanFailure> {
    whatif::attempts(recipes, device, done)
}

/// What planning sees of a recipe: with the same key two have the same plan.
pub fn planning_key(recipe: &Recipe, device: &Device) -> String {
    choose::planning_key(recipe, device)
}

/// What a run of this recipe may take of the device.
pub fn budget_bytes(recipe: &Recipe, device: &Device) -> u64 {
    choose::budget_bytes(recipe, device)
}

/// How long a training is going to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Samples to learn from.
    pub train_samples: usize,
}

impl Expected {
    /// Updates of the whole run.
    pub fn steps(&self, recipe: &Recipe) -> usize {
        let per_epoch = self.train_samples.div_ceil(recipe.train.effective_batch.max(1)).max(1);
        let by_epochs = per_epoch.saturating_mul(recipe.train.epochs);
        recipe.train.steps.map_or(by_epochs, |steps| by_epochs.min(steps))
    }
}

/// What is known of a recipe's data, where that is cheap to find out.
pub fn expected(recipe: &Recipe) -> Option<Expected> {
    expected_data(recipe).map(|data| Expected { train_samples: data.train_samples })
}
