//! Why there is no plan.

use crate::choose::Planned;
use plimsoll_core::plan::PlanError;
use plimsoll_models::recipe::RecipeError;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum PlanFailure {
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    #[error("{cause}")]
    Refused { cause: String, hint: String },
    #[error("the smallest plan does not fit the budget")]
    DoesNotFit(Box<Planned>),
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl std::fmt::Debug for Planned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} for {}", self.choice, self.device.name)
    }
}
