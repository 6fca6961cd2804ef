//! Measures a device: real training steps of small models, timed node by node, and the rates that explain them best.

mod fit;
mod random_batch;
mod rehearsal;
mod running;
#[cfg(test)]
mod tests;

pub use fit::Observation;
pub use rehearsal::Rehearsal;

use super::RunError;
use plimsoll_base::names::Named;
use plimsoll_core::graph::{Backend, Class};
use plimsoll_core::plan::{Amounts, Grain, Profile, Work};
use plimsoll_models::families::{FamilyName, Workload};
use plimsoll_planner::Device;
use running::{Prepared, Running};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A measured profile and how well it explains what it was made from.
#[deny(missing_docs)]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// Rates of every class of work, to be kept (`store_profile` of the crate plimsoll).
    pub profile: Profile,
    /// Whole steps of the models that were timed.
    pub steps: Vec<StepCheck>,
    /// The same nodes by what they do.
    pub classes: Vec<ClassCheck>,
    /// How long measuring took.
    pub seconds: f64,
}

/// A model's step, measured and as the profile has it.
#[deny(missing_docs)]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepCheck {
    /// Which of those that its family is timed by.
    pub model: String,
    /// The median.
    pub measured_ms: f64,
    /// By the profile.
    pub predicted_ms: f64,
}

/// All nodes of a class over one step of every model.
#[deny(missing_docs)]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassCheck {
    /// What they do.
    pub class: Class,
    /// In half precision.
    pub half: bool,
    /// How many they are.
    pub nodes: usize,
    /// What they take together.
    pub measured_ms: f64,
    /// Mean distance of a node's prediction from its measurement, by time spent.
    pub error: f64,
}

/// Rounds over all models that are run at least and at most.
const ROUNDS: std::ops::Range<usize> = 1..16;

/// Runs the models in alternation for about `time`, telling `progress` the share that is done, and fits a profile.
pub fn calibrate(device: &Device, time: Duration, mut progress: impl FnMut(f64)) -> Result<Calibration, RunError> {
    let began = Instant::now();
    let workloads = workloads(device.target.backend);
    let prepared = workloads.map(|(family, workload)| Prepared::new(family, workload, device));
    let prepared = prepared.collect::<Result<Vec<_>, _>>()?;
    let mut models = prepared.iter().map(Running::new).collect::<Result<Vec<_>, _>>()?;
    for round in 0..ROUNDS.end {
        let spent = began.elapsed().as_secs_f64() / time.as_secs_f64();
        if round >= ROUNDS.start && spent >= 1.0 {
            break;
        }
        for model in &mut models {
            model.turn()?;
        }
        progress(began.elapsed().as_secs_f64() / time.as_secs_f64());
    }
    Ok(explain(&models, device, began))
}

/// What every family has to be timed by, in the order of their turns.
fn workloads(backend: Backend) -> impl Iterator<Item = (FamilyName, &'static Workload)> {
    FamilyName::ALL.iter().flat_map(move |&family| family.workloads(backend).iter().map(move |one| (family, one)))
}

fn explain(models: &[Running<'_>], device: &Device, began: Instant) -> Calibration {
    let quiet = fitted(models, device);
    let classes = class_checks(&observations(models, &quiet), &quiet);
    let profile = as_met(quiet, models);
    let steps = models.iter().map(|model| StepCheck {
        model: model.name.into(),
        measured_ms: 1e3 * model.median_step_seconds(),
        predicted_ms: model.predicted_ms(&profile),
    });
    let steps = steps.collect();
    Calibration { profile, steps, classes, seconds: began.elapsed().as_secs_f64() }
}

/// The near cache's size is not known: the one that leaves the least unexplained is taken.
fn fitted(models: &[Running<'_>], device: &Device) -> Profile {
    let start = match device.target.backend {
        Backend::Cpu => Profile::cpu(device.target.threads),
        // How much faster its tensor cores are is known of a card; what else it does is fitted as a sum.
        Backend::Cuda => Profile { overlaps: false, ..device.profile.clone() },
    };
    let fits = [0.25, 0.5, 1.0, 2.0, 4.0].map(|factor| {
        let near_bytes = (start.grain.near_bytes as f64 * factor) as usize;
        let profile = Profile { grain: Grain { near_bytes, ..start.grain }, ..start.clone() };
        let seen = observations(models, &profile);
        rates(profile, seen)
    });
    let best = fits.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let profile = best.map_or(start, |(profile, _)| profile);
    // Whatever disturbs a step adds to what its nodes leave over; the model that was disturbed least says how much it is.
    let rests = models.iter().map(|model| model.other_seconds(&profile));
    let phase_s = rests.reduce(f64::min).unwrap_or(0.0).max(0.0);
    Profile { phase_s, ..profile }
}

/// The profile with the rates that explain what was seen best, and what they leave unexplained. Half precision has rates
/// of its own; a class that was seen in nothing else lends them to the others.
fn rates(profile: Profile, seen: Vec<Observation>) -> (Profile, f64) {
    let (half, full): (Vec<_>, Vec<_>) = seen.into_iter().partition(|seen| seen.work.is_half());
    let (half_seconds, half_left) = fit::by_class(&half, &profile.seconds);
    let (full_seconds, full_left) = fit::by_class(&full, &profile.seconds);
    let mut seconds = profile.seconds.clone();
    seconds.extend(half_seconds.clone());
    seconds.extend(full_seconds);
    (Profile { seconds, half_seconds, ..profile }, half_left + full_left)
}

/// Nodes at their quiet moments say how the classes compare; whole steps, interruptions included, say how long they take.
fn as_met(profile: Profile, models: &[Running<'_>]) -> Profile {
    let longer = |model: &Running<'_>| 1e3 * model.median_step_seconds() / model.predicted_ms(&profile).max(1e-9);
    let mut factors: Vec<f64> = models.iter().map(longer).collect();
    factors.sort_by(f64::total_cmp);
    let factor = factors.get(factors.len() / 2).copied().filter(|factor| factor.is_normal()).unwrap_or(1.0);
    profile.slower(factor)
}

/// Every node of every model: what it does and the time it took.
fn observations(models: &[Running<'_>], profile: &Profile) -> Vec<Observation> {
    let mut found = Vec::new();
    for model in models {
        let step = model.step_seconds();
        for (phase, node, seconds) in model.node_seconds() {
            let phase = &model.program().phases[phase];
            let work = Work::of(&phase.graph, node, &profile.grain);
            let work = Work { amounts: profile.clone().with_tf32(model.tf32).as_in_f32(&work), ..work };
            found.push(Observation { work, seconds, runs: phase.repeat as f64, step });
        }
    }
    found
}

fn class_checks(observations: &[Observation], profile: &Profile) -> Vec<ClassCheck> {
    let mut by_class: BTreeMap<(Class, bool), (usize, f64, f64)> = BTreeMap::new();
    for seen in observations.iter().filter(|seen| seen.work.class != Class::View) {
        let rates: Amounts = profile.rates(&seen.work).copied().unwrap_or_default();
        let entry = by_class.entry((seen.work.class, seen.work.is_half())).or_default();
        let off = (rates.dot(&seen.work.amounts) - seen.seconds).abs();
        *entry = (entry.0 + 1, entry.1 + seen.runs * seen.seconds, entry.2 + seen.runs * off);
    }
    let check = |((class, half), (nodes, seconds, off)): ((Class, bool), (usize, f64, f64))| ClassCheck {
        class,
        half,
        nodes,
        measured_ms: 1e3 * seconds,
        error: off / seconds.max(1e-12),
    };
    by_class.into_iter().map(check).collect()
}
