//! What was trained, put to use: evaluation, prediction, writing and export, inside the run's budget.

use crate::RunError;
use crate::arena::take_arena;
use crate::checkpoints;
use crate::steps::evaluate;
use crate::steps::phase;
use crate::steps::shapes;
use crate::steps::{Pass, Shapes};
use crate::tasks::{Answer, Prediction};
use crate::tasks::{
    Extras, LoadedData, caption_options, classifier, decoder, labelled_options, load_data, pairs_options, series_sizes,
};
use crate::weights::{Companions, TokenizerSource, load_folder, source_checkpoint, write_folder};
use crate::writing::generation::{GenerationOptions, Generator};
use crate::writing::{Sampling, generate};
use plimsoll_base::folders::is_same;
use plimsoll_core::plan::PlanError;
use plimsoll_data::images::read_captions;
use plimsoll_data::{
    Batch, Dataset, Labels, Normalizer, TextTokenizer, Vocabulary, VocabularyChoice, encode_source, read_sources,
    read_texts, read_windows,
};
use plimsoll_exec::Executor;
use plimsoll_models::families::{Classifier, GenerationShape};
use plimsoll_models::hf::HfError;
use plimsoll_models::recipe::{Kind, Labelled, Pairs, Recipe};
use plimsoll_planner::Device;
use plimsoll_planner::choose as setup;
use plimsoll_planner::choose::Choice;
use plimsoll_planner::choose::{EMBEDDINGS, plan_use};
use plimsoll_planner::choose::{Planned, length};
use plimsoll_planner::program::{EVALUATE, NEXT_TOKEN};
use plimsoll_runs::Scores;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A run's model in its arena.
pub struct TrainedRun {
    pub recipe: Recipe,
    pub planned: Planned,
    /// Where the weights came from.
    pub weights: PathBuf,
    dir: PathBuf,
    executor: Box<dyn Executor>,
}

/// Sources answered at a time.
const SOURCES: usize = 4;

impl TrainedRun {
    /// Reads recipe and weights of a run's folder: the weights of `model/`, or of the last checkpoint.
    pub fn open(dir: &Path, device: &Device) -> Result<TrainedRun, RunError> {
        TrainedRun::open_for(dir, device, |_| None)
    }

    /// The same with room to write texts of up to `tokens` tokens, following `beams` continuations.
    pub fn open_to_write(
        dir: &Path,
        device: &Device,
        tokens: Option<usize>,
        beams: usize,
    ) -> Result<TrainedRun, RunError> {
        TrainedRun::open_for(dir, device, |recipe| {
            let Kind::Pairs(pairs) = &recipe.data.kind else { return None };
            let max_new_tokens = tokens.unwrap_or(pairs.max_target_length).max(1);
            Some(GenerationShape { sources: SOURCES, beams, source_length: pairs.max_length, max_new_tokens })
        })
    }

    fn open_for(
        dir: &Path,
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
        let recipe = Recipe::load(&recipe_path, &[])?;
        let planned = plan_use(&recipe, device, writes(&recipe))?;
        let mut executor = take_arena(&recipe, &planned)?;
        let weights = load_weights(dir, &recipe, &planned.choice, &mut executor)?;
        Ok(TrainedRun { recipe, planned, weights, dir: dir.into(), executor })
    }

    pub fn measured_bytes(&self) -> u64 {
        self.executor.measured_bytes()
    }

    /// Scores on the validation data of the recipe.
    pub fn evaluate(&mut self) -> Result<(Scores, LoadedData), RunError> {
        let data = load_data(&self.recipe)?;
        let Some(validation) = data.validation.clone() else {
            return Err(RunError::Refused {
                cause: "the recipe holds no data out for validation".into(),
                hint: "set data.validation to a fraction or a file, and train again".into(),
            });
        };
        let mut shapes = shapes(&self.recipe, &self.planned);
        let scores = evaluate(&mut self.executor, &self.recipe, &self.planned.choice, &mut shapes, validation)?;
        Ok((scores, data))
    }

