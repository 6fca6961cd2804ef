//! The best plan on each of several cards, and the smallest card that would do.

#![deny(missing_docs)]

use super::attempt::{Attempt, Outline, attempt};
use super::parallel::{Progress, on_all_cores};
use super::{PLENTY, with_budget, with_memory};
use crate::Device;
use crate::PlanFailure;
use crate::choose::fused_feed_forward;
use crate::choose::{Planned, budget_bytes, family, precision};
use plimsoll_models::recipe::{Budget, Precision, Recipe};
use schemars::JsonSchema;
use serde::Serialize;

/// A recipe on one card.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CardRow {
    /// The card's name.
    pub card: String,
    /// Its memory.
    pub total_bytes: u64,
    /// What is computed in there.
    pub precision: Precision,
    /// What became of the recipe.
    #[serde(flatten)]
    pub attempt: Attempt,
    /// Where it fits.
    pub samples_per_s: Option<f64>,
    /// Where it fits and the number of samples is known.
    pub run_seconds: Option<f64>,
}

/// The best plan on each, and how long `steps` updates would take there. A budget in bytes is for one card and is left
/// out; a percentage holds for all.
pub fn on_cards(
    recipe: &Recipe,
    cards: &[Device],
    steps: Option<usize>,
    done: Progress<'_>,
) -> Result<Vec<CardRow>, PlanFailure> {
    let recipe = &by_card(recipe);
    let row = |card: &Device| -> Result<CardRow, PlanFailure> {
        let attempt = attempt(recipe, card)?;
        let seconds = attempt.plan.as_ref().filter(|_| attempt.fits).map(|plan| plan.predicted_step_ms / 1e3);
        Ok(CardRow {
            card: card.name.clone(),
            total_bytes: card.total_bytes,
            precision: precision(recipe, card),
            attempt,
            samples_per_s: seconds.map(|seconds| recipe.train.effective_batch as f64 / seconds),
            run_seconds: seconds.zip(steps).map(|(seconds, steps)| seconds * steps as f64),
        })
    };
    on_all_cores(cards, done, row).into_iter().collect()
}

/// A card and the plan on it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CardAnswer {
    /// The card's name.
    pub card: String,
    /// Its memory.
    pub total_bytes: u64,
    /// The plan on it.
    #[serde(flatten)]
    pub plan: Outline,
}

/// The first of `cards`, which stand by memory, that can train this recipe.
pub(crate) fn smallest_card(recipe: &Recipe, cards: &[Device]) -> Result<Option<CardAnswer>, PlanFailure> {
    first_card(recipe, cards, 1, Vec::new(), |_, _| Ok(true))
}

/// The same where the smallest plan on another card is known already.
pub(super) fn smallest_card_beside(
    recipe: &Recipe,
    smallest: &Planned,
    cards: &[Device],
) -> Result<Option<CardAnswer>, PlanFailure> {
    let is_like = |card: &Device| card.target == smallest.device.target;
    let need = (Forms::on(recipe, &smallest.device), Some(smallest.choice.layout.arena_bytes as u64));
    let needs = if cards.iter().all(is_like) { vec![need] } else { Vec::new() };
    first_card(recipe, cards, 1, needs, |_, _| Ok(true))
}

/// The first of `cards` on which the fastest plan of all fits: more memory would not help.
pub(crate) fn full_speed_card(recipe: &Recipe, cards: &[Device]) -> Result<Option<CardAnswer>, PlanFailure> {
    first_card(recipe, cards, PLENTY, Vec::new(), |card, plan| {
        let unlimited = attempt(&with_budget(recipe, PLENTY), card)?.plan;
        Ok(unlimited.is_some_and(|fastest| plan.predicted_step_ms <= 1.001 * fastest.predicted_step_ms))
    })
}

