//! The plans that are chosen for several budgets against every fixed strategy, all of them measured in alternation.

use super::{Arguments, Workload, median, recipe, rounded, sorted_ms};
use crate::failure::Failure;
use crate::printer;
use plimsoll_core::graph::Backend;
use plimsoll_models::recipe::Recipe;
use plimsoll_planner::PlanFailure;
use plimsoll_planner::choose::{Planned, plan};
use plimsoll_planner::{Beside, Device};
use plimsoll_train::calibrate::Rehearsal;
use serde::Serialize;

/// What is recomputed in the strategies that people choose by hand.
const LEVELS: [&str; 3] = ["none", "cheap", "layers"];
/// Steps of a plan in one turn: the first brings its memory back into the caches and is not counted.
const STEPS_PER_TURN: usize = 3;

/// One budget: what was chosen, and what else would fit.
#[derive(Serialize)]
struct Point<'a> {
    workload: &'a str,
    batch: usize,
    seq: usize,
    settings: &'a [String],
    threads: usize,
    budget_bytes: u64,
    chosen: Measured,
    fixed: Vec<Measured>,
}

#[derive(Clone, Serialize)]
struct Measured {
    micro_batch: usize,
    recompute: String,
    arena_bytes: usize,
    predicted_ms: f64,
    ms: f64,
    ms_min: f64,
}

/// A plan under its pins, as often as it was asked for.
struct Candidate {
    recipe: Recipe,
    planned: Planned,
}

/// On a CPU plans are compared by their arenas: the program is the same for all.
fn arena_alone(device: &Device) -> Device {
    match device.target.backend {
        Backend::Cpu => Device { reserve_bytes: 0, beside: Beside::default(), ..device.clone() },
        Backend::Cuda => device.clone(),
    }
}

pub(crate) fn run(
    arguments: &Arguments,
    workload: &Workload,
    seq: usize,
    device: &Device,
    budgets: usize,
) -> Result<(), Failure> {
    let device = &arena_alone(device);
    let with = |pins: &[String]| recipe(arguments, workload, seq, pins);
    let fixed = fixed(arguments.batch, device, with)?;
    let budgets = self::budgets(&fixed, device.reserve_bytes, budgets);
    let mut candidates = fixed;
    let strategies = candidates.len();
    let mut chosen = Vec::new();
    for &budget in &budgets {
        let recipe = with(&[format!("memory.budget={budget}B")])?;
        let candidate = Candidate { planned: plan(&recipe, device)?, recipe };
        chosen.push(position(&mut candidates, candidate));
    }
    let measured = measure(&candidates, arguments.steps as usize)?;
    for (&budget_bytes, &at) in budgets.iter().zip(&chosen) {
        let fits = |m: &&Measured| m.arena_bytes as u64 + device.reserve_bytes <= budget_bytes;
        printer::json(&Point {
            workload: workload.name,
            batch: arguments.batch,
            seq,
            settings: &arguments.overrides.sets,
            threads: device.target.threads,
            budget_bytes,
            chosen: measured[at].clone(),
            fixed: measured[..strategies].iter().filter(fits).cloned().collect(),
        })?;
    }
    Ok(())
}

/// Every level of recompute with every power of two as micro-batch, as far as the model allows it.
fn fixed(
    batch: usize,
    device: &Device,
    with: impl Fn(&[String]) -> Result<Recipe, Failure>,
) -> Result<Vec<Candidate>, Failure> {
    let mut found = Vec::new();
    for level in LEVELS {
        for micro_batch in (0..).map(|power| 1usize << power).take_while(|&micro| micro <= batch) {
            let pins = [format!("memory.recompute={level}"), format!("memory.micro_batch={micro_batch}")];
            // Batch statistics want the whole batch. A recipe that is wrong without pins shows when a plan without any
            // is asked for.
            let Ok(recipe) = with(&pins) else { continue };
            match plan(&recipe, device) {
                Ok(planned) => found.push(Candidate { recipe, planned }),
                // What this machine cannot hold is not compared.
                Err(PlanFailure::Refused { .. } | PlanFailure::DoesNotFit(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    match found.is_empty() {
        true => Err(Failure::bad_input(
            format!("no fixed strategy runs with a batch of {batch}"),
            "make --batch a power of two",
        )),
        false => Ok(found),
    }
}

/// `count` budgets, from one that the smallest fixed strategy fits in to one that all do. Their arenas grow by the same
/// factor from each to the next; what a device keeps beside it is the same in all.
fn budgets(fixed: &[Candidate], reserve_bytes: u64, count: usize) -> Vec<u64> {
    let arenas = || fixed.iter().map(|c| c.planned.choice.layout.arena_bytes as u64);
    let (smallest, largest) = (arenas().min().unwrap_or(0), arenas().max().unwrap_or(0));
    spread(smallest, largest, count).into_iter().map(|arena| arena + reserve_bytes).collect()
}

/// `count` sizes, each the same factor above the one before.
fn spread(smallest: u64, largest: u64, count: usize) -> Vec<u64> {
    let (low, high) = (smallest.max(1) as f64, largest.max(smallest).max(1) as f64);
    let share = |i: usize| i as f64 / count.saturating_sub(1).max(1) as f64;
    (0..count).map(|i| (low * (high / low).powf(share(i))).ceil() as u64).collect()
}

/// Where the candidate's plan is among those there are, which it joins if it is new.
fn position(candidates: &mut Vec<Candidate>, candidate: Candidate) -> usize {
    let same = |other: &Candidate| other.planned.choice.settings == candidate.planned.choice.settings;
    candidates.iter().position(same).unwrap_or_else(|| {
        candidates.push(candidate);
        candidates.len() - 1
    })
}

/// All candidates side by side in memory, taking turns.
fn measure(candidates: &[Candidate], steps: usize) -> Result<Vec<Measured>, Failure> {
    let mut rehearsals: Vec<(Rehearsal<'_>, Vec<f64>)> = Vec::new();
    for Candidate { recipe, planned } in candidates {
        let mut rehearsal = Rehearsal::new(recipe, planned)?;
        // A device captures its graphs in the first step, while what the others take is not counted as its own.
        rehearsal.time(1, 1)?;
        rehearsals.push((rehearsal, Vec::new()));
    }
    for _ in 0..steps.div_ceil(STEPS_PER_TURN - 1) {
        for (rehearsal, times) in &mut rehearsals {
            times.extend(rehearsal.time(1, STEPS_PER_TURN - 1)?.0);
        }
    }
    Ok(rehearsals.into_iter().map(|(rehearsal, times)| measured(rehearsal.planned, times)).collect())
}

fn measured(planned: &Planned, seconds: Vec<f64>) -> Measured {
    let (times, choice) = (sorted_ms(seconds), &planned.choice);
    Measured {
        micro_batch: choice.settings.micro_batch,
        recompute: choice.settings.recompute.name().into(),
        arena_bytes: choice.layout.arena_bytes,
        predicted_ms: rounded(choice.predicted_step_ms, 3),
        ms: rounded(median(&times), 3),
        ms_min: rounded(times[0], 3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_by_the_same_factor() {
        assert_eq!(spread(100, 1600, 5), [100, 200, 400, 800, 1600]);
        assert_eq!(spread(100, 1600, 1), [100]);
        assert_eq!(spread(100, 50, 2), [100, 100]);
    }
}
