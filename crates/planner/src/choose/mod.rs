//! The choice of a plan: the fastest predicted step among all plans that fit. What the recipe pins is kept.

mod bases;
mod explain;
mod failure;
mod frontier;
mod levers;
mod memo;
mod search;
mod setup;
mod use_plan;

pub use failure::PlanFailure;
pub(crate) use frontier::{FrontierPoint, frontier};
pub(crate) use levers::{LEVERS, Lever, Move, Situation, Target, divisors, settings};
pub(crate) use memo::Memo;
pub use memo::Memos;
pub use setup::{PAGES_THAT_DIFFER, asked_in_vain, budget_for, evaluate_batch, instead_of, writes_to_evaluate};
pub use setup::{Planned, budget_bytes, family, length, plan, plan_among, planning_key, precision, profile, spec};
pub(crate) use setup::{fused_feed_forward, kind, pins, plan_with};
pub use use_plan::{EMBEDDINGS, parameters, plan_use, used_batch};

use crate::program::{Settings, StepSpec};
use bases::Task;
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
    /// Whether as many samples are evaluated at a time as the recipe says; otherwise fewer, where so many set the peak.
    pub keeps_evaluate_batch: bool,
    pub no_sharing: bool,
    /// Whether a fused feed-forward is worth it on the device: a fact about its kernels, not about the recipe.
    pub fused_feed_forward: bool,
}

/// One lever, what was chosen, and what it bought.
#[deny(missing_docs)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// Which, as `[memory]` calls it.
    pub lever: String,
    /// What was chosen.
    pub choice: String,
    /// Bytes at the live peak against the same plan with the plainest alternative; 0 where there is none.
    pub saved_bytes: i64,
    /// Predicted milliseconds per step that this costs against the same alternative; negative where it is faster too.
    pub predicted_ms: f64,
    /// Why, in words.
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
    /// Samples evaluated at a time; none without an evaluation.
    pub evaluate_batch: Option<usize>,
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

/// The plan with the fastest predicted step that fits `arena_budget` bytes, placed and verified. `memo`: what is known of
/// trainings of this kind.
pub(crate) fn choose(
    memo: &Memo,
    family: &dyn Family,
    spec: &StepSpec,
    pins: &Pins,
    options: LayoutOptions,
    arena_budget: usize,
    profile: &Profile,
) -> Result<Choice, ChooseError> {
    check_pins(&Situation { family, spec, pins })?;
    let options = LayoutOptions { sharing: options.sharing && !pins.no_sharing, ..options };
    let mut best: Option<(PlanSearch<'_>, Choice)> = None;
    let mut offloads = offloads(family, pins, &options).into_iter().peekable();
    while let Some(offload) = offloads.next() {
        let bound = best.as_ref().map(|(_, choice)| choice.predicted_step_ms / 1e3);
        let task = Task { family, spec, pins, options, profile, offload };
        let mut search = PlanSearch::new(task, memo).within(arena_budget);
        if let Some((before, choice)) = &best {
            search = search.after(before, choice);
        }
        // Without room for what lives over steps there is nothing to search; the last has to say how much it needs.
        let is_needed = offloads.peek().is_none() && best.is_none();
        if !is_needed && search.least_resident_bytes()? > arena_budget {
            continue;
        }
        if let Some((before, choice)) = &mut best
            && search.is_outdone_by(before, choice)?
        {
            continue;
        }
        match fitting(&mut search, arena_budget, is_needed)? {
            Some(choice) if choice.layout.arena_bytes > arena_budget => {
                let smallest_bytes = choice.layout.arena_bytes;
                return Err(ChooseError::DoesNotFit { smallest_bytes, smallest: Box::new(choice) });
            }
            Some(choice) if bound.is_none_or(|bound| choice.predicted_step_ms / 1e3 < bound * (1.0 - 1e-9)) => {
                let is_fastest_of_all = search.is_unbounded(&choice)?;
                best = Some((search, choice));
                // With all the memory there is it would not be faster: host memory can only cost time.
                if is_fastest_of_all {
                    break;
                }
            }
            _ => {}
        }
    }
    let nothing = || PlanError::Broken("there is nothing to choose from".into());
    let (mut search, choice) = best.ok_or_else(nothing)?;
    explained(&mut search, choice)
}

/// The fastest plan that fits, or the smallest, if that fits or `is_needed` to say what would.
fn fitting(search: &mut PlanSearch<'_>, arena_budget: usize, is_needed: bool) -> Result<Option<Choice>, ChooseError> {
    if let Some(choice) = placed(search, arena_budget)? {
        return Ok(Some(choice));
    }
    // What needs more alive than there is does not fit, however it is placed.
    let is_too_little =
        |search: &mut PlanSearch<'_>| search.smallest().map(|smallest| smallest.live_peak_bytes > arena_budget);
    if !is_needed && (search.is_bounded() || search.is_hopeless(arena_budget)? || is_too_little(search)?) {
        return Ok(None);
    }
    Ok(Some(smallest_placed(search)?).filter(|choice| is_needed || choice.layout.arena_bytes <= arena_budget))
}

fn explained(search: &mut PlanSearch<'_>, mut choice: Choice) -> Result<Choice, ChooseError> {
    choice.decisions = explain::decisions(search, &choice)?;
    Ok(choice)
}

/// Placements tried in one budget: gaps between buffers can take a plan over it.
const PLACEMENTS: usize = 8;
/// Of these, how many are of plans that need just a little less: one of them may have fewer gaps.
const NEIGHBOURS: usize = 3;

/// The plan that needs least. The fewest bytes alive need not be the fewest with gaps: what is called smallest has to be,
/// byte for byte.
fn smallest_placed(search: &mut PlanSearch<'_>) -> Result<Choice, ChooseError> {
    let smallest = search.smallest()?;
    let mut smallest = search.realize(&smallest)?;
    if search.allows_gaps() {
        return Ok(smallest);
    }
    while let Some(smaller) = placed(search, smallest.layout.arena_bytes - 1)? {
        smallest = smaller;
    }
    Ok(smallest)
}

/// The fastest plan that fits with its gaps.
fn placed(search: &mut PlanSearch<'_>, arena_budget: usize) -> Result<Option<Choice>, ChooseError> {
    let mut budget = arena_budget;
    for attempt in 0..PLACEMENTS {
        let Some(candidate) = search.fastest_near(budget)? else { break };
        // How much more it would need counts for those behind the neighbours.
        let most = if attempt < NEIGHBOURS { arena_budget } else { usize::MAX };
        let choice = search.realize_in(&candidate, most)?;
        let missing = choice.as_ref().map_or(1, |choice| choice.layout.arena_bytes.saturating_sub(arena_budget));
        if choice.is_some() && missing == 0 {
            return Ok(choice);
        }
        // Later leave room for the gaps.
        budget = candidate.live_peak_bytes.saturating_sub(missing);
    }
    Ok(None)
}
