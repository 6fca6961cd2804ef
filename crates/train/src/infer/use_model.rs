//! What was trained, put to use: evaluation, prediction, writing and export, inside the run's budget.

#![deny(missing_docs)]

use crate::arena::take_arena;
use crate::checkpoints::{self, Fingerprint};
use crate::run::{TRIES, count_loading, decoding_bytes, first_plan, what_is_there};
use crate::run::{shares_memory, with_what_is_ours, within_host};
use crate::scoring::{Classes, Retrieved};
use crate::steps::{Pass, Shapes, evaluate, phase, shapes};
use crate::tasks::{Each, EachPair, EachRow, ExpectedData, Midway, Question, Trained};
use crate::tasks::{answering_bytes, counts_process, evaluation_bytes, load_data, task};
use crate::weights::{Companions, TokenizerSource, load_folder, source_checkpoint, write_folder};
use crate::writing::{GenerationOptions, Generator};
use crate::{LoadedData, RunError};
use plimsoll_base::folders::is_same;
use plimsoll_core::plan::{PlanError, Program};
use plimsoll_data::{Batch, Dataset};
use plimsoll_exec::Executor;
use plimsoll_exec::host::OwnMemory;
use plimsoll_models::families::GenerationShape;
use plimsoll_models::hf::{HfError, HuggingFace};
use plimsoll_models::recipe::{Recipe, Task};
use plimsoll_planner::choose as setup;
use plimsoll_planner::choose::{EMBEDDINGS, Planned, plan_use};
use plimsoll_planner::program::EVALUATE;
use plimsoll_planner::{Beside, Device, PlanFailure};
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

/// A trained run. Its arena is taken when it is used first: by then what it is asked about is read, and counted beside it.
pub struct TrainedRun {
    /// What it was trained by.
    pub recipe: Recipe,
    dir: PathBuf,
    weights: Weights,
    device: Device,
    writes: Option<GenerationShape>,
    model: Option<Model>,
}

/// A run's model in its arena.
struct Model {
    planned: Planned,
    executor: Box<dyn Executor>,
}

/// What is in the memory of a CPU beside an arena: samples, what threads still take to fill batches, the batches.
struct Samples {
    loaded_bytes: u64,
    decoding_bytes: u64,
    batches: fn(&Recipe) -> u64,
}

impl Samples {
    const NONE: Samples = Samples { loaded_bytes: 0, decoding_bytes: 0, batches: |_| 0 };

    fn to_answer(samples: &dyn Dataset) -> Samples {
        let (loaded_bytes, decoding_bytes) = (samples.resident_bytes() as u64, samples.worker_bytes() as u64);
        Samples { loaded_bytes, decoding_bytes, batches: answering_bytes }
    }

    fn to_evaluate(data: &LoadedData, recipe: &Recipe) -> Samples {
        let decoding_bytes = decoding_bytes(data, recipe);
        let loaded_bytes = ExpectedData::of(data, recipe).resident_bytes as u64 - decoding_bytes;
        Samples { loaded_bytes, decoding_bytes, batches: evaluation_bytes }
    }
}

