//! One pass over held-out samples, inside the same arena as the steps.

use super::feed::counted;
use super::shapes::{Pass, Shapes};
use super::stepper::phase;
use super::told::Metrics;
use crate::RunError;
use crate::scoring::{Answers, Retrieval, Retrieved, Truth};
use plimsoll_core::plan::PlanError;
use plimsoll_core::types::DType;
use plimsoll_data::{Batch, Dataset, Loader, LoaderOptions, Position};
use plimsoll_exec::{Executor, Scalars, floats};
use plimsoll_models::families::{Input, ProblemType, Task};
use plimsoll_models::recipe::Recipe;
use plimsoll_planner::choose::Choice;
use plimsoll_planner::program::EVALUATE;
use plimsoll_runs::Scores;
use std::borrow::Cow;
use std::sync::Arc;

/// What an evaluation found, as a whole and in detail.
pub struct Judgement {
    pub scores: Scores,
    /// Of families with a classifier head.
    pub answers: Option<Answers>,
    /// Of images and texts.
    pub retrieved: Option<Retrieved>,
}

pub(crate) fn evaluate(
    executor: &mut dyn Executor,
    recipe: &Recipe,
    choice: &Choice,
    shapes: &mut Shapes,
    dataset: Arc<dyn Dataset>,
) -> Result<Judgement, RunError> {
    let rows = shapes.rows(phase(&choice.program, EVALUATE)?);
    let mut loader = Loader::new(dataset, &evaluation_options(recipe, rows), Position::default())?;
    let (mut answers, mut retrieval) = (answers(recipe), retrieval(executor, recipe)?);
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
        if let Some(retrieval) = &mut retrieval {
            let [image, text] = [0, 1].map(|which| kept_value(executor, choice, phase, which).unwrap_or_default());
            add_pairs(retrieval, &image, &text, rows, batch);
        }
    }
    open.iter().for_each(|last| add(&mut sums, executor.answer(last)));
    metrics.clear(executor)?;
    executor.check()?;
    if let Some(retrieval) = retrieval {
        let (scores, retrieved) = retrieval.finish();
        return Ok(Judgement { scores, answers: None, retrieved: Some(retrieved) });
    }
    let [loss, correct] = sums;
    let weight = if weight > 0.0 { weight } else { 1.0 };
    let scores = match &answers {
        Some(answers) => answers.scores(loss / weight),
        None => by_tokens(recipe, loss / weight, correct / weight),
    };
    Ok(Judgement { scores, answers, retrieved: None })
}

/// Of models that say one token after the other.
fn by_tokens(recipe: &Recipe, loss: f64, accuracy: f64) -> Scores {
    let perplexity = (recipe.train.task == Task::LanguageModel).then(|| loss.exp());
    Scores { loss, accuracy: Some(accuracy), perplexity, ..Scores::default() }
}

/// Families of two towers are judged by what finds what.
fn retrieval(executor: &dyn Executor, recipe: &Recipe) -> Result<Option<Retrieval>, RunError> {
    if recipe.model.family().contrast().is_none() {
        return Ok(None);
    }
    let missing = || PlanError::Broken("the model has no logit_scale".into());
    let bytes = executor.read_resident(LOGIT_SCALE).ok_or_else(missing)?;
    let dtype = if bytes.len() == 2 { DType::Bf16 } else { DType::F32 };
    let scale = floats(dtype, &bytes).first().copied().ok_or_else(missing)?;
    Ok(Some(Retrieval::new(f64::from(scale).exp(), recipe.train.effective_batch)))
}

/// The parameter whose exponential similarities are multiplied by.
const LOGIT_SCALE: &str = "logit_scale";

fn add_pairs(retrieval: &mut Retrieval, images: &[f32], texts: &[f32], rows: usize, batch: &Batch) {
    let width = images.len() / rows.max(1);
    let (ids, weight) = (batch.field("ids"), batch.field("weight"));
    for row in 0..batch.len() {
        let counts = weight.is_none_or(|field| batch.f32(field, row..row + 1)[0] > 0.0);
        let caption = ids.map_or(row as u64, |field| hash_of(batch.i32(field, row..row + 1)));
        if counts {
            let [image, text] = [images, texts].map(|all| &all[row * width..][..width]);
            retrieval.add(image, text, caption);
        }
    }
}

fn hash_of(ids: &[i32]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    ids.hash(&mut hasher);
    hasher.finish()
}

/// Summed in f64: a long evaluation must not lose digits.
fn add(sums: &mut [f64; 2], metrics: Scalars) {
    sums.iter_mut().zip(metrics).for_each(|(sum, metric)| *sum += metric);
}

/// How the samples of an evaluation come: in the order of the data, padded to the lengths that the recipe's batches may
/// have, `rows` at a time.
pub(crate) fn evaluation_options(recipe: &Recipe, rows: usize) -> LoaderOptions {
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
pub(crate) fn kept<'e>(executor: &'e dyn Executor, choice: &Choice, phase: usize) -> Option<Cow<'e, [f32]>> {
    kept_value(executor, choice, phase, 0)
}

fn kept_value<'e>(executor: &'e dyn Executor, choice: &Choice, phase: usize, which: usize) -> Option<Cow<'e, [f32]>> {
    let graph = &choice.program.phases[choice.program.phase(EVALUATE)?].graph;
    let name = &graph.value(*graph.kept().get(which)?).name;
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
