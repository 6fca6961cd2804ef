//! A small model in training, with a look at the clock after each node.

use super::super::random_batch::random_batch;
use super::super::{Planned, Shapes, Stepper, initialize, plan, shapes};
use super::workloads::Workload;
use super::{Device, TrainError};
use crate::data::Batch;
use crate::exec::cpu::CpuExecutor;
use crate::graph::NodeId;
use crate::plan::Program;
use crate::recipe::Recipe;
use std::time::Instant;

pub struct Running {
    pub name: &'static str,
    planned: Planned,
    executor: CpuExecutor,
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
        let bytes = choice.layout.arena_bytes as u64;
        let mut executor = CpuExecutor::new(&choice.program, &choice.layout, choice.options.target.threads)
            .map_err(|cause| TrainError::Arena { bytes, cause })?;
        initialize(&choice.program, &mut executor, recipe.train.seed);
        let (stepper, shapes) = (Stepper::new(&recipe, choice), shapes(&recipe, &planned));
        let batch = random_batch(&choice.program, recipe.train.effective_batch)?;
        let ticks = choice.layout.phases.iter().map(|phase| vec![Vec::new(); phase.order.len()]).collect();
        let lr = recipe.train.optimizer.lr;
        let (done, steps) = (0, Vec::new());
        Ok(Running { name: workload.name, planned, executor, stepper, shapes, batch, lr, done, ticks, steps })
    }

    pub fn program(&self) -> &Program {
        &self.planned.choice.program
    }

    /// Some steps, of which all but the first are counted.
    pub fn turn(&mut self, steps: usize) -> Result<(), TrainError> {
        (0..steps).try_for_each(|step| self.step(step > 0))
    }

    fn step(&mut self, counted: bool) -> Result<(), TrainError> {
        let (choice, ticks, began) = (&self.planned.choice, &mut self.ticks, Instant::now());
        let run = |executor: &mut CpuExecutor, phase: usize| {
            let mut last = Instant::now();
            executor.run_watched(phase, |tick| {
                let now = Instant::now();
                if counted {
                    ticks[phase][tick].push((now - last).as_secs_f64());
                }
                last = now;
            });
        };
        self.stepper.step(&mut self.executor, choice, &mut self.shapes, &self.batch, self.done, self.lr, run)?;
        self.done += 1;
        if counted {
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
