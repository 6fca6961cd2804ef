//! A small model in training, with a look at the clock after each node.

use super::Rehearsal;
use super::{Device, RunError};
use plimsoll_core::graph::Backend;
use plimsoll_core::graph::NodeId;
use plimsoll_core::plan::{Phase, Profile, Program, predicted_ms};
use plimsoll_exec::Executor;
use plimsoll_models::families::{FamilyName, Workload};
use plimsoll_models::recipe::{Choice, Precision, Recipe};
pub(super) use plimsoll_planner::choose::instead_of;
use plimsoll_planner::choose::{Planned, plan};
use std::time::Instant;

/// A model with its plan for the device.
pub(super) struct Prepared {
    name: &'static str,
    recipe: Recipe,
    planned: Planned,
}

impl Prepared {
    pub(super) fn new(family: FamilyName, workload: &Workload, device: &Device) -> Result<Prepared, RunError> {
        let mut recipe = Recipe::parse(&workload.recipe(family), workload.name, &[])?;
        if let Some(other) = recipe.memory.precision.pinned().and_then(|wanted| instead_of(wanted, device)) {
            recipe.memory.precision = Choice::Pinned(other);
        }
        Ok(Prepared { name: workload.name, planned: plan(&recipe, device)?, recipe })
    }
}

pub(super) struct Running<'p> {
    pub name: &'static str,
    /// Whether its f32 products are rounded to tf32.
    pub tf32: bool,
    rehearsal: Rehearsal<'p>,
    /// By phase and tick: seconds of each run.
    ticks: Vec<Vec<Vec<f64>>>,
    steps: Vec<f64>,
}

/// Steps of a model in one turn: the first brings its memory back into the caches and is not counted.
const STEPS_PER_TURN: usize = 3;
/// A device is done sooner.
const STEPS_ON_A_DEVICE: usize = 8;

impl<'p> Running<'p> {
    pub(super) fn new(prepared: &'p Prepared) -> Result<Running<'p>, RunError> {
        let Prepared { name, recipe, planned } = prepared;
        let mut rehearsal = Rehearsal::new(recipe, planned)?;
        // A device captures its graphs in the first step, while what the others take is not counted as its own.
        rehearsal.time(0, 1)?;
        let ticks = planned.choice.layout.phases.iter().map(|phase| vec![Vec::new(); phase.order.len()]).collect();
        let tf32 = recipe.memory.precision.pinned() == Some(Precision::Tf32);
        Ok(Running { name, tf32, rehearsal, ticks, steps: Vec::new() })
    }

    pub(super) fn program(&self) -> &Program {
        &self.rehearsal.planned.choice.program
    }

    pub(super) fn predicted_ms(&self, profile: &Profile) -> f64 {
        predicted_ms(self.program(), &profile.clone().with_tf32(self.tf32))
    }

    /// Some steps, of which all but the first are counted.
    pub(super) fn turn(&mut self) -> Result<(), RunError> {
        match self.rehearsal.planned.device.target.backend {
            Backend::Cpu => {
                self.rehearsal.step(Executor::run)?;
                (1..STEPS_PER_TURN).try_for_each(|_| {
                    let began = Instant::now();
                    self.look_at_nodes()?;
                    self.steps.push(began.elapsed().as_secs_f64());
                    Ok(())
                })
            }
            // Looking at each node takes a device out of its stride: its whole steps are measured apart.
            Backend::Cuda => {
                self.look_at_nodes()?;
                self.steps.extend(self.rehearsal.time(1, STEPS_ON_A_DEVICE)?.0);
                Ok(())
            }
        }
    }

    /// One step, every node of it timed.
    fn look_at_nodes(&mut self) -> Result<(), RunError> {
        let Running { rehearsal, ticks, .. } = self;
        rehearsal.step(|executor, phase| {
            let mut seconds = vec![0.0; ticks[phase].len()];
            executor.run_timed(phase, &mut seconds);
            ticks[phase].iter_mut().zip(seconds).for_each(|(times, seconds)| times.push(seconds));
        })
    }

    /// Phase, node and seconds of one run, for all nodes that ran.
    pub(super) fn node_seconds(&self) -> impl Iterator<Item = (usize, NodeId, f64)> + '_ {
        let phases = self.rehearsal.planned.choice.layout.phases.iter().zip(&self.ticks).enumerate();
        phases.flat_map(|(index, (phase, ticks))| {
            let ran = phase.order.iter().zip(ticks).filter(|(_, times)| !times.is_empty());
            ran.map(move |(&node, times)| (index, node, typical(times)))
        })
    }

    pub(super) fn step_seconds(&self) -> f64 {
        typical(&self.steps)
    }

    /// A step as it is met: half of them take longer, interruptions included.
    pub(super) fn median_step_seconds(&self) -> f64 {
        quantile(&self.steps, 2)
    }

    /// What a run of a phase takes besides its inputs and its nodes.
    pub(super) fn other_seconds(&self, profile: &Profile) -> f64 {
        let phases = &self.program().phases;
        let mut nodes = vec![0.0; phases.len()];
        self.node_seconds().for_each(|(phase, _, seconds)| nodes[phase] += seconds);
        let known =
            |(phase, nodes): (&Phase, f64)| phase.repeat as f64 * (nodes + profile.input_seconds(&phase.graph, nodes));
        let known: f64 = phases.iter().zip(nodes).map(known).sum();
        let runs: f64 = phases.iter().map(|phase| phase.repeat as f64).sum();
        (self.step_seconds() - known) / runs.max(1.0)
    }
}

/// The lower quartile: other work on the machine only ever adds time. 0 for none.
fn typical(times: &[f64]) -> f64 {
    quantile(times, 4)
}

/// The time that one in `parts` is below.
fn quantile(times: &[f64], parts: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / parts).copied().unwrap_or(0.0)
}
