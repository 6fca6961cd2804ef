//! One pass over held-out samples, inside the same arena as the steps.

use super::feed::counted;
use super::shapes::{Pass, Shapes};
use super::stepper::phase;
use super::told::Metrics;
use crate::RunError;
use crate::scoring::{Answers, Truth};
use plimsoll_data::{Batch, Dataset, Loader, LoaderOptions, Position};
use plimsoll_exec::{Executor, Scalars};
use plimsoll_models::families::{Input, ProblemType};
use plimsoll_models::recipe::Recipe;
use plimsoll_planner::choose::Choice;
use plimsoll_planner::program::EVALUATE;
use plimsoll_runs::Scores;
use std::sync::Arc;

pub fn evaluate(
    executor: &mut dyn Executor,
    recipe: &Recipe,
    choice: &Choice,
    shapes: &mut Shapes,
    dataset: Arc<dyn Dataset>,
) -> Result<Scores, RunError> {
    let rows = shapes.rows(phase(&choice.program, EVALUATE)?);
    let mut loader = Loader::new(dataset, &options(recipe, rows), Position::default())?;
    let mut answers = answers(recipe);
    let metrics = Metrics::of(&choice.program);
    let (mut sums, mut weight, mut open) = ([0.0; 2], 0.0, None);
    while let Some(batch) = loader.next() {
        let batch = batch?;
        metrics.clear(executor)?;
        let phase = shapes.phase(executor, choice, Pass::Evaluate, batch.lengths())?;
        shapes.feed(executor, phase, batch, 0)?;
        executor.run(phase);
        // A device goes on with this batch while the next is made ready.
        let before = open.replace(executor.ask(&["metrics.loss", "metrics.correct"]));
        before.iter().for_each(|before| add(&mut sums, executor.answer(before)));
        weight += counted(batch);
        if let (Some(answers), Some(logits)) = (&mut answers, kept(executor, choice, phase)) {
            add_answers(answers, &logits, batch);
        }
    }
    open.iter().for_each(|last| add(&mut sums, executor.answer(last)));
    metrics.clear(executor)?;
    executor.check()?;
    let [loss, correct] = sums;
    let weight = if weight > 0.0 { weight } else { 1.0 };
    Ok(match answers {
        Some(answers) => answers.scores(loss / weight),
        None => Scores { loss: loss / weight, accuracy: Some(correct / weight), ..Scores::default() },
    })
}

/// Summed in f64: a long evaluation must not lose digits.
fn add(sums: &mut [f64; 2], metrics: Scalars) {
    sums.iter_mut().zip(metrics).for_each(|(sum, metric)| *sum += metric);
}

/// In the order of the data, padded to the lengths that the recipe's batches may have.
pub(super) fn options(recipe: &Recipe, rows: usize) -> LoaderOptions {
    let options = LoaderOptions::evaluation(rows, recipe.data.workers, recipe.data.prefetch.max(1));
    LoaderOptions { buckets: recipe.data.batching().buckets, ..options }
}

/// Families with a classifier head are judged by their answers.
fn answers(recipe: &Recipe) -> Option<Answers> {
    let family = recipe.model.family();
    match (family.classifier(), family.input()) {
        (Some(classifier), _) => Some(Answers::new(classifier.problem, classifier.labels)),
        (None, Input::Series { classes, .. }) => Some(Answers::new(ProblemType::Single, classes)),
        _ => None,
    }
}

/// What the evaluation keeps for the host: the logits, one row per sample.
pub fn kept(executor: &dyn Executor, choice: &Choice, phase: usize) -> Option<Vec<f32>> {
    let graph = &choice.program.phases[choice.program.phase(EVALUATE)?].graph;
    let name = &graph.value(*graph.kept().first()?).name;
    executor.read_floats(phase, name)
}

fn add_answers(answers: &mut Answers, logits: &[f32], batch: &Batch) {
    let (class, numbers) = (batch.field("label"), batch.field("labels"));
    let width = answers.width().max(1);
    for (row, logits) in logits.chunks(width).take(batch.len()).enumerate() {
        if let Some(field) = class {
            answers.add(logits, Truth::Class(batch.i32(field, row..row + 1)[0].max(0) as usize));
        } else if let Some(field) = numbers {
            answers.add(logits, Truth::Numbers(batch.f32(field, row..row + 1)));
        }
    }
}
