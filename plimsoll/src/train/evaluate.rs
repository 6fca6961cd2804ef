//! One pass over held-out samples, inside the same arena as the steps.

use super::TrainError;
use super::batch::{Feeder, counted};
use super::stepper::{clear_metrics, metric};
use crate::data::{Dataset, Loader, LoaderOptions, Position};
use crate::exec::Executor;
use crate::plan::Program;
use crate::recipe::Recipe;
use std::sync::Arc;

/// Means over the samples or tokens of a dataset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    pub loss: f64,
    pub accuracy: f64,
}

pub(super) fn evaluate(
    executor: &mut dyn Executor,
    recipe: &Recipe,
    program: &Program,
    phase: usize,
    dataset: Arc<dyn Dataset>,
) -> Result<Scores, TrainError> {
    let mut feeder = Feeder::new(program);
    let rows = feeder.rows(phase);
    let options = LoaderOptions::evaluation(rows, recipe.data.workers, recipe.data.prefetch.max(1));
    let mut loader = Loader::new(dataset, &options, Position::default())?;
    let (mut loss, mut correct, mut weight) = (0.0, 0.0, 0.0);
    while let Some(batch) = loader.next() {
        let batch = batch?;
        clear_metrics(executor);
        feeder.feed(executor, phase, batch, 0)?;
        executor.run(phase);
        // Summed here in f64: a long evaluation must not lose digits.
        loss += metric(executor, "metrics.loss");
        correct += metric(executor, "metrics.correct");
        weight += counted(batch);
    }
    clear_metrics(executor);
    let weight = if weight > 0.0 { weight } else { 1.0 };
    Ok(Scores { loss: loss / weight, accuracy: correct / weight })
}
