//! What was trained, put to use: evaluation, prediction, writing and export, inside the run's budget.

#![deny(missing_docs)]

use crate::arena::take_arena;
use crate::checkpoints;
use crate::run::STARTING_BYTES;
use crate::scoring::{Classes, Retrieved};
use crate::steps::{Pass, Shapes, evaluate, phase, shapes};
use crate::tasks::{Each, EachPair, EachRow, ExpectedData, Midway, Question, Trained};
use crate::tasks::{beside_the_run, counts_process, expected_data, load_data, loader_bytes, task};
use crate::weights::{Companions, TokenizerSource, load_folder, source_checkpoint, write_folder};
use crate::writing::{GenerationOptions, Generator};
use crate::{LoadedData, RunError};
use plimsoll_base::folders::is_same;
use plimsoll_core::plan::PlanError;
use plimsoll_data::{Batch, Dataset};
use plimsoll_exec::Executor;
use plimsoll_exec::host::OwnMemory;
use plimsoll_models::families::GenerationShape;
use plimsoll_models::hf::HfError;
use plimsoll_models::recipe::{Recipe, Task};
use plimsoll_planner::choose as setup;
use plimsoll_planner::choose::{Choice, EMBEDDINGS, Planned, plan_use};
use plimsoll_planner::program::EVALUATE;
use plimsoll_planner::{Device, PlanFailure};
use plimsoll_runs::Scores;
use serde::Serialize;
use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

/// What an evaluation found, as a whole and in detail.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluated {
    /// Loss and metrics of the task.
    #[serde(flatten)]
    pub scores: Scores,
    /// How many texts were written and compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub texts: Option<usize>,
    /// Of a model that tells classes: each by itself.
    #[serde(flatten)]
    pub classes: Option<Classes>,
    /// Of a model that compares images and texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retrieval: Option<Retrieved>,
}

/// The names of the classes, in the order of the model's outputs.
fn class_names(data: &LoadedData) -> Vec<String> {
    match &data.extras.normalizer {
        Some(normalizer) => normalizer.classes.clone(),
        None => data.extras.classes.clone(),
    }
}

/// A run to use, in the budget that it was trained in or in another.
#[derive(Clone, Copy)]
pub struct Within<'a> {
    /// Its folder.
    pub run: &'a Path,
    /// As `memory.budget` says it.
    pub memory: Option<&'a str>,
}

impl<'a, P: AsRef<Path> + ?Sized> From<&'a P> for Within<'a> {
    fn from(run: &'a P) -> Within<'a> {
        Within { run: run.as_ref(), memory: None }
    }
}

/// A run's model in its arena.
pub struct TrainedRun {
    /// What it was trained by.
    pub recipe: Recipe,
    /// Its plan: forward passes alone.
    pub planned: Planned,
    /// Where the weights came from.
    pub weights: PathBuf,
    dir: PathBuf,
    executor: Box<dyn Executor>,
    /// What the program itself takes, where it is counted.
    own_bytes: u64,
}

