//! Questions about a recipe beyond its one plan, as pages and searches ask them: all of them answered by real plans.

use crate::{Device, PlanReport};
use plimsoll_base::units::format_bytes;
use plimsoll_models::families::Input;
use plimsoll_models::recipe::{Draft, Recipe};
use plimsoll_planner::choose::{self, Memos, Planned, budget_bytes};
use plimsoll_planner::whatif::{CardRow, Ladder, LargestRow, Progress, attempt_among, ladder, largest, on_cards};
use plimsoll_planner::{Device as Planning, PlanFailure};
use plimsoll_train::tasks::{beside_the_run, look_at_data};

/// The plan or, where none fits, the smallest there is; the ladder is left out, for it takes many plans.
///
/// # Errors
/// The recipe cannot be planned at all.
pub fn outlook(recipe: &Recipe, device: &Device) -> Result<PlanReport, PlanFailure> {
    Outlooks::default().outlook(recipe, device)
}

/// Layers of the model that a recipe trains: the more, the longer a plan takes.
pub fn layers(recipe: &Recipe) -> usize {
    recipe.model.family().layers()
}

/// How far sizes of a recipe's model can go while the others stay as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Reach {
    /// The numbers of attention heads that divide the width; `None` where any number will do.
    pub heads: Option<Vec<usize>>,
    /// The longest text that the model reads, in tokens; `None` for what reads no text.
    pub longest: Option<usize>,
}

impl Reach {
    /// Of the model that a recipe trains.
    pub fn of(recipe: &Recipe) -> Reach {
        let family = recipe.model.family();
        let longest = match family.input() {
            Input::Series { .. } => None,
            Input::Tokens { max_length, .. } | Input::Images { max_length, .. } => Some(max_length),
        };
        Reach { heads: family.possible_heads(), longest }
    }
}

/// Outlooks of many recipes, on any thread: what those share that differ in their batch alone is built once, and kept for
/// the last few models.
#[derive(Default)]
pub struct Outlooks(Memos);

impl Outlooks {
    /// As [`outlook`].
    ///
    /// # Errors
    /// The recipe cannot be planned at all.
    pub fn outlook(&self, recipe: &Recipe, device: &Device) -> Result<PlanReport, PlanFailure> {
        match choose::plan_among(&self.0, recipe, &with_its_data(recipe, device)) {
            Ok(planned) => Ok(PlanReport::of(recipe, &planned)),
            Err(PlanFailure::DoesNotFit(smallest)) => Ok(PlanReport {
                fits: false,
                smallest_budget_bytes: Some(smallest.enough_bytes()),
                ..PlanReport::of(recipe, &smallest)
            }),
            Err(error) => Err(error),
        }
    }

    /// The same, with the ladder of ways out where nothing fits.
    ///
    /// # Errors
    /// The recipe cannot be planned at all.
    pub fn outlook_with_ladder(&self, draft: &Draft, device: &Device) -> Result<PlanReport, PlanFailure> {
        let recipe = draft.with(&[])?;
        let device = with_its_data(&recipe, device);
        match choose::plan_among(&self.0, &recipe, &device) {
            Ok(planned) => Ok(PlanReport::of(&recipe, &planned)),
            Err(PlanFailure::DoesNotFit(smallest)) => {
                let (ladder, hints) = ways_out(draft, &device, &smallest, &|_, _| ())?;
                Ok(PlanReport::of_smallest(&recipe, &smallest, &hints, ladder))
            }
            Err(error) => Err(error),
        }
    }
}

/// The device with room for what the run has beside its arena.
fn with_its_data(recipe: &Recipe, device: &Device) -> Planning {
    beside_the_run(device, look_at_data(recipe).known())
}

/// The ladder of a recipe that does not fit, and every way out that fits in a sentence. The last is always a budget
/// that is enough.
///
/// # Errors
/// A rung cannot be planned for another reason than memory.
pub fn ways_out(
    draft: &Draft,
    device: &Planning,
    smallest: &Planned,
    done: Progress<'_>,
) -> Result<(Ladder, Vec<String>), PlanFailure> {
    let ladder = ladder(draft, device, smallest, &Planning::catalog(), done)?;
    let held = held_by_others(&draft.with(&[])?, device, smallest);
    let hints = held.into_iter().chain(ladder.hints()).collect();
    Ok((ladder, hints))
}

/// Where the machine has enough and other programs hold it.
fn held_by_others(recipe: &Recipe, device: &Planning, smallest: &Planned) -> Option<String> {
    let held = device.total_bytes.saturating_sub(device.free_bytes);
    let empty = Planning { free_bytes: device.total_bytes, ..device.clone() };
    let (now, then) = (budget_bytes(recipe, device), budget_bytes(recipe, &empty));
    (then > now && then >= smallest.planned_peak_bytes()).then(|| {
        format!("other programs hold {} of {}: `plimsoll devices` names them", format_bytes(held), device.name)
    })
}

/// The recipe on every card of the catalog, by memory.
///
/// # Errors
/// The recipe cannot be planned at all.
pub fn on_every_card(recipe: &Recipe) -> Result<Vec<CardRow>, PlanFailure> {
    let steps = look_at_data(recipe).known().map(|data| data.steps(&recipe.train).run);
    on_cards(recipe, &Planning::catalog(), steps, &|_, _| ())
}

/// The largest batches that each card of the catalog computes at once, by memory.
///
/// # Errors
/// The recipe cannot be planned at all.
pub fn largest_on_every_card(draft: &Draft) -> Result<Vec<LargestRow>, PlanFailure> {
    largest(draft, &Planning::catalog(), &|_, _| ())
}

/// How large batches can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargestBatch {
    /// The largest effective batch for which there is a plan.
    pub accumulated: usize,
    /// The largest that is computed at once: beyond it, batches are accumulated. `None` where not even one sample is.
    pub at_once: Option<usize>,
}

/// The largest batches up to `most`; `None` where not even one sample fits.
///
/// # Errors
/// The recipe cannot be planned at all.
pub fn largest_batch(draft: &Draft, device: &Device, most: usize) -> Result<Option<LargestBatch>, PlanFailure> {
    let device = with_its_data(&draft.with(&[])?, device);
    let memos = Memos::default();
    let fits = |set: &[String]| Ok(attempt_among(&memos, &draft.with(set)?, &device)?.fits);
    let effective = |batch: usize| format!("train.effective_batch={batch}");
    let Some(accumulated) = most_that(most, |batch| fits(&[effective(batch)]))? else { return Ok(None) };
    let at_once = most_that(accumulated, |batch| fits(&[effective(batch), format!("memory.micro_batch={batch}")]))?;
    Ok(Some(LargestBatch { accumulated, at_once }))
}

/// The largest number up to `most` that fits, found by halving: a smaller one always does where a larger one does.
fn most_that(most: usize, fits: impl Fn(usize) -> Result<bool, PlanFailure>) -> Result<Option<usize>, PlanFailure> {
    if fits(most)? {
        return Ok(Some(most));
    }
    let (mut fitting, mut failing) = (0, most);
    while failing - fitting > 1 {
        let middle = fitting + (failing - fitting) / 2;
        if fits(middle)? { fitting = middle } else { failing = middle }
    }
    Ok((fitting > 0).then_some(fitting))
}
