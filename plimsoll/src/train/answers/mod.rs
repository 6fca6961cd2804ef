//! Questions about a recipe beyond its one plan: what more memory would buy, what the next step up or down would be,
//! which card would do, what fits among many recipes, and what to give up when nothing does. Every answer is a plan
//! that was really made.

mod attempt;
mod cards;
mod frontier;
mod grid;
mod ladder;
mod margins;
mod neighbours;
mod parallel;
mod rungs;

pub use attempt::{Attempt, Outline, attempt};
pub use cards::{CardAnswer, CardRow, full_speed_card, holding_card, on_cards, smallest_card};
pub use frontier::{FrontierPoint, frontier_of};
pub use grid::{Axis, Grid, GridError, GridRow, MOST_COMBINATIONS, grid};
pub use ladder::{Ladder, Rung, ladder};
pub use margins::{Margins, margins};
pub use neighbours::{Neighbour, neighbours};
pub use parallel::Progress;

use crate::recipe::{Budget, Memory, Recipe};
use crate::units::ADDRESSABLE_BYTES;

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
    pub const SERIES: &str = "[model]\nfamily = \"hybrid-cnn-lstm\"\nfeatures = 3\nwindow = 10\nchannels = [4]\nhidden = 4\n\
        heads = 2\nclasses = 3\n[data]\nsource = \"synthetic:regimes\"\nsamples = 333\n\
        [train]\neffective_batch = 8\n";

    pub const TEXT: &str = "[model]\nfamily = \"mu-sota\"\nvocab = 257\nlayers = 2\nblocks = 2\nblock_width = 4\nblock_heads = 2\n\
        cross_heads = 2\nffn = 16\nmax_length = 16\n[data]\nsource = \"synthetic:grammar\"\nsamples = 3000\n\
        [train]\neffective_batch = 8\noptimizer = { name = \"adamw\", lr = 1e-3, betas = [0.9, 0.95] }\n";
}