impl TrainedRun {
    /// Reads recipe and weights of a run's folder: the weights of `model/`, or of the last checkpoint.
    pub fn open<'a>(run: impl Into<Within<'a>>, device: &Device) -> Result<TrainedRun, RunError> {
        TrainedRun::open_for(run.into(), device, |_| None)
    }

    /// The same with room to write texts of up to `tokens` tokens, following `beams` continuations.
    pub fn open_to_write<'a>(
        run: impl Into<Within<'a>>,
        device: &Device,
        tokens: Option<usize>,
        beams: usize,
    ) -> Result<TrainedRun, RunError> {
        TrainedRun::open_for(run.into(), device, |recipe| task(recipe).room(tokens, beams))
    }

    /// The same with room to write one text after the other, where its texts can be judged.
    pub fn open_to_judge<'a>(run: impl Into<Within<'a>>, device: &Device) -> Result<TrainedRun, RunError> {
        let room = |recipe: &Recipe| task(recipe).room(None, 1).filter(|_| recipe.train.task == Task::Seq2seq);
        TrainedRun::open_for(run.into(), device, room)
    }

    fn open_for(
        Within { run: dir, memory }: Within<'_>,
        device: &Device,
        writes: impl FnOnce(&Recipe) -> Option<GenerationShape>,
    ) -> Result<TrainedRun, RunError> {
        let recipe_path = dir.join("recipe.toml");
        if !recipe_path.exists() {
            return Err(RunError::Refused {
                cause: format!("{} is not a run: it has no recipe.toml", dir.display()),
                hint: "give the folder that `plimsoll train` wrote, such as runs/quickstart-1".into(),
            });
        }
        let budget: Vec<String> = memory.iter().map(|size| format!("memory.budget={size}")).collect();
        let recipe = Recipe::load(&recipe_path, &budget)?;
        let own_bytes = device.reserve_bytes;
        let device = &beside_the_run(device, expected_data(&recipe));
        let planned = plan_use(&recipe, device, writes(&recipe))?;
        let mut executor = take_arena(&recipe, &planned)?;
        let weights = load_weights(dir, &recipe, &planned.choice, &mut executor)?;
        Ok(TrainedRun { recipe, planned, weights, dir: dir.into(), executor, own_bytes })
    }

    /// What was taken at the peak so far, as a plan counts it.
    pub fn measured_bytes(&self) -> u64 {
        match counts_process(&self.planned) {
            true => OwnMemory::now().peak_bytes,
            false => self.executor.measured_bytes(),
        }
    }

    /// Counts the data that is loaded beside the arena; it must be in the budget too. Where it leaves too little room, fewer
    /// samples are evaluated at a time.
    fn count_data(&mut self, data: &LoadedData) -> Result<(), RunError> {
        if !counts_process(&self.planned) {
            return Ok(());
        }
        let reserve = self.reserve_beside(data);
        if self.planned.settle_reserve(reserve) {
            return Ok(());
        }
        self.plan_beside(reserve)?;
        let reserve = self.reserve_beside(data);
        match self.planned.settle_reserve(reserve) {
            true => Ok(()),
            false => Err(PlanFailure::DoesNotFit(Box::new(self.planned.clone())).into()),
        }
    }

    /// What is beside the arena with this data, once an evaluation runs: as counted, or what is there with what is still to
    /// come, or what was there for a while on the way.
    fn reserve_beside(&self, data: &LoadedData) -> u64 {
        let choice = &self.planned.choice;
        let plain = Device { reserve_bytes: self.own_bytes, ..self.planned.device.clone() };
        let counted = beside_the_run(&plain, Some(ExpectedData::of(data, &self.recipe))).reserve_for(&self.recipe);
        let own = plain.reserve_of(&self.recipe, &choice.program, &choice.layout);
        // The weights are there already, and counted as part of the arena.
        let weights: usize = choice.program.residents.iter().map(|resident| resident.ty.span_bytes()).sum();
        let memory = OwnMemory::trimmed();
        let to_come = STARTING_BYTES.saturating_add(loader_bytes(&self.recipe));
        let started = memory.resident_bytes.saturating_sub(weights as u64).saturating_add(to_come);
        let passed = memory.peak_bytes.saturating_sub(choice.layout.arena_bytes as u64);
        counted.saturating_add(own).max(started).max(passed)
    }

    /// Plans anew for this much beside the arena, and takes and fills the arena of that plan.
    fn plan_beside(&mut self, reserve_bytes: u64) -> Result<(), RunError> {
        let (device, choice) = (&self.planned.device, &self.planned.choice);
        let own = device.reserve_of(&self.recipe, &choice.program, &choice.layout);
        let by_recipe = device.reserve_for(&self.recipe) - device.reserve_bytes;
        let device = Device { reserve_bytes: reserve_bytes.saturating_sub(own + by_recipe), ..device.clone() };
        self.planned = plan_use(&self.recipe, &device, self.planned.spec.generation)?;
        // The old arena goes before weights come into the new one.
        self.executor = take_arena(&self.recipe, &self.planned)?;
        load_weights(&self.dir, &self.recipe, &self.planned.choice, &mut self.executor)?;
        Ok(())
    }

    /// Scores on the validation data of the recipe. Of models that write, as many texts are written and compared as
    /// `texts` says, where the run was opened to write.
    pub fn evaluate(&mut self, texts: usize) -> Result<(Evaluated, LoadedData), RunError> {
        let data = load_data(&self.recipe)?;
        self.count_data(&data)?;
        let Some(validation) = data.validation.clone() else {
            return Err(RunError::Refused {
                cause: "the recipe holds no data out for validation".into(),
                hint: "set data.validation to a fraction or a file, and train again".into(),
            });
        };
        let mut shapes = shapes(&self.recipe, &self.planned);
        let choice = &self.planned.choice;
        let judged = evaluate(&mut self.executor, &self.recipe, choice, &mut shapes, validation)?;
        let midway = Midway { data: &data, program: &choice.program, executor: &mut self.executor, step: 0 };
        let written = task(&self.recipe).judge(midway, texts)?.filter(|written| written.count() > 0);
        let classes = class_names(&data);
        let evaluated = Evaluated {
            scores: written.as_ref().map_or(judged.scores, |written| written.lay_over(judged.scores)),
            texts: written.map(|written| written.count()),
            classes: judged.answers.and_then(|answers| answers.by_class(&classes)),
            retrieval: judged.retrieved,
        };
        Ok((evaluated, data))
    }

    /// Whether rows that cannot be used may be left out.
    pub fn leaves_out_bad_rows(&self) -> bool {
        task(&self.recipe).leaves_out_bad_rows()
    }

    /// Answers every row of a file, in order, or says why it has no answer. `each` says whether to go on.
    pub fn predict(&mut self, asked: &Question<'_>, each: Each<'_>) -> Result<(), RunError> {
        let recipe = self.recipe.clone();
        task(&recipe).predict(asked, self, each)
    }

    /// Whether what it writes goes on where the prompt ends.
    pub fn continues(&self) -> bool {
        task(&self.recipe).continues()
    }

    /// Continues a text, or answers it where the model has an encoder.
    pub fn generate(&mut self, prompt: &str, options: &GenerationOptions) -> Result<String, RunError> {
        let recipe = self.recipe.clone();
        task(&recipe).generate(prompt, self, options)
    }

    /// The logits of each row of a batch whose answers are not known: its loss means nothing.
    fn batch_logits(&mut self, shapes: &mut Shapes, batch: &Batch) -> Result<Vec<f32>, RunError> {
        let choice = &self.planned.choice;
        let phase = shapes.phase(&mut self.executor, choice, Pass::Evaluate, batch.lengths())?;
        shapes.feed(&mut self.executor, phase, batch, 0)?;
        self.executor.run(phase);
        let logits = crate::steps::kept(&self.executor, choice, phase);
        self.executor.check()?;
        logits.map(Cow::into_owned).ok_or_else(|| PlanError::Broken("the evaluation keeps no logits".into()).into())
    }

    /// Whether its family is one that transformers knows.
    pub fn is_for_transformers(&self) -> bool {
        setup::family(&self.recipe.model).hugging_face().is_some()
    }

    /// Writes the model as a folder: one that transformers loads, where the family is known there.
    pub fn export(&self, dir: &Path) -> Result<(), RunError> {
        self.refuse_own_folders(dir)?;
        // The run's own folder has everything that goes along: tokenizer, names of labels, keys of the first config.
        let own = self.dir.join("model");
        let normalizer = task(&self.recipe).normalizer(&self.dir)?;
        let tokenizer = Some(self.dir.join("model/tokenizer.json")).filter(|file| file.exists());
        let companions = Companions {
            source: Some(own).filter(|own| own.join("config.json").exists()),
            tokenizer: tokenizer.map(TokenizerSource::File),
            labels: &[],
            normalizer: normalizer.as_ref(),
        };
        write_folder(dir, &self.recipe, &self.planned.choice.program, &self.executor, &companions)
    }

    /// An export must not take the place of what it comes from.
    fn refuse_own_folders(&self, dir: &Path) -> Result<(), RunError> {
        let source = source_checkpoint(&self.recipe);
        let cause = if is_same(dir, &self.dir) {
            "this is the run itself"
        } else if is_within(dir, &self.dir.join("checkpoints")) {
            "these are the run's checkpoints"
        } else if source.is_some_and(|source| is_same(dir, &source)) {
            "this is the checkpoint that the run started from"
        } else {
            return Ok(());
        };
        Err(HfError::Occupied { path: dir.into(), cause: cause.into() }.into())
    }
}

