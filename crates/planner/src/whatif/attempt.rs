//! A plan as one row of a table.

use crate::Device;
use crate::PlanFailure;
use crate::choose::{Planned, budget_bytes, plan};
use crate::program::Settings;
use plimsoll_base::units::format_bytes;
use plimsoll_models::families::AttentionForm;
use plimsoll_models::recipe::Recipe;
use schemars::JsonSchema;
use serde::Serialize;

/// What a row says about a plan.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Outline {
    pub micro_batch: usize,
    pub accumulation: usize,
    pub recompute: &'static str,
    pub attention: &'static str,
    pub arena_bytes: u64,
    /// The arena and the device's reserve: what a budget is compared with.
    pub planned_peak_bytes: u64,
    pub predicted_step_ms: f64,
}

impl Outline {
    pub fn new(settings: &Settings, arena_bytes: u64, reserve_bytes: u64, predicted_step_ms: f64) -> Outline {
        Outline {
            micro_batch: settings.micro_batch,
            accumulation: settings.accumulation,
            recompute: settings.recompute.name(),
            attention: match settings.attention {
                AttentionForm::Fused => "fused",
                AttentionForm::Materialized => "materialized",
            },
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
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Attempt {
    pub fits: bool,
    pub budget_bytes: u64,
    /// The plan, or the smallest there is where none fits; none where the recipe asks for what cannot be.
    #[serde(flatten)]
    pub plan: Option<Outline>,
    /// Why the recipe cannot be planned at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl Attempt {
    pub(super) fn refused(cause: String) -> Attempt {
        Attempt { fits: false, budget_bytes: 0, plan: None, refused: Some(cause) }
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
        Attempt { fits, budget_bytes: planned.budget_bytes, plan: Some(planned.into()), refused: None }
    }
}

/// Plans. What the recipe itself is to blame for is an answer, anything else an error.
pub fn attempt(recipe: &Recipe, device: &Device) -> Result<Attempt, PlanFailure> {
    let refused = |cause: String| Attempt { budget_bytes: budget_bytes(recipe, device), ..Attempt::refused(cause) };
    match plan(recipe, device) {
        Ok(planned) => Ok((true, &planned).into()),
        Err(PlanFailure::DoesNotFit(smallest)) => Ok((false, smallest.as_ref()).into()),
        Err(PlanFailure::Refused { cause, .. }) => Ok(refused(cause)),
        Err(PlanFailure::Plan(error)) if error.is_too_large() => Ok(refused(error.to_string())),
        Err(error) => Err(error),
    }
}
