//! One update on an executor: the effective batch in micro-steps, then the optimizer. The training loop and the
//! benchmark run this very code.

use super::feed::counted;
use super::shapes::{Pass, Shapes};
use super::told::{Told, Update};
use crate::RunError;
use plimsoll_core::plan::{PlanError, Program};
use plimsoll_data::Batch;
use plimsoll_exec::{Asked, Executor};
use plimsoll_models::recipe::{Recipe, Rule};
use plimsoll_planner::choose::Choice;
use plimsoll_planner::program::UPDATE;
use plimsoll_planner::program::contrastive::{CONTRAST, EMBED, REPLAY};
use plimsoll_planner::program::scaling::SCALE;
use std::time::{Duration, Instant};

/// What one update tells about itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stepped {
    /// Mean over the samples or tokens of the batch.
    pub loss: f64,
    /// Norm of the gradient before clipping.
    pub norm: f64,
    /// What the loss is multiplied by from now on, in f16.
    pub scale: Option<f64>,
}

impl Stepped {
    /// The gradient was too large for f16: the weights are what they were, and the scale is half of what it was.
    pub fn is_skipped(&self) -> bool {
        self.scale.is_some() && !self.norm.is_finite()
    }

    /// Whether going on makes no sense. Steps may be skipped while there is a scale left to halve.
    pub fn has_diverged(&self) -> bool {
        let is_finite = self.loss.is_finite() && self.norm.is_finite();
        let recovers = self.is_skipped() && self.scale.is_some_and(|scale| scale >= 1.0);
        !is_finite && !recovers
    }
}

/// An update that was given to the executor. A device may still be at it: the next one can be made ready meanwhile.
#[derive(Debug)]
pub struct Underway {
    /// What the mean of the loss is taken over.
    counted: f64,
    metrics: Asked,
}

impl Underway {
    /// Whether its numbers are there without waiting.
    pub(crate) fn is_known(&self) -> bool {
        matches!(self.metrics, Asked::Known(_))
    }
}

/// Knows the phases of a step and what they are told.
pub struct Stepper {
    passes: Passes,
    /// The update, if it is a phase of its own.
    update: Option<usize>,
    micro_batch: usize,
    rule: Rule,
    seed: u64,
    told: Told,
    feeding: Duration,
}

/// What [`Stepped`] is made of: residents that the phases add to.
const METRICS: [&str; 3] = ["metrics.loss", "metrics.norm", SCALE];

/// How an effective batch is gone through.
enum Passes {
    /// Each micro-batch forward and backward.
    Once,
    /// All micro-batches forward, the loss over all of them, each one again forward and backward.
    Twice { embed: usize, contrast: usize, replay: usize },
}

impl Stepper {
    /// An error if the program reads something that no step writes.
    pub fn new(recipe: &Recipe, choice: &Choice) -> Result<Stepper, RunError> {
        let program = &choice.program;
        let contrastive = [EMBED, CONTRAST, REPLAY].map(|name| program.phase(name));
        let passes = match contrastive {
            [Some(embed), Some(contrast), Some(replay)] => Passes::Twice { embed, contrast, replay },
            _ => Passes::Once,
        };
        Ok(Stepper {
            passes,
            update: program.phase(UPDATE),
            micro_batch: choice.settings.micro_batch,
            rule: recipe.train.optimizer.rule,
            seed: recipe.train.seed,
            told: Told::of(program)?,
            feeding: Duration::ZERO,
        })
    }

    /// How long the host has spent on inputs so far.
    pub fn feeding(&self) -> Duration {
        self.feeding
    }

    /// One update from its start to its end.
    #[allow(clippy::too_many_arguments)] // as `start`
    pub fn step<E: Executor>(
        &mut self,
        executor: &mut E,
        choice: &Choice,
        shapes: &mut Shapes,
        batch: &Batch,
        step: usize,
        lr: f64,
        run: impl FnMut(&mut E, usize),
    ) -> Result<Stepped, RunError> {
        let underway = self.start(executor, choice, shapes, batch, step, lr, run)?;
        self.finish(executor, underway)
    }

