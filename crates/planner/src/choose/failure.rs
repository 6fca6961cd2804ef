//! Why there is no plan.

#![deny(missing_docs)]

use super::Planned;
use plimsoll_base::explain::{Explain, Fault};
use plimsoll_core::plan::PlanError;
use plimsoll_models::recipe::RecipeError;
use thiserror::Error;

/// Why there is no plan.
#[derive(Debug, Error)]
pub enum PlanFailure {
    /// The recipe is wrong.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// What the recipe pins cannot be.
    #[error("{cause}")]
    Refused {
        /// What it asks for.
        cause: String,
        /// What to ask for instead.
        hint: String,
    },
    /// Nothing fits; the smallest plan there is.
    #[error("the smallest plan does not fit the budget")]
    DoesNotFit(Box<Planned>),
    /// A plan could not be made or did not hold: a defect, or a graph beyond all bounds.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl Explain for PlanFailure {
    fn fault(&self) -> Fault {
        match self {
            PlanFailure::Recipe(_) | PlanFailure::Refused { .. } => Fault::BadInput,
            PlanFailure::DoesNotFit(_) => Fault::DoesNotFit,
            PlanFailure::Plan(error) => error.fault(),
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            PlanFailure::Recipe(error) => error.hints(),
            PlanFailure::Refused { hint, .. } => vec![hint.clone()],
            PlanFailure::DoesNotFit(smallest) => {
                vec![smallest.enough()]
            }
            PlanFailure::Plan(error) => error.hints(),
        }
    }

    fn message(&self) -> String {
        if let PlanFailure::DoesNotFit(smallest) = self { smallest.shortage() } else { self.to_string() }
    }
}

impl std::fmt::Debug for Planned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} for {}", self.choice, self.device.name)
    }
}
