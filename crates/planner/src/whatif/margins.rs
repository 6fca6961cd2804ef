//! How far the plan is from the next better one: another GiB, a larger micro-batch, a smaller card.

#![deny(missing_docs)]

use super::attempt::{Attempt, Outline, attempt};
use super::cards::{CardAnswer, full_speed_card, smallest_card};
use super::{with_budget, with_memory};
use crate::Device;
use crate::PlanFailure;
use crate::choose::{Planned, divisors, family, pins};
use plimsoll_models::recipe::{Choice, Recipe};
use schemars::JsonSchema;
use serde::Serialize;

const GIB: u64 = 1 << 30;

/// What more memory or another card would change.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Margins {
    /// The fastest plan with one GiB more.
    pub another_gib: Option<Outline>,
    /// The plan with the largest micro-batch that fits at all, however slow.
    pub largest_micro_batch: Outline,
    /// Of the catalog, by memory: the first that can train it, and the first on which more memory would not help.
    pub smallest_card: Option<CardAnswer>,
    /// The first on which more memory would not help.
    pub full_speed_card: Option<CardAnswer>,
}

/// `cards` by memory.
pub fn margins(recipe: &Recipe, planned: &Planned, cards: &[Device]) -> Result<Margins, PlanFailure> {
    let richer = with_budget(recipe, planned.budget_bytes.saturating_add(GIB));
    let device = &planned.device;
    let larger = Device { free_bytes: device.free_bytes.saturating_add(GIB), ..device.clone() };
    Ok(Margins {
        another_gib: fitting(attempt(&richer, &larger)?),
        largest_micro_batch: largest_micro_batch(recipe, planned)?,
        smallest_card: smallest_card(recipe, cards)?,
        full_speed_card: full_speed_card(recipe, cards)?,
    })
}

fn fitting(attempt: Attempt) -> Option<Outline> {
    attempt.plan.filter(|_| attempt.fits)
}

/// A smaller micro-batch never needs more memory, so the largest that fits is found by halving.
fn largest_micro_batch(recipe: &Recipe, planned: &Planned) -> Result<Outline, PlanFailure> {
    let chosen = planned.choice.settings.micro_batch;
    let pins = pins(recipe, &planned.device)?;
    let whole = family(&recipe.model).batch_norm().is_some() && !pins.micro_statistics;
    if whole || pins.micro_batch.is_some() {
        return Ok(planned.into());
    }
    let larger: Vec<usize> = divisors(recipe.train.effective_batch).into_iter().filter(|&m| m > chosen).collect();
    let (mut range, mut best) = (0..larger.len(), Outline::from(planned));
    while !range.is_empty() {
        let middle = range.start + range.len() / 2;
        let pinned = with_memory(recipe, |memory| memory.micro_batch = Choice::Pinned(larger[middle]));
        match fitting(attempt(&pinned, &planned.device)?) {
            Some(plan) => {
                best = plan;
                range.start = middle + 1;
            }
            None => range.end = middle,
        }
    }
    Ok(best)
}
