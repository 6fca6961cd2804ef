//! The whole choice: every plan that nothing beats in both memory and time.

use super::bases::Task;
use super::levers::offload::offloads;
use super::levers::{Situation, check_pins};
use super::memo::Memo;
use super::search::{Candidate, PlanSearch};
use crate::choose::{ChooseError, Pins};
use crate::program::{Settings, StepSpec};
use plimsoll_core::plan::{LayoutOptions, Profile};
use plimsoll_models::families::Family;

/// A plan, placed and verified.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FrontierPoint {
    pub settings: Settings,
    pub arena_bytes: usize,
    pub predicted_ms: f64,
}

/// Budgets tried between the smallest plan and the fastest.
const BUDGETS: usize = 22;

/// Plans from the smallest to the fastest; at most `BUDGETS` + 2, some of them beaten by others.
pub(crate) fn frontier(
    family: &dyn Family,
    spec: &StepSpec,
    pins: &Pins,
    options: LayoutOptions,
    profile: &Profile,
) -> Result<Vec<FrontierPoint>, ChooseError> {
    check_pins(&Situation { family, spec, pins })?;
    let options = LayoutOptions { sharing: options.sharing && !pins.no_sharing, ..options };
    let (memo, offload) = (Memo::default(), offloads(family, pins, &options)[0]);
    let mut search = PlanSearch::new(Task { family, spec, pins, options, profile, offload }, &memo);
    let mut points: Vec<FrontierPoint> = Vec::new();
    for candidate in candidates(&mut search)? {
        let choice = search.realize(&candidate)?;
        points.push(FrontierPoint {
            arena_bytes: choice.layout.arena_bytes,
            predicted_ms: choice.predicted_step_ms,
            settings: choice.settings,
        });
    }
    Ok(points)
}

/// The smallest, the fastest, and the fastest of budgets between them, each a constant factor above the one before.
fn candidates(search: &mut PlanSearch<'_>) -> Result<Vec<Candidate>, ChooseError> {
    let smallest = search.smallest()?;
    let mut found = vec![smallest.clone()];
    let Some(fastest) = search.fastest(usize::MAX)? else { return Ok(found) };
    let (low, high) = (smallest.live_peak_bytes as f64, fastest.live_peak_bytes as f64);
    for i in 0..BUDGETS {
        let budget = low * (high / low).powf(i as f64 / BUDGETS as f64);
        found.extend(search.fastest(budget.ceil() as usize)?);
    }
    found.push(fastest);
    Ok(found)
}
