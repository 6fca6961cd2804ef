//! What was trained, put to use: evaluation, prediction and generation inside the arena of the run's own plan.

use super::batch::Feeder;
use super::checkpoint;
use super::evaluate::evaluate;
use super::generate::{Sampling, generate};
use super::metrics::Scores;
use super::run::{resume_plan, take_arena};
use super::setup::{Extras, LoadedData, Planned, length, load_data, shapes};
use super::step::{EVALUATE, NEXT_TOKEN};
use super::{Device, TrainError};
use crate::data::{Batch, Dataset, Labels, Normalizer, Vocabulary, VocabularyChoice, Windows, read_windows};
use crate::exec::Executor;
use crate::exec::cpu::CpuExecutor;
use crate::plan::Program;
use crate::recipe::{Kind, Model, Recipe};
use std::fs;
use std::path::{Path, PathBuf};

/// A run's model in its arena.
pub struct TrainedRun {
    pub recipe: Recipe,
    pub planned: Planned,
    /// Where the weights came from.
    pub weights: PathBuf,
    dir: PathBuf,
    executor: CpuExecutor,
}

/// The answer to one window of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction<'a> {
    pub window: usize,
    /// The row of the file that ends the window, from 0.
    pub row: usize,
    pub class: usize,
    pub label: &'a str,
    /// By class.
    pub probabilities: &'a [f64],
}

impl TrainedRun {
    /// Reads recipe, plan and weights of a run's folder; the weights of `model/`, or of the last checkpoint.
    pub fn open(dir: &Path, device: &Device) -> Result<TrainedRun, TrainError> {
        let recipe_path = dir.join("recipe.toml");
        if !recipe_path.exists() {
            return Err(TrainError::Refused {
                cause: format!("{} is not a run: it has no recipe.toml", dir.display()),
                hint: "give the folder that `plimsoll train` wrote, such as runs/quickstart-1".into(),
            });
        }
        let recipe = Recipe::load(&recipe_path, &[])?;
        let (planned, _) = resume_plan(&recipe, device, &dir.join("plan.json"))?;
        let mut executor = take_arena(&planned)?;
        let weights = load_weights(dir, &planned.choice.program, &mut executor)?;
        Ok(TrainedRun { recipe, planned, weights, dir: dir.into(), executor })
    }

    fn program(&self) -> &Program {
        &self.planned.choice.program
    }

    pub fn measured_bytes(&self) -> u64 {
        self.executor.measured_bytes()
    }

    fn phase(&self, name: &str, cause: &str, hint: &str) -> Result<usize, TrainError> {
        let refused = || TrainError::Refused { cause: cause.into(), hint: hint.into() };
        self.program().phase(name).ok_or_else(refused)
    }

    /// Loss and accuracy on the validation data of the recipe.
    pub fn evaluate(&mut self) -> Result<(Scores, LoadedData), TrainError> {
        self.phase(EVALUATE, "the run was planned without evaluation", NO_EVALUATION)?;
        let data = load_data(&self.recipe)?;
        let Some(validation) = data.validation.clone() else {
            return Err(TrainError::Refused {
                cause: "the recipe holds no data out for validation".into(),
                hint: "set data.validation to a fraction or a file, and train again".into(),
            });
        };
        let mut shapes = shapes(&self.recipe, &self.planned);
        let scores = evaluate(&mut self.executor, &self.recipe, &self.planned.choice, &mut shapes, validation)?;
        Ok((scores, data))
    }