impl TrainedRun {
    /// Reads the recipe of a run's folder and finds its weights: those of `model/`, or of the last checkpoint.
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
        let (writes, weights) = (writes(&recipe), Weights::find(dir, &recipe)?);
        let device = with_what_is_ours(device);
        Ok(TrainedRun { recipe, dir: dir.into(), weights, device, writes, model: None })
    }

    /// Where its weights come from.
    pub fn weights(&self) -> &Path {
        self.weights.path()
    }

    /// What was planned for its use; nothing before it is used.
    pub fn planned_peak_bytes(&self) -> u64 {
        self.model.as_ref().map_or(0, |model| model.planned.planned_peak_bytes())
    }

    /// What was taken at the peak so far, as a plan counts it.
    pub fn measured_bytes(&self) -> u64 {
        self.model.as_ref().map_or(0, |model| match counts_process(&model.planned) {
            true => OwnMemory::now().peak_bytes,
            false => model.executor.measured_bytes(),
        })
    }

    /// The model in its arena; taken now, if it was not used before, beside these samples.
    fn model(&mut self, samples: &Samples) -> Result<(&Recipe, &mut Model), RunError> {
        let model = match self.model.take() {
            Some(model) => model,
            None => self.put_into_memory(samples)?,
        };
        Ok((&self.recipe, self.model.insert(model)))
    }

    fn put_into_memory(&self, samples: &Samples) -> Result<Model, RunError> {
        let mut model = self.take_planned(samples)?;
        self.weights.load(&model.planned.choice.program, &mut model.executor)?;
        Ok(model)
    }

    /// Plans and takes the arena, as a training does. Where the device's runtime takes more than the budget has room for, it
    /// is planned for anew.
    fn take_planned(&self, samples: &Samples) -> Result<Model, RunError> {
        let mut planned = self.plan_beside(samples)?;
        for _ in 0..TRIES {
            let executor = take_arena(&self.recipe, &planned)?;
            let reserve = executor.reserve_bytes().unwrap_or(planned.reserve_bytes);
            if planned.settle_reserve(reserve) {
                return Ok(Model { planned, executor });
            }
            drop(executor);
            let device = Device { reserve_bytes: reserve, ..self.device.clone() };
            planned = plan_use(&self.recipe, &device, self.writes)?;
        }
        Err(PlanFailure::DoesNotFit(Box::new(planned)).into())
    }

    /// The plan beside what is there: as it is counted, or as the process says where that is more.
    fn plan_beside(&self, samples: &Samples) -> Result<Planned, RunError> {
        let Samples { loaded_bytes, decoding_bytes, batches } = *samples;
        let mut counted = self.device_beside(batches);
        if shares_memory(&counted) {
            counted.reserve_bytes = counted.reserve_bytes.saturating_add(loaded_bytes).saturating_add(decoding_bytes);
        }
        let there = what_is_there(&counted, decoding_bytes);
        let mut planned = first_plan(&counted, there, |device| plan_use(&self.recipe, device, self.writes))?;
        count_loading(&mut planned)?;
        Ok(planned)
    }

    /// The device with the batches of this use beside the arena, instead of those of a training.
    fn device_beside(&self, batches: fn(&Recipe) -> u64) -> Device {
        let beside = match shares_memory(&self.device) {
            true => Beside { recipe: batches, ..self.device.beside },
            false => self.device.beside,
        };
        Device { beside, ..self.device.clone() }
    }

    /// Whether it remembers what it was trained on; a run of an earlier version without a checkpoint does not.
    pub fn remembers_its_data(&self) -> Result<bool, RunError> {
        Fingerprint::of_run(&self.dir).map(|then| then.is_some())
    }

    /// Scores of other classes or of another scale are none of this model.
    fn check_data(&self, data: &LoadedData) -> Result<(), RunError> {
        let Some(then) = Fingerprint::of_run(&self.dir)? else { return Ok(()) };
        then.check(&Fingerprint::of(&self.recipe, data)?, &self.dir, "or ask about other rows with `plimsoll predict`")
    }

    /// Scores on the validation data of the recipe, which must be what it was trained with. Of models that write, as many
    /// texts are written and compared as `texts` says, where the run was opened to write.
    pub fn evaluate(&mut self, texts: usize) -> Result<(Evaluated, LoadedData), RunError> {
        let data = load_data(&within_host(&self.recipe, &self.device_beside(evaluation_bytes)))?;
        let Some(validation) = data.validation.clone() else {
            return Err(RunError::Refused {
                cause: "the recipe holds no data out for validation".into(),
                hint: "set data.validation to a fraction or a file, and train again".into(),
            });
        };
        self.check_data(&data)?;
        let samples = Samples::to_evaluate(&data, &self.recipe);
        let (recipe, Model { planned, executor }) = self.model(&samples)?;
        let (mut shapes, choice) = (shapes(recipe, planned), &planned.choice);
        let judged = evaluate(executor, recipe, choice, &mut shapes, validation)?;
        let midway = Midway { data: &data, program: &choice.program, executor, step: 0 };
        let written = task(recipe).judge(midway, texts)?.filter(|written| written.count() > 0);
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

    /// Whether its family is one that transformers knows.
    pub fn is_for_transformers(&self) -> bool {
        setup::family(&self.recipe.model).hugging_face().is_some()
    }

    /// Writes the model as a folder: one that transformers loads, where the family is known there.
    pub fn export(&mut self, dir: &Path) -> Result<(), RunError> {
        self.refuse_own_folders(dir)?;
        // The run's own folder has everything that goes along: tokenizer, names of labels, keys of the first config.
        let own = self.dir.join("model");
        let normalizer = task(&self.recipe).normalizer(&self.dir)?;
        let tokenizer = Some(own.join("tokenizer.json")).filter(|file| file.exists());
        let companions = Companions {
            source: Some(own).filter(|own| own.join("config.json").exists()),
            tokenizer: tokenizer.map(TokenizerSource::File),
            labels: &[],
            normalizer: normalizer.as_ref(),
        };
        let (recipe, Model { planned, executor }) = self.model(&Samples::NONE)?;
        write_folder(dir, recipe, &planned.choice.program, executor, &companions)
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
        let (recipe, model) = self.model(&Samples::to_answer(samples))?;
        let mut shapes = shapes(recipe, &model.planned);
        let rows = shapes.rows(phase(&model.planned.choice.program, EVALUATE)?);
        let mut batch = Batch::bucketed(samples.fields(), rows, recipe.data.batching().buckets)?;
        for first in (0..samples.len()).step_by(rows) {
            batch.fill(samples, first..samples.len().min(first + rows))?;
            let logits = model.batch_logits(&mut shapes, &batch)?;
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
        let (recipe, Model { planned, executor }) = self.model(&Samples::to_answer(samples))?;
        let choice = &planned.choice;
        let embeddings = phase(&choice.program, EMBEDDINGS)?;
        let graph = &choice.program.phases[embeddings].graph;
        let names: Vec<String> = graph.kept().iter().map(|&id| graph.value(id).name.to_string()).collect();
        let mut shapes = shapes(recipe, planned);
        let rows = shapes.rows(embeddings);
        let mut batch = Batch::new(samples.fields(), rows)?;
        for first in (0..samples.len()).step_by(rows) {
            batch.fill(samples, first..samples.len().min(first + rows))?;
            shapes.feed(executor, embeddings, &batch, 0)?;
            executor.run(embeddings);
            let [image, text] = [0, 1].map(|i| executor.read_floats(embeddings, &names[i]).unwrap_or_default());
            executor.check()?;
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
        let (recipe, Model { planned, executor }) = self.model(&Samples::NONE)?;
        let decoder = recipe.model.family().decoder();
        let generator = decoder.and_then(|decoder| Generator::find(&planned.choice.program, decoder));
        let generator = generator.ok_or_else(|| RunError::Refused {
            cause: "the run was opened without room to write".into(),
            hint: "open it to write".into(),
        })?;
        // Asked for more than there is room for, it writes as much as there is.
        let max_new_tokens = options.max_new_tokens.min(generator.shape().max_new_tokens);
        let options = GenerationOptions { max_new_tokens, ..*options };
        generator.generate(executor, sources, &options)
    }
}

impl Model {
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

/// Where the weights of a run are.
enum Weights {
    /// A folder as transformers reads it, and what tensors are called there.
    Folder(PathBuf, HuggingFace),
    /// A file of a family of our own.
    File(PathBuf),
    Checkpoint(PathBuf),
}

impl Weights {
    fn find(dir: &Path, recipe: &Recipe) -> Result<Weights, RunError> {
        let model = dir.join("model");
        let file = model.join("model.safetensors");
        match setup::family(&recipe.model).hugging_face() {
            Some(names) if model.join("config.json").exists() => return Ok(Weights::Folder(model, names)),
            None if file.exists() => return Ok(Weights::File(file)),
            _ => {}
        }
        let last = checkpoints::list(&dir.join("checkpoints")).pop();
        last.map(|(_, last)| Weights::Checkpoint(last)).ok_or_else(|| RunError::Refused {
            cause: format!("{} has neither a model nor a checkpoint", dir.display()),
            hint: "the run ended before its first checkpoint: train it with --resume".into(),
        })
    }

    fn path(&self) -> &Path {
        match self {
            Weights::Folder(path, _) | Weights::File(path) | Weights::Checkpoint(path) => path,
        }
    }

    fn load(&self, program: &Program, executor: &mut dyn Executor) -> Result<(), RunError> {
        match self {
            Weights::Folder(folder, names) => load_folder(folder, names, program, executor).map(drop),
            Weights::File(file) => Ok(checkpoints::load_model(file, program, executor)?),
            Weights::Checkpoint(last) => Ok(checkpoints::restore_weights(last, program, executor)?),
        }
    }
}
