//! One pass over held-out samples, inside the same arena as the steps.

use super::TrainError;
use super::batch::counted_rows;
use super::metrics::Scores;
use super::stepper::{clear_metrics, feeder, is_text, metric};
use crate::data::{Dataset, Loader, LoaderOptions, Position};
use crate::exec::Executor;
use crate::plan::Program;
use crate::recipe::Recipe;
use std::sync::Arc;

pub(super) fn evaluate(
    executor: &mut dyn Executor,
    recipe: &Recipe,
    program: &Program,
    phase: usize,
    dataset: Arc<dyn Dataset>,
) -> Result<Scores, TrainError> {
    let rows = phase_rows(program, phase);
    let mut feeder = feeder(recipe, rows);
    let options = LoaderOptions::evaluation(rows, recipe.data.workers, recipe.data.prefetch.max(1));
    let mut loader = Loader::new(dataset, &options, Position::default())?;
    let (mut loss, mut correct, mut counted) = (0.0, 0.0, 0);
    while let Some(batch) = loader.next() {
        let batch = batch?;
        clear_metrics(executor);
        feeder.feed(executor, phase, batch, 0);
        executor.run(phase);
        // Summed here in f64: a long evaluation must not lose digits.
        loss += metric(executor, "metrics.loss");
        correct += metric(executor, "metrics.correct");
        counted += counted_rows(batch, is_text(recipe), 0..batch.len());
    }
    clear_metrics(executor);
    let counted = counted.max(1) as f64;
    Ok(Scores { loss: loss / counted, accuracy: Some(correct / counted), ..Scores::default() })
}

/// Samples that the graph of a phase was built for.
pub(super) fn phase_rows(program: &Program, phase: usize) -> usize {
    let graph = &program.phases[phase].graph;
    let input = graph.find("x").or_else(|| graph.find("ids"));
    input.map_or(1, |id| graph.shape(id)[0])
}