    /// Gives the executor update number `step` (from 0) and does not wait for it. The batch is free again; what came of it
    /// is for [`Stepper::finish`] to tell, of which one may be outstanding when the next update is started. `run` runs a
    /// phase: `Executor::run`, or something that also looks at the clock.
    #[allow(clippy::too_many_arguments)] // what an update is made of; a struct would only rename it
    pub fn start<E: Executor>(
        &mut self,
        executor: &mut E,
        choice: &Choice,
        shapes: &mut Shapes,
        batch: &Batch,
        step: usize,
        lr: f64,
        mut run: impl FnMut(&mut E, usize),
    ) -> Result<Underway, RunError> {
        let counted = Some(counted(batch)).filter(|&sum| sum > 0.0).unwrap_or(1.0);
        self.told.write(executor, &Update { step, lr, counted, rule: self.rule })?;
        match self.passes {
            Passes::Once => {
                let phase = shapes.phase(executor, choice, Pass::Train, batch.lengths())?;
                self.micro_steps(executor, shapes, phase, batch, step, &mut run)?;
            }
            Passes::Twice { embed, contrast, replay } => {
                self.micro_steps(executor, shapes, embed, batch, step, &mut run)?;
                self.feed(executor, shapes, contrast, batch, 0)?;
                run(executor, contrast);
                self.micro_steps(executor, shapes, replay, batch, step, &mut run)?;
            }
        }
        if let Some(update) = self.update {
            run(executor, update);
        }
        // A device that failed has nothing to say later.
        executor.check()?;
        Ok(Underway { counted, metrics: executor.ask(&METRICS) })
    }

    /// Waits for an update's numbers.
    pub fn finish(&self, executor: &dyn Executor, underway: Underway) -> Result<Stepped, RunError> {
        let metrics = executor.answer(&underway.metrics);
        // Everything up to there has been waited for: what went wrong until then is known now.
        executor.check()?;
        let scale = Some(metrics[2]).filter(|scale| !scale.is_nan());
        Ok(Stepped { loss: metrics[0] / underway.counted, norm: metrics[1], scale })
    }

    fn feed(
        &mut self,
        executor: &mut dyn Executor,
        shapes: &mut Shapes,
        phase: usize,
        batch: &Batch,
        first: usize,
    ) -> Result<(), RunError> {
        let began = Instant::now();
        shapes.feed(executor, phase, batch, first)?;
        self.feeding += began.elapsed();
        Ok(())
    }

    /// Runs a phase for every micro-batch of the batch.
    fn micro_steps<E: Executor>(
        &mut self,
        executor: &mut E,
        shapes: &mut Shapes,
        phase: usize,
        batch: &Batch,
        step: usize,
        run: &mut impl FnMut(&mut E, usize),
    ) -> Result<(), RunError> {
        for first in (0..batch.len()).step_by(self.micro_batch) {
            let rng = [self.seed as i64, step as i64, first as i64];
            self.told.write_rng(executor, rng)?;
            self.feed(executor, shapes, phase, batch, first)?;
            run(executor, phase);
        }
        Ok(())
    }
}

pub(crate) fn phase(program: &Program, name: &str) -> Result<usize, RunError> {
    let missing = || PlanError::Broken(format!("the program has no phase {name}"));
    Ok(program.phase(name).ok_or_else(missing)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overflow_is_skipped_while_there_is_a_scale_to_halve() {
        let stepped = |loss: f64, norm: f64, scale: Option<f64>| Stepped { loss, norm, scale };
        let fine = stepped(1.0, 2.0, None);
        assert!(!fine.is_skipped() && !fine.has_diverged());
        assert!(stepped(1.0, f64::NAN, None).has_diverged(), "without a scale there is nothing to recover by");
        let skipped = stepped(1.0, f64::INFINITY, Some(32768.0));
        assert!(skipped.is_skipped() && !skipped.has_diverged());
        assert!(stepped(1.0, f64::INFINITY, Some(0.5)).has_diverged());
        assert!(stepped(f64::NAN, 1.0, Some(32768.0)).has_diverged(), "a step that was taken cannot be undone");
    }
}