impl Trained for TrainedRun {
    fn folder(&self) -> &Path {
        &self.dir
    }

    fn logits(&mut self, samples: &dyn Dataset, each: EachRow<'_>) -> Result<(), RunError> {
        let mut shapes = shapes(&self.recipe, &self.planned);
        let rows = shapes.rows(phase(&self.planned.choice.program, EVALUATE)?);
        let mut batch = Batch::bucketed(samples.fields(), rows, self.recipe.data.batching().buckets)?;
        for first in (0..samples.len()).step_by(rows) {
            batch.fill(samples, first..samples.len().min(first + rows))?;
            let logits = self.batch_logits(&mut shapes, &batch)?;
            let width = row_width(logits.len(), rows)?;
            for (row, logits) in logits.chunks(width).take(batch.len()).enumerate() {
                if !each(first + row, logits) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn embeddings(&mut self, samples: &dyn Dataset, each: EachPair<'_>) -> Result<(), RunError> {
        let choice = &self.planned.choice;
        let embeddings = phase(&choice.program, EMBEDDINGS)?;
        let graph = &choice.program.phases[embeddings].graph;
        let names: Vec<String> = graph.kept().iter().map(|&id| graph.value(id).name.to_string()).collect();
        let mut shapes = shapes(&self.recipe, &self.planned);
        let rows = shapes.rows(embeddings);
        let mut batch = Batch::new(samples.fields(), rows)?;
        for first in (0..samples.len()).step_by(rows) {
            batch.fill(samples, first..samples.len().min(first + rows))?;
            shapes.feed(&mut self.executor, embeddings, &batch, 0)?;
            self.executor.run(embeddings);
            let [image, text] = [0, 1].map(|i| self.executor.read_floats(embeddings, &names[i]).unwrap_or_default());
            self.executor.check()?;
            let width = row_width(image.len(), rows)?;
            for row in 0..batch.len() {
                if !each(first + row, [&image, &text].map(|all| &all[row * width..][..width])) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, sources: &[Vec<i32>], options: &GenerationOptions) -> Result<Vec<Vec<i32>>, RunError> {
        let decoder = self.recipe.model.family().decoder();
        let generator = decoder.and_then(|decoder| Generator::find(&self.planned.choice.program, decoder));
        let generator = generator.ok_or_else(|| RunError::Refused {
            cause: "the run was opened without room to write".into(),
            hint: "open it to write".into(),
        })?;
        // Asked for more than there is room for, it writes as much as there is.
        let max_new_tokens = options.max_new_tokens.min(generator.shape().max_new_tokens);
        let options = GenerationOptions { max_new_tokens, ..*options };
        generator.generate(&mut self.executor, sources, &options)
    }
}

/// Whether a path is a folder or leads into it, once it is made.
fn is_within(path: &Path, folder: &Path) -> bool {
    let there = path.ancestors().find_map(|part| fs::canonicalize(part).ok());
    fs::canonicalize(folder).is_ok_and(|folder| there.is_some_and(|there| there.starts_with(folder)))
}

/// Values of each row of a phase's output. A phase of other rows than its batch was cut for has no answers.
fn row_width(values: usize, rows: usize) -> Result<usize, RunError> {
    match values.checked_div(rows).filter(|&width| width > 0 && width * rows == values) {
        Some(width) => Ok(width),
        None => Err(PlanError::Broken(format!("{values} values are not those of {rows} samples")).into()),
    }
}

fn load_weights(
    dir: &Path,
    recipe: &Recipe,
    choice: &Choice,
    executor: &mut dyn Executor,
) -> Result<PathBuf, RunError> {
    let (model, program) = (dir.join("model"), &choice.program);
    let weights = model.join("model.safetensors");
    match setup::family(&recipe.model).hugging_face() {
        Some(names) if model.join("config.json").exists() => {
            load_folder(&model, &names, program, executor)?;
            return Ok(model);
        }
        None if weights.exists() => {
            checkpoints::load_model(&weights, program, executor)?;
            return Ok(weights);
        }
        _ => {}
    }
    let Some((_, last)) = checkpoints::list(&dir.join("checkpoints")).pop() else {
        return Err(RunError::Refused {
            cause: format!("{} has neither a model nor a checkpoint", dir.display()),
            hint: "the run ended before its first checkpoint: train it with --resume".into(),
        });
    };
    checkpoints::restore_weights(&last, program, executor)?;
    Ok(last)
}