    /// Classifies every window of a file, in order. `each` says whether to go on.
    pub fn predict(&mut self, file: &Path, each: &mut dyn FnMut(&Prediction<'_>) -> bool) -> Result<(), TrainError> {
        if !matches!(self.recipe.model, Model::HybridCnnLstm(_)) {
            return Err(TrainError::Refused {
                cause: format!("{} is a language model: prediction is for series", self.recipe.model.name()),
                hint: "let it write text with `plimsoll generate`".into(),
            });
        }
        let phase = self.phase(EVALUATE, "the run was planned without evaluation", NO_EVALUATION)?;
        let normalizer = self.normalizer()?;
        let windows = read_windows(file, &normalizer, Labels::Absent)?;
        let mut feeder = Feeder::new(self.program());
        let rows = feeder.rows(phase);
        let mut batch = Batch::new(windows.fields(), rows)?;
        for first in (0..windows.len()).step_by(rows) {
            batch.fill(&windows, first..windows.len().min(first + rows))?;
            let probabilities = self.class_probabilities(&mut feeder, phase, &batch)?;
            if !tell(&windows, &batch, &probabilities, &normalizer.classes, each) {
                break;
            }
        }
        Ok(())
    }

    /// Softmax of the logits of each row of the batch, row after row.
    fn class_probabilities(
        &mut self,
        feeder: &mut Feeder,
        phase: usize,
        batch: &Batch,
    ) -> Result<Vec<f64>, TrainError> {
        // The answers are not known: their weight is 0, the loss of this pass counts for nothing.
        feeder.feed(&mut self.executor, phase, batch, 0).map_err(|_| TrainError::Refused {
            cause: "the file's windows are not what the model was built for".into(),
            hint: "give a file with the columns of the training file".into(),
        })?;
        self.executor.run(phase);
        let graph = &self.planned.choice.program.phases[phase].graph;
        let missing = || crate::plan::PlanError::Broken("the evaluation keeps no logits".into());
        let kept = graph.kept().first().ok_or_else(missing)?;
        let logits = self.executor.read_output(phase, &graph.value(*kept).name).ok_or_else(missing)?;
        let classes = graph.shape(*kept).last().copied().unwrap_or(1);
        let logits: Vec<f32> = logits.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect();
        Ok(logits.chunks(classes).flat_map(softmax).collect())
    }

    fn normalizer(&self) -> Result<Normalizer, TrainError> {
        let path = self.dir.join("model/normalizer.json");
        if !path.exists() {
            return match load_data(&self.recipe)?.extras {
                Extras::Series(normalizer) => Ok(normalizer),
                Extras::Text(_) => Err(damaged(&path, "the data of the run is text")),
            };
        }
        let text = fs::read(&path).map_err(TrainError::io(&path))?;
        let normalizer: Normalizer = serde_json::from_slice(&text).map_err(|e| damaged(&path, &e.to_string()))?;
        let Model::HybridCnnLstm(model) = &self.recipe.model else { return Ok(normalizer) };
        let fits = (normalizer.features.len(), normalizer.window) == (model.features, model.window)
            && normalizer.classes.len() <= model.classes;
        if fits { Ok(normalizer) } else { Err(damaged(&path, "its sizes are not those of the model")) }
    }

    /// Continues a text.
    pub fn generate(&mut self, prompt: &str, tokens: usize, temperature: f64, seed: u64) -> Result<String, TrainError> {
        let Kind::Text(text) = &self.recipe.data.kind else {
            return Err(TrainError::Refused {
                cause: format!("{} reads series and writes no text", self.recipe.model.name()),
                hint: "classify a file with `plimsoll predict RUN FILE`".into(),
            });
        };
        let vocabulary = Vocabulary::open(&match &text.tokenizer {
            None => VocabularyChoice::Bytes,
            Some(file) => VocabularyChoice::Tokenizer(self.tokenizer(file)),
        })?;
        let phase = self.phase(
            NEXT_TOKEN,
            "the run was planned without text generation (train.sample.length = 0)",
            "train with train.sample.length above 0: generation then has its place in the arena",
        )?;
        let mut ids = vocabulary.encode(prompt)?;
        if ids.is_empty() {
            ids.push(vocabulary.end_of_text().unwrap_or(0) as i32);
        }
        let sampling = Sampling { tokens, temperature, seed, stream: 0, stop: vocabulary.end_of_text() };
        let written = generate(&mut self.executor, phase, &ids, length(&self.recipe), &sampling);
        Ok(vocabulary.decode(&written)?)
    }

    /// The run's own copy if there is one.
    fn tokenizer(&self, file: &Path) -> PathBuf {
        let own = self.dir.join("model/tokenizer.json");
        if own.exists() { own } else { self.recipe.resolve_path(file) }
    }
}

const NO_EVALUATION: &str = "train with train.evaluate.every = \"epoch\": evaluation then has its place in the arena";

fn damaged(path: &Path, cause: &str) -> TrainError {
    TrainError::Refused {
        cause: format!("{}: {cause}", path.display()),
        hint: "train again, or restore the file".into(),
    }
}

fn load_weights(dir: &Path, program: &Program, executor: &mut CpuExecutor) -> Result<PathBuf, TrainError> {
    let model = dir.join("model/model.safetensors");
    if model.exists() {
        checkpoint::load_model(&model, program, executor)?;
        return Ok(model);
    }
    let Some((_, last)) = checkpoint::list(&dir.join("checkpoints")).pop() else {
        return Err(TrainError::Refused {
            cause: format!("{} has neither a model nor a checkpoint", dir.display()),
            hint: "the run ended before its first checkpoint: train it with --resume".into(),
        });
    };
    checkpoint::restore(&last, program, executor)?;
    Ok(last)
}

/// Hands out the predictions of a batch; false once `each` has had enough.
fn tell(
    windows: &Windows,
    batch: &Batch,
    probabilities: &[f64],
    classes: &[String],
    each: &mut dyn FnMut(&Prediction<'_>) -> bool,
) -> bool {
    let per_row = probabilities.len() / batch.capacity().max(1);
    batch.samples().iter().zip(probabilities.chunks(per_row.max(1))).all(|(&window, row)| {
        // Classes that the training data never had have no name and are not answers.
        let named = &row[..row.len().min(classes.len())];
        let class = likeliest(named);
        let label = classes.get(class).map_or("", String::as_str);
        each(&Prediction { window, row: windows.last_row(window), class, label, probabilities: named })
    })
}

/// The first of the largest.
fn likeliest(row: &[f64]) -> usize {
    row.iter().enumerate().fold(0, |best, (i, p)| if *p > row[best] { i } else { best })
}

fn softmax(logits: &[f32]) -> impl Iterator<Item = f64> + '_ {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = move |&x: &f32| f64::from(x - highest).exp();
    let total: f64 = logits.iter().map(weight).sum();
    logits.iter().map(move |x| weight(x) / total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_one_even_far_from_zero() {
        let p: Vec<f64> = softmax(&[1000.0, 1000.0, 999.0]).collect();
        assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-12 && p[0] == p[1] && p[2] < p[0], "{p:?}");
        assert_eq!(likeliest(&p), 0);
        assert_eq!(likeliest(&[0.1, 0.2, 0.7]), 2);
    }
}
