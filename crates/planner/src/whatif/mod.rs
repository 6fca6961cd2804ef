//! Questions about a recipe beyond its one plan: what more memory would buy, what the next step up or down would be,
//! which card would do, what fits among many recipes, and what to give up when nothing does. Every answer is a plan
//! that was really made.

mod attempt;
mod cards;
mod frontier;
mod grid;
mod ladder;
mod largest;
mod margins;
mod neighbours;
mod parallel;
mod rungs;

pub use attempt::{Attempt, Outline, attempt, attempt_among, attempts};
pub use cards::{CardAnswer, CardRow, holding_card, on_cards};
pub use frontier::{FrontierPoint, frontier_of};
pub use grid::{Axis, Grid, GridError, GridRow, grid};
pub use ladder::{Ladder, Rung, ladder};
pub use largest::{LargestRow, largest};
pub use margins::{Margins, margins};
pub use neighbours::{Neighbour, neighbours};
pub use parallel::Progress;

use plimsoll_base::units::ADDRESSABLE_BYTES;
use plimsoll_models::recipe::{Budget, Memory, Recipe};

/// A budget that nothing reaches.
const PLENTY: u64 = ADDRESSABLE_BYTES;

/// The same recipe under another budget.
fn with_budget(recipe: &Recipe, bytes: u64) -> Recipe {
    with_memory(recipe, |memory| memory.budget = Budget::Bytes(bytes))
}

/// The same recipe with other pins.
fn with_memory(recipe: &Recipe, change: impl FnOnce(&mut Memory)) -> Recipe {
    let mut other = recipe.clone();
    change(&mut other.memory);
    other
}

/// Recipes small enough to plan many times over.
#[cfg(test)]
pub(crate) mod recipes {
    pub(crate) const SERIES: &str = include_str!("../../tests/recipes/series.toml");
    pub(crate) const TEXT: &str = include_str!("../../tests/recipes/text.toml");
}