/// The first of `cards` with room for a plan that was made for a card that plans alike: nothing is planned anew.
pub fn holding_card<'a>(recipe: &Recipe, planned: &Planned, cards: &'a [Device]) -> Option<&'a Device> {
    let recipe = &by_card(recipe);
    let (wanted, arena) = (Forms::on(recipe, &planned.device), planned.choice.layout.arena_bytes as u64);
    let holds = |card: &&Device| {
        let same_plan = card.target == planned.device.target && Forms::on(recipe, card) == wanted;
        same_plan && budget_bytes(recipe, card).saturating_sub(card.reserve_bytes) >= arena
    };
    cards.iter().find(holds)
}

/// What the memory of a plan depends on, of all that cards differ in: on the same forms the same budget gives plans of
/// the same size.
#[derive(PartialEq, Eq)]
struct Forms {
    precision: Precision,
    fused_feed_forward: bool,
}

impl Forms {
    fn on(recipe: &Recipe, card: &Device) -> Forms {
        let fuses = family(&recipe.model).has_fused_feed_forward() && fused_feed_forward(recipe, card);
        Forms { precision: precision(recipe, card), fused_feed_forward: fuses }
    }
}

/// The first card that holds the plan made for `budget` and passes. How much a plan takes is asked for once for all
/// cards of the same forms, unless it is among `needs`; on the card found the plan is made again.
fn first_card(
    recipe: &Recipe,
    cards: &[Device],
    budget: u64,
    mut needs: Vec<(Forms, Option<u64>)>,
    passes: impl Fn(&Device, &Outline) -> Result<bool, PlanFailure>,
) -> Result<Option<CardAnswer>, PlanFailure> {
    let recipe = &by_card(recipe);
    for card in cards {
        let forms = Forms::on(recipe, card);
        let known = needs.iter().find(|(other, _)| *other == forms).map(|(_, need)| *need);
        let need = match known {
            Some(need) => need,
            None => {
                let attempt = attempt(&with_budget(recipe, budget), card)?;
                // What this card does not compute in, another may.
                if attempt.refused.is_some() {
                    continue;
                }
                let need = attempt.plan.map(|plan| plan.arena_bytes);
                needs.push((forms, need));
                need
            }
        };
        let room = budget_bytes(recipe, card).saturating_sub(card.reserve_bytes);
        if need.is_none_or(|need| need > room) {
            continue;
        }
        let attempt = attempt(recipe, card)?;
        if let Some(plan) = attempt.plan.filter(|_| attempt.fits)
            && passes(card, &plan)?
        {
            return Ok(Some(CardAnswer { card: card.name.clone(), total_bytes: card.total_bytes, plan }));
        }
    }
    Ok(None)
}

/// Each card gives what it has.
fn by_card(recipe: &Recipe) -> Recipe {
    match recipe.memory.budget {
        Budget::Bytes(_) => with_memory(recipe, |memory| memory.budget = Budget::Auto),
        Budget::Auto | Budget::Percent(_) => recipe.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::recipes::TEXT;
    use super::*;
    use crate::cards::card;
    use crate::choose::plan;
    use plimsoll_core::graph::Target;

    /// In tf32 only some cards fuse feed-forwards: a plan with fused ones is held by none of the others.
    #[test]
    fn a_plan_is_held_by_cards_that_plan_alike() {
        let on = |name: &str| {
            let card = card(name).unwrap();
            let (name, profile) = (name.into(), card.profile());
            Device { name, profile, target: Target::CUDA, runs: false, ..Device::cpu(1, card.total_bytes) }
        };
        let cards = ["rtx-4090", "h200"].map(on);
        for (precision, [first, second]) in [("f32", ["rtx-4090"; 2]), ("tf32", ["rtx-4090", "h200"])] {
            let recipe = Recipe::parse(TEXT, "text.toml", &[format!("memory.precision={precision}")]).unwrap();
            for (made_for, holder) in cards.iter().zip([first, second]) {
                let planned = plan(&recipe, made_for).unwrap();
                assert_eq!(holding_card(&recipe, &planned, &cards).unwrap().name, holder, "{precision}");
            }
        }
    }
}
