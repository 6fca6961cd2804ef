//! A small model in training, with a look at the clock after each node.

use super::super::random_batch::random_batch;
use super::super::{Planned, Shapes, Stepper, initialize, plan, shapes, take_arena};
use super::workloads::Workload;
use super::{Device, TrainError};
use crate::data::Batch;
use crate::exec::Executor;
use crate::graph::NodeId;
use crate::ops::Processor;
use crate::plan::{Profile, Program, predicted_ms};
use crate::recipe::{Precision, Recipe};
use std::time::Instant;

pub struct Running {
    pub name: &'static str,
    /// Whether its f32 products are rounded to tf32.
    pub tf32: bool,
    planned: Planned,
    executor: Box<dyn Executor>,
    stepper: Stepper,
    shapes: Shapes,
    batch: Batch,
    lr: f64,
    done: usize,
    /// By phase and tick: seconds of each run.
    ticks: Vec<Vec<Vec<f64>>>,
    steps: Vec<f64>,
}

impl Running {
    pub fn new(workload: &Workload, device: &Device) -> Result<Running, TrainError> {
        let recipe = Recipe::parse(&workload.recipe(), workload.name, &[])?;
        let planned = plan(&recipe, device)?;
        let choice = &planned.choice;
        let mut executor = take_arena(&recipe, &planned)?;
        initialize(&choice.program, &mut executor, recipe.train.seed);
        let (stepper, shapes) = (Stepper::new(&recipe, choice), shapes(&recipe, &planned));
        let batch = random_batch(&choice.program, recipe.train.effective_batch)?;
        let ticks = choice.layout.phases.iter().map(|phase| vec![Vec::new(); phase.order.len()]).collect();
        let lr = recipe.train.optimizer.lr;
        let (done, steps, tf32) = (0, Vec::new(), recipe.memory.precision.pinned() == Some(Precision::Tf32));
        Ok(Running { name: workload.name, tf32, planned, executor, stepper, shapes, batch, lr, done, ticks, steps })
    }

    pub fn program(&self) -> &Program {
        &self.planned.choice.program
    }

    pub fn predicted_ms(&self, profile: &Profile) -> f64 {
        predicted_ms(self.program(), &profile.clone().with_tf32(self.tf32))
    }

    /// Some steps, of which all but the first are counted.
    pub fn turn(&mut self, steps: usize) -> Result<(), TrainError> {
        // Looking at each node takes a device out of its stride: its whole steps are measured apart.
        let apart = self.planned.device.target.processor == Processor::Cuda;
        (0..steps).try_for_each(|step| match (step, apart) {
            (0, _) => self.step(false, false),
            (_, false) => self.step(true, true),
            (_, true) => self.step(step % 2 == 1, step % 2 == 0),
        })
    }

    /// One step; whether its nodes are timed, and whether all of it is.
    fn step(&mut self, nodes: bool, whole: bool) -> Result<(), TrainError> {
        let (choice, ticks, began) = (&self.planned.choice, &mut self.ticks, Instant::now());
        let run = |executor: &mut Box<dyn Executor>, phase: usize| {
            if !nodes {
                return executor.run(phase);
            }
            let mut seconds = vec![0.0; ticks[phase].len()];
            executor.run_timed(phase, &mut seconds);
            ticks[phase].iter_mut().zip(seconds).for_each(|(times, seconds)| times.push(seconds));
        };
        self.stepper.step(&mut self.executor, choice, &mut self.shapes, &self.batch, self.done, self.lr, run)?;
        self.done += 1;
        if whole {
            self.steps.push(began.elapsed().as_secs_f64());
        }
        Ok(())
    }

    /// Phase, node and seconds of one run, for all nodes that ran.
    pub fn node_seconds(&self) -> impl Iterator<Item = (usize, NodeId, f64)> + '_ {
        let phases = self.planned.choice.layout.phases.iter().zip(&self.ticks).enumerate();
        phases.flat_map(|(index, (phase, ticks))| {
            let ran = phase.order.iter().zip(ticks).filter(|(_, times)| !times.is_empty());
            ran.map(move |(&node, times)| (index, node, typical(times)))
        })
    }

    pub fn step_seconds(&self) -> f64 {
        typical(&self.steps)
    }

    /// A step as it is met: half of them take longer, interruptions included.
    pub fn median_step_seconds(&self) -> f64 {
        quantile(&self.steps, 2)
    }

    /// What a run of a phase takes besides its nodes.
    pub fn seconds_besides_nodes(&self) -> f64 {
        let repeat = |phase: usize| self.program().phases[phase].repeat as f64;
        let nodes: f64 = self.node_seconds().map(|(phase, _, seconds)| repeat(phase) * seconds).sum();
        let phases: f64 = (0..self.program().phases.len()).map(repeat).sum();
        (self.step_seconds() - nodes) / phases.max(1.0)
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