    /// Answers every row of a file, in order. `each` says whether to go on.
    pub fn predict(&mut self, file: &Path, each: &mut dyn FnMut(&Prediction) -> bool) -> Result<(), RunError> {
        match self.recipe.data.kind.clone() {
            Kind::Series(_) => self.predict_windows(file, each),
            Kind::Labelled(texts) => self.predict_texts(file, &texts, each),
            Kind::Pairs(pairs) => self.predict_pairs(file, &pairs, each),
            Kind::Captions(captions) => {
                let options = caption_options(&self.recipe, &captions, self.tokenizer_file())?;
                let images = read_captions(file, &options)?;
                self.predict_embeddings(&images, each)
            }
            Kind::Text(_) => Err(RunError::Refused {
                cause: format!("{} is a language model: there is nothing to predict", self.recipe.model.name()),
                hint: "let it write text with `plimsoll generate`".into(),
            }),
        }
    }

    fn predict_windows(&mut self, file: &Path, each: &mut dyn FnMut(&Prediction) -> bool) -> Result<(), RunError> {
        let normalizer = self.normalizer()?;
        let windows = read_windows(file, self.recipe.data.source.format_of(file), &normalizer, Labels::Absent)?;
        let classes = normalizer.classes.clone();
        self.run_rows(&windows, &mut |sample, logits| {
            let answer = Answer::class(logits, &classes);
            each(&Prediction { row: windows.last_row(sample), window: Some(sample), answer })
        })
    }

    fn predict_texts(
        &mut self,
        file: &Path,
        texts: &Labelled,
        each: &mut dyn FnMut(&Prediction) -> bool,
    ) -> Result<(), RunError> {
        let mut options = labelled_options(&self.recipe, texts)?;
        if texts.columns.is_none() {
            options.text = "text".into();
        }
        let mut tokenizer = self.text_tokenizer()?;
        tokenizer.limit(options.max_length, options.text_pair.is_some())?;
        let rows = read_texts(file, &options, Arc::new(tokenizer))?;
        let Classifier { labels, problem, .. } = classifier(&self.recipe)?;
        let classes = self.classes(labels)?;
        self.run_rows(&rows, &mut |sample, logits| {
            let answer = Answer::of(problem, logits, &classes);
            each(&Prediction { row: rows.file_row(sample), window: None, answer })
        })
    }

