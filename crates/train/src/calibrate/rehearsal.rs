//! A planned step over and over on one random batch: what benchmarks and calibration time.

use super::random_batch::random_batch;
use crate::RunError;
use crate::arena::take_arena_beside_others;
use crate::steps::shapes;
use crate::steps::{Shapes, Stepper, Underway};
use plimsoll_base::heap;
use plimsoll_data::Batch;
use plimsoll_exec::Executor;
use plimsoll_exec::initialize;
use plimsoll_models::recipe::Recipe;
use plimsoll_planner::choose::Planned;
use std::time::{Duration, Instant};

pub struct Rehearsal<'p> {
    pub planned: &'p Planned,
    pub executor: Box<dyn Executor>,
    stepper: Stepper,
    shapes: Shapes,
    batch: Batch,
    lr: f64,
    done: usize,
    /// What the arena and everything behind it took, and the initial values.
    pub arena_s: f64,
    pub weights_s: f64,
}

impl<'p> Rehearsal<'p> {
    pub fn new(recipe: &Recipe, planned: &'p Planned) -> Result<Rehearsal<'p>, RunError> {
        let choice = &planned.choice;
        let began = Instant::now();
        let mut executor = take_arena_beside_others(recipe, planned)?;
        let arena_s = began.elapsed().as_secs_f64();
        initialize(&choice.program, &mut executor, recipe.train.seed);
        let weights_s = began.elapsed().as_secs_f64() - arena_s;
        let (stepper, shapes) = (Stepper::new(recipe, choice), shapes(recipe, planned));
        let batch = random_batch(&choice.program, recipe.train.effective_batch)?;
        let lr = recipe.train.optimizer.lr;
        Ok(Rehearsal { planned, executor, stepper, shapes, batch, lr, done: 0, arena_s, weights_s })
    }

    /// How long the host has spent on inputs so far.
    pub fn feeding(&self) -> Duration {
        self.stepper.feeding()
    }

    /// One step to its end; `run` runs a phase.
    pub fn step(&mut self, run: impl FnMut(&mut Box<dyn Executor>, usize)) -> Result<(), RunError> {
        let underway = self.start(run)?;
        self.stepper.finish(&self.executor, underway).map(|_| ())
    }

    /// Seconds of each of the steps behind the first `warmup`, and how often these took heap memory. A step takes as long
    /// as it is from the end of the one before to its own: a device works on it while the next one's inputs are made
    /// ready, as in training.
    pub fn time(&mut self, warmup: usize, steps: usize) -> Result<(Vec<f64>, u64), RunError> {
        let (mut times, mut last, mut open) = (Vec::with_capacity(warmup + steps), Instant::now(), None);
        for step in 0..warmup + steps {
            if step == warmup {
                heap::reset();
            }
            let underway = self.start(Executor::run)?;
            let ended = if underway.is_known() { Some(underway) } else { open.replace(underway) };
            ended.map_or(Ok(()), |ended| self.note_end(ended, &mut last, &mut times))?;
        }
        open.map_or(Ok(()), |ended| self.note_end(ended, &mut last, &mut times))?;
        times.drain(..warmup);
        Ok((times, heap::used().allocations))
    }

    fn note_end(&self, ended: Underway, last: &mut Instant, times: &mut Vec<f64>) -> Result<(), RunError> {
        self.stepper.finish(&self.executor, ended)?;
        let before = std::mem::replace(last, Instant::now());
        times.push((*last - before).as_secs_f64());
        Ok(())
    }

    fn start(&mut self, run: impl FnMut(&mut Box<dyn Executor>, usize)) -> Result<Underway, RunError> {
        let Rehearsal { planned, executor, stepper, shapes, batch, lr, done, .. } = self;
        *done += 1;
        stepper.start(executor, &planned.choice, shapes, batch, *done - 1, *lr, run)
    }
}
