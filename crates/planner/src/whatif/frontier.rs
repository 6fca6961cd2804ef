//! Memory against time: the plans of a recipe of which none is both smaller and faster than another.

#![deny(missing_docs)]

use super::attempt::Outline;
use crate::PlanFailure;
use crate::choose::{ChooseError, Planned, family, frontier, pins, profile, spec};
use plimsoll_core::plan::LayoutOptions;
use plimsoll_models::recipe::Recipe;
use schemars::JsonSchema;
use serde::Serialize;

/// The fastest plan of its size.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FrontierPoint {
    /// What it is.
    #[serde(flatten)]
    pub plan: Outline,
    /// Within the budget of the recipe.
    pub fits: bool,
}

/// From the smallest plan to the fastest, `planned` among them: it is the fastest within its budget. Pins of the recipe hold
/// for every point.
pub fn frontier_of(recipe: &Recipe, planned: &Planned) -> Result<Vec<FrontierPoint>, PlanFailure> {
    let device = &planned.device;
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
    let outline = |point: crate::choose::FrontierPoint| {
        Outline::new(&point.settings, point.arena_bytes as u64, planned.reserve_bytes, point.predicted_ms)
    };
    let plans = unbeaten(points.into_iter().map(outline).chain([Outline::from(planned)]).collect());
    let point = |plan: Outline| FrontierPoint { fits: plan.planned_peak_bytes <= planned.budget_bytes, plan };
    Ok(plans.into_iter().map(point).collect())
}

/// By memory; only those that are faster than all smaller ones.
fn unbeaten(mut plans: Vec<Outline>) -> Vec<Outline> {
    let by_time = |a: &Outline, b: &Outline| a.predicted_step_ms.total_cmp(&b.predicted_step_ms);
    plans.sort_by(|a, b| a.planned_peak_bytes.cmp(&b.planned_peak_bytes).then(by_time(a, b)));
    let mut fastest = f64::INFINITY;
    plans.retain(|plan| {
        let is_faster = plan.predicted_step_ms < fastest;
        fastest = fastest.min(plan.predicted_step_ms);
        is_faster
    });
    plans
}