    fn predict_pairs(
        &mut self,
        file: &Path,
        pairs: &Pairs,
        each: &mut dyn FnMut(&Prediction) -> bool,
    ) -> Result<(), RunError> {
        let tokenizer = Arc::new(self.text_tokenizer()?);
        let sources = read_sources(file, &pairs_options(&self.recipe, pairs)?, tokenizer.clone())?;
        let (generator, options) = self.generator()?;
        for (group, sources) in sources.chunks(SOURCES).enumerate() {
            let written = generator.generate(&mut self.executor, sources, &options)?;
            for (i, ids) in written.iter().enumerate() {
                let answer = Answer::Text { text: tokenizer.decode(ids)? };
                if !each(&Prediction { row: group * SOURCES + i, window: None, answer }) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The embeddings of every image and its caption, and how near they are.
    fn predict_embeddings(
        &mut self,
        images: &dyn Dataset,
        each: &mut dyn FnMut(&Prediction) -> bool,
    ) -> Result<(), RunError> {
        let choice = &self.planned.choice;
        let embeddings = phase(&choice.program, EMBEDDINGS)?;
        let graph = &choice.program.phases[embeddings].graph;
        let names: Vec<String> = graph.kept().iter().map(|&id| graph.value(id).name.clone()).collect();
        let mut shapes = shapes(&self.recipe, &self.planned);
        let rows = shapes.rows(embeddings);
        let mut batch = Batch::new(images.fields(), rows)?;
        for first in (0..images.len()).step_by(rows) {
            batch.fill(images, first..images.len().min(first + rows))?;
            shapes.feed(&mut self.executor, embeddings, &batch, 0)?;
            self.executor.run(embeddings);
            let [image, text] = [0, 1].map(|i| self.output(embeddings, &names[i]));
            self.executor.check()?;
            let width = row_width(image.len(), rows)?;
            for row in 0..batch.len() {
                let [image, text] = [&image, &text].map(|all| all[row * width..][..width].to_vec());
                let answer = Answer::embeddings(image, text);
                if !each(&Prediction { row: first + row, window: None, answer }) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn output(&self, phase: usize, name: &str) -> Vec<f32> {
        self.executor.read_floats(phase, name).unwrap_or_default()
    }

    /// The logits of every sample, in order, until `each` has had enough.
    fn run_rows(&mut self, dataset: &dyn Dataset, each: &mut dyn FnMut(usize, &[f32]) -> bool) -> Result<(), RunError> {
        let mut shapes = shapes(&self.recipe, &self.planned);
        let rows = shapes.rows(phase(&self.planned.choice.program, EVALUATE)?);
        let mut batch = Batch::bucketed(dataset.fields(), rows, self.recipe.data.batching().buckets)?;
        for first in (0..dataset.len()).step_by(rows) {
            batch.fill(dataset, first..dataset.len().min(first + rows))?;
            let logits = self.logits(&mut shapes, &batch)?;
            let width = row_width(logits.len(), rows)?;
            for (row, logits) in logits.chunks(width).take(batch.len()).enumerate() {
                if !each(first + row, logits) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The logits of each row of a batch whose answers are not known: its loss means nothing.
    fn logits(&mut self, shapes: &mut Shapes, batch: &Batch) -> Result<Vec<f32>, RunError> {
        let choice = &self.planned.choice;
        let phase = shapes.phase(&mut self.executor, choice, Pass::Evaluate, batch.lengths())?;
        shapes.feed(&mut self.executor, phase, batch, 0)?;
        self.executor.run(phase);
        let logits = crate::steps::kept(&self.executor, choice, phase);
        self.executor.check()?;
        logits.ok_or_else(|| PlanError::Broken("the evaluation keeps no logits".into()).into())
    }

    fn normalizer(&self) -> Result<Normalizer, RunError> {
        let path = self.dir.join("model/normalizer.json");
        if !path.exists() {
            return match load_data(&self.recipe)?.extras {
                Extras::Series(normalizer) => Ok(normalizer),
                _ => Err(damaged(&path, "the data of the run is no series")),
            };
        }
        let text = fs::read(&path).map_err(RunError::io(&path))?;
        let normalizer: Normalizer = serde_json::from_slice(&text).map_err(|e| damaged(&path, &e.to_string()))?;
        let [window, features, classes] = series_sizes(&self.recipe)?;
        let fits =
            (normalizer.features.len(), normalizer.window) == (features, window) && normalizer.classes.len() <= classes;
        if fits { Ok(normalizer) } else { Err(damaged(&path, "its sizes are not those of the model")) }
    }

    /// Names of the classes: those of the exported config.json, or of the data.
    fn classes(&self, labels: usize) -> Result<Vec<String>, RunError> {
        let path = self.dir.join("model/config.json");
        let Ok(text) = fs::read(&path) else {
            return match load_data(&self.recipe)?.extras {
                Extras::Labelled { classes, .. } => Ok(classes),
                _ => Ok(Vec::new()),
            };
        };
        let config: serde_json::Value = serde_json::from_slice(&text).map_err(|e| damaged(&path, &e.to_string()))?;
        let name = |i: usize| config["id2label"][i.to_string()].as_str().map_or(format!("LABEL_{i}"), String::from);
        Ok((0..labels).map(name).collect())
    }

    /// The run's own copy.
    fn tokenizer_file(&self) -> PathBuf {
        self.dir.join("model/tokenizer.json")
    }

    /// The run's own copy, or what the recipe's data brings.
    fn text_tokenizer(&self) -> Result<TextTokenizer, RunError> {
        let own = self.tokenizer_file();
        if own.exists() {
            return Ok(TextTokenizer::open(&own)?);
        }
        match load_data(&self.recipe)?.extras {
            Extras::Labelled { tokenizer, .. } | Extras::Pairs { tokenizer } => {
                Ok(TextTokenizer::from_json(&own, tokenizer.json().to_string())?)
            }
            _ => Err(damaged(&own, "the run has no tokenizer")),
        }
    }

    fn generator(&self) -> Result<(Generator, GenerationOptions), RunError> {
        let generator = Generator::find(&self.planned.choice.program, decoder(&self.recipe)?);
        let generator = generator.ok_or_else(|| RunError::Refused {
            cause: "the run was opened without room to write".into(),
            hint: "open it to write".into(),
        })?;
        let shape = *generator.shape();
        let options =
            GenerationOptions { max_new_tokens: shape.max_new_tokens, beams: shape.beams, ..Default::default() };
        Ok((generator, options))
    }

    /// Whether what it writes goes on where the prompt ends.
    pub fn continues(&self) -> bool {
        matches!(self.recipe.data.kind, Kind::Text(_))
    }

    /// Continues a text, or answers it where the model has a decoder.
    pub fn generate(&mut self, prompt: &str, tokens: usize, draw: &GenerationOptions) -> Result<String, RunError> {
        match self.recipe.data.kind.clone() {
            Kind::Text(text) => self.continue_text(prompt, tokens, draw, &text),
            Kind::Pairs(pairs) => self.answer(prompt, tokens, draw, &pairs),
            _ => Err(RunError::Refused {
                cause: format!("{} writes no text", self.recipe.model.name()),
                hint: "ask it about a file with `plimsoll predict RUN FILE`".into(),
            }),
        }
    }

    fn continue_text(
        &mut self,
        prompt: &str,
        tokens: usize,
        draw: &GenerationOptions,
        text: &plimsoll_models::recipe::Text,
    ) -> Result<String, RunError> {
        let own = self.tokenizer_file();
        let vocabulary = Vocabulary::open(&match &text.tokenizer {
            None => VocabularyChoice::Bytes,
            Some(_) if own.exists() => VocabularyChoice::Tokenizer(own),
            Some(file) => VocabularyChoice::Tokenizer(self.recipe.resolve_path(file)),
        })?;
        let mut ids = vocabulary.encode(prompt)?;
        if ids.is_empty() {
            ids.push(vocabulary.end_of_text().unwrap_or(0) as i32);
        }
        let phase = phase(&self.planned.choice.program, NEXT_TOKEN)?;
        let stop = vocabulary.end_of_text();
        let sampling = Sampling { tokens, temperature: draw.temperature, seed: draw.seed, stream: 0, stop };
        let written = generate(&mut self.executor, phase, &ids, length(&self.recipe), &sampling)?;
        self.executor.check()?;
        Ok(vocabulary.decode(&written)?)
    }

    fn answer(
        &mut self,
        prompt: &str,
        tokens: usize,
        draw: &GenerationOptions,
        pairs: &Pairs,
    ) -> Result<String, RunError> {
        let tokenizer = self.text_tokenizer()?;
        let tokenizer = Arc::new(tokenizer);
        let source = encode_source(prompt, &pairs_options(&self.recipe, pairs)?, tokenizer.clone())?;
        let (generator, planned) = self.generator()?;
        let max_new_tokens = tokens.min(planned.max_new_tokens);
        let options = GenerationOptions { max_new_tokens, beams: planned.beams, ..*draw };
        let written = generator.generate(&mut self.executor, &[source], &options)?;
        Ok(tokenizer.decode(&written[0])?)
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
        let normalizer = match self.recipe.data.kind {
            Kind::Series(_) => Some(self.normalizer()?),
            _ => None,
        };
        let tokenizer = Some(self.tokenizer_file()).filter(|file| file.exists());
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

fn damaged(path: &Path, cause: &str) -> RunError {
    RunError::Refused { cause: format!("{}: {cause}", path.display()), hint: "train again, or restore the file".into() }
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
