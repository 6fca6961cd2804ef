//! The choice of a plan: the fastest predicted step among all plans that fit. What the recipe pins is kept.

mod explain;
mod failure;
mod frontier;
mod levers;
mod search;
mod setup;
mod use_plan;

pub use failure::PlanFailure;
pub use frontier::{FrontierPoint, frontier};
pub use levers::divisors;
pub(crate) use levers::{LEVERS, Lever, Move, Situation, Target, settings};
pub(crate) use setup::fused_feed_forward;
pub use setup::{Planned, budget_bytes, family, length, pins, plan, precision, profile, spec};
pub use setup::{asked_in_vain, evaluate_batch, instead_of, writes_to_evaluate};
pub use use_plan::{EMBEDDINGS, plan_use};

use crate::program::{Settings, StepSpec};
use levers::check_pins;
use levers::offload::offloads;
use plimsoll_core::plan::{Layout, LayoutOptions, Offload, PlanError, Profile, Program};
use plimsoll_models::families::{AttentionForm, Family};
use plimsoll_models::recipe::RecomputeLevel;
use schemars::JsonSchema;
use search::PlanSearch;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What the recipe fixes; `None` is free.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pins {
    pub micro_batch: Option<usize>,
    pub recompute: Option<RecomputeLevel>,
    pub attention: Option<AttentionForm>,
    pub block_group: Option<usize>,
    pub loss_chunk: Option<usize>,
    pub offload: Option<Offload>,
    /// Batch norm by micro-batch: the recipe accepts that the micro-batch changes what is learned.
    pub micro_statistics: bool,
    pub no_sharing: bool,
    /// Whether a fused feed-forward is worth it on the device: a fact about its kernels, not about the recipe.
    pub fused_feed_forward: bool,
}

/// One lever, what was chosen, and what it bought.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    pub lever: String,
    pub choice: String,
    /// Bytes at the live peak against the same plan with the plainest alternative; 0 where there is none.
    pub saved_bytes: i64,
    /// Predicted milliseconds per step that this costs against the same alternative; negative where it is faster too.
    pub predicted_ms: f64,
    pub reason: String,
}

/// A plan that fits, or the smallest there is.
#[derive(Clone)]
pub struct Choice {
    pub settings: Settings,
    pub program: Program,
    pub layout: Layout,
    pub options: LayoutOptions,
    pub decisions: Vec<Decision>,
    pub predicted_step_ms: f64,
}

#[derive(Debug, Error)]
pub enum ChooseError {
    #[error("no plan fits: the smallest needs {smallest_bytes} bytes")]
    DoesNotFit { smallest_bytes: usize, smallest: Box<Choice> },
    #[error("{cause}")]
    Refused { cause: String, hint: String },
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl std::fmt::Debug for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} in {} bytes", self.settings, self.layout.arena_bytes)
    }
}

/// The plan with the fastest predicted step that fits `arena_budget` bytes, placed and verified.
pub fn choose(
    family: &dyn Family,
    spec: &StepSpec,
    pins: &Pins,
    options: LayoutOptions,
    arena_budget: usize,
    profile: &Profile,
) -> Result<Choice, ChooseError> {
    check_pins(&Situation { family, spec, pins })?;
    let options = LayoutOptions { sharing: options.sharing && !pins.no_sharing, ..options };
    let mut nothing = Err(PlanError::Broken("there is nothing to choose from".into()).into());
    // Host memory is used only where nothing fits without it.
    let mut offloads = offloads(family, pins, &options).into_iter().peekable();
    while let Some(offload) = offloads.next() {
        let mut search = PlanSearch::new(family, spec, pins, options, profile, offload);
        // Without room for what lives over steps there is nothing to search; the last has to say how much it needs.
        let is_last = offloads.peek().is_none();
        if !is_last && search.least_resident_bytes()? > arena_budget {
            continue;
        }
        if let Some(choice) = placed(&mut search, arena_budget)? {
            return explained(&mut search, choice);
        }
        // What needs more alive than there is does not fit, however it is placed.
        if !is_last && search.smallest()?.live_peak_bytes > arena_budget {
            continue;
        }
        match smallest_placed(&mut search)? {
            choice if choice.layout.arena_bytes <= arena_budget => return explained(&mut search, choice),
            choice => {
                let smallest_bytes = choice.layout.arena_bytes;
                nothing = Err(ChooseError::DoesNotFit { smallest_bytes, smallest: Box::new(choice) });
            }
        }
    }
    nothing
}

fn explained(search: &mut PlanSearch<'_>, mut choice: Choice) -> Result<Choice, ChooseError> {
    choice.decisions = explain::decisions(search, &choice)?;
    Ok(choice)
}

/// Placements tried in one budget: gaps between buffers can take a plan over it.
const PLACEMENTS: usize = 6;

/// The plan that needs least. The fewest bytes alive need not be the fewest with gaps: what is called smallest has to be,
/// byte for byte.
fn smallest_placed(search: &mut PlanSearch<'_>) -> Result<Choice, ChooseError> {
    let smallest = search.smallest()?;
    let mut smallest = search.realize(&smallest)?;
    while let Some(smaller) = placed(search, smallest.layout.arena_bytes - 1)? {
        smallest = smaller;
    }
    Ok(smallest)
}

/// The fastest plan that fits with its gaps.
fn placed(search: &mut PlanSearch<'_>, arena_budget: usize) -> Result<Option<Choice>, ChooseError> {
    let mut budget = arena_budget;
    for _ in 0..PLACEMENTS {
        let Some(candidate) = search.fastest(budget)? else { break };
        let choice = search.realize(&candidate)?;
        if choice.layout.arena_bytes <= arena_budget {
            return Ok(Some(choice));
        }
        // Next time leave room for the gaps.
        budget = candidate.live_peak_bytes.saturating_sub(choice.layout.arena_bytes - arena_budget);
    }
    Ok(None)
}
