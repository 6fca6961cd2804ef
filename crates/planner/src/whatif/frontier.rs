//! Memory against time: the plans of a recipe of which none is both smaller and faster than another.

use super::attempt::Outline;
use crate::Device;
use crate::PlanFailure;
use crate::choose::{ChooseError, budget_bytes, family, frontier, pins, profile, spec};
use plimsoll_core::plan::LayoutOptions;
use plimsoll_models::recipe::Recipe;
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FrontierPoint {
    #[serde(flatten)]
    pub plan: Outline,
    /// Within the budget of the recipe.
    pub fits: bool,
}

/// From the smallest plan to the fastest. Pins of the recipe hold for every point.
pub fn frontier_of(recipe: &Recipe, device: &Device) -> Result<Vec<FrontierPoint>, PlanFailure> {
    let (family, spec, pins) = (family(&recipe.model), spec(recipe, device), pins(recipe, device)?);
    let options = LayoutOptions { target: device.target, sharing: true };
    let points =
        frontier(family.as_ref(), &spec, &pins, options, &profile(recipe, device)).map_err(|error| match error {
            ChooseError::Refused { cause, hint } => PlanFailure::Refused { cause, hint },
            ChooseError::Plan(error) => PlanFailure::Plan(error),
            ChooseError::DoesNotFit { .. } => PlanFailure::Refused {
                cause: "no plan was found".into(),
                hint: "this is a defect of plimsoll: please report it with the recipe".into(),
            },
        })?;
    let (budget, reserve) = (budget_bytes(recipe, device), device.reserve_for(recipe));
    let point = |point: crate::choose::FrontierPoint| {
        let plan = Outline::new(&point.settings, point.arena_bytes as u64, reserve, point.predicted_ms);
        FrontierPoint { fits: plan.planned_peak_bytes <= budget, plan }
    };
    Ok(points.into_iter().map(point).collect())
}
