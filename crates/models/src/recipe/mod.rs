//! recipe.toml → raw tree with places → checked, resolved `Recipe`.
//!
//! The raw stage (`tree`, `set`) knows where everything was written; the reading stage (`section` and one file per
//! table) checks types and ranges and fills every default; `relations` checks what only several tables together tell.

#![deny(missing_docs)]

mod data;
mod draft;
mod memory;
mod optimizer;
/// Every key of a recipe, read off the reader itself.
pub mod reference;
mod relations;
/// `[search]`: what a study varies.
pub mod search;
mod track;
mod train;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use plimsoll_base::metric::Metric;
use serde::Serialize;
use sha2::{Digest, Sha256};

pub use crate::reading::kind::KeyKind;
pub use data::{
    BYTE_VOCABULARY, Captions, Columns, Data, DataKind, DerivedLabel, Format, Label, Labelled, LabelledColumns,
    PairColumns, Pairs, Series, Source, Synthetic, Text, Validation,
};
pub use draft::Draft;
pub use memory::{Budget, Choice, CudaGraphs, Memory, OffloadLevel, OptimizerState, Precision, RecomputeLevel};
pub use optimizer::{Optimizer, Rule, Schedule, ScheduleShape, Warmup};
pub use track::{EventFiles, News, NewsEvery, Notify, Track};
pub use train::{Checkpoint, ClassWeights, Evaluate, Every, Sample, Train};

pub use crate::families::{BatchNormMode, FamilyName, Model, Origin, ProblemType, Task};
pub use crate::reading::{Finding, Problems, RecipeError};

use crate::reading::error::{Problem, Sources};
use crate::reading::section::{Issues, LONGEST_NAME, Section};
use crate::reading::tree::Table;
use crate::reading::{resolve_in, set, tree};

/// A checked recipe with every default filled in; what the planner may choose is `Auto` or pinned.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// The file's stem, unless the recipe has a `name`.
    pub name: String,
    /// Where relative data paths start: the recipe's folder.
    pub dir: PathBuf,
    /// What is trained: a family and its sizes.
    pub model: Model,
    /// What it learns from.
    pub data: Data,
    /// How it learns.
    pub train: Train,
    /// What the planner may choose.
    pub memory: Memory,
    /// Which trackers are told.
    pub track: Track,
    /// Which people are told.
    pub notify: Notify,
}

/// A file's name without its extension, as a recipe's name may be.
fn stem(file: &Path) -> String {
    let mut stem = file.file_stem().map_or("recipe".into(), |s| s.to_string_lossy().replace(char::is_control, "-"));
    while stem.len() > LONGEST_NAME {
        stem.pop();
    }
    stem
}

/// A recipe is a page of text; anything larger is some other file.
const MOST_FILE_BYTES: u64 = 1 << 20;

impl Recipe {
    /// Reads a recipe file and lays `sets` (`key=value`) over it.
    pub fn load(path: &Path, sets: &[String]) -> Result<Self, RecipeError> {
        Draft::read(path, sets)?.with(&[])
    }

    /// A recipe that is no file. Problems are reported all at once, with the place of each in `file_name` or in `sets`.
    ///
    /// ```
    /// # use plimsoll_models::recipe::Recipe;
    /// let text = "
    ///     [model]
    ///     preset = \"bert-base-uncased\"
    ///     [data]
    ///     train = \"reviews.jsonl\"
    ///     max_length = 128
    ///     [train]
    ///     effective_batch = 32
    /// ";
    /// let recipe = Recipe::parse(text, "reviews.toml", &["train.epochs=5".into()])?;
    /// assert_eq!((recipe.name.as_str(), recipe.train.epochs), ("reviews", 5));
    ///
    /// let error = Recipe::parse(text, "reviews.toml", &["train.epoch=5".into()]).unwrap_err().to_string();
    /// assert!(error.contains("did you mean `epochs`?"), "{error}");
    /// # Ok::<(), plimsoll_models::recipe::RecipeError>(())
    /// ```
    pub fn parse(text: &str, file_name: &str, sets: &[String]) -> Result<Self, RecipeError> {
        let sources = Sources::new(file_name, text, sets);
        let issues = Issues::new(&sources);
        let root = raw_tree(&sources, sets.len(), &issues);
        let recipe = root.as_ref().and_then(|root| Self::resolve(root, Path::new(file_name), &issues));
        match recipe {
            Some(recipe) if issues.count() == 0 => Ok(recipe),
            _ => Err(issues.into_error()),
        }
    }

    /// `None` only after a problem was reported.
    fn resolve(root: &Table, file: &Path, issues: &Issues<'_>) -> Option<Self> {
        let (recipe, [data, train, memory]) = Self::read(root, file, issues)?;
        if issues.count() == 0 {
            relations::check(&recipe, &data, &train, &memory);
        }
        Some(recipe)
    }

    /// Every table by itself: types, ranges, names. With the tables that relations are checked on.
    fn read<'a>(root: &'a Table, file: &Path, issues: &'a Issues<'a>) -> Option<(Self, [Section<'a>; 3])> {
        let root = Section::new(root, String::new(), issues);
        let name = root.folder_name("name");
        let folder = file.parent().unwrap_or(Path::new(""));
        let dir = root.file("dir").map_or_else(|| folder.to_path_buf(), |dir| folder.join(dir));
        let model_section = required_table(&root, "model", "family = \"hybrid-cnn-lstm\"");
        let data_section = required_table(&root, "data", "source = \"synthetic:regimes\"");
        let train_section = required_table(&root, "train", "effective_batch = 64");
        let memory_section = root.section_or_empty("memory");
        let track = Track::read(&root.section_or_empty("track"));
        let notify = Notify::read(&root.section_or_empty("notify"));
        search::Search::read(&root.section_or_empty("search"));
        root.finish();

        let model = model_section.and_then(|s| Model::read(&s, &dir));
        let memory = Memory::read(&memory_section);
        let (data_section, train_section) = (data_section?, train_section?);
        let task = Task::read(&train_section, model.as_ref())?;
        let train = Train::read(&train_section, task, model.as_ref());
        let data = Data::read(&data_section, task, model.as_ref());
        let name = name.unwrap_or_else(|| stem(file));
        let recipe = Self { name, dir, model: model?, data: data?, train, memory, track, notify };
        Some((recipe, [data_section, train_section, memory_section]))
    }

    /// The resolved recipe as a file that reads back as an equal one.
    pub fn to_toml(&self) -> Result<String, RecipeError> {
        #[derive(Serialize)]
        struct Stored<'a> {
            name: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            dir: Option<&'a str>,
            model: &'a Model,
            data: &'a Data,
            train: &'a Train,
            memory: &'a Memory,
            track: &'a Track,
            notify: &'a Notify,
        }
        toml::to_string(&Stored {
            name: &self.name,
            dir: self.dir.to_str().filter(|d| !d.is_empty()),
            model: &self.model,
            data: &self.data,
            train: &self.train,
            memory: &self.memory,
            track: &self.track,
            notify: &self.notify,
        })
        .map_err(|e| RecipeError::Store(e.to_string()))
    }

    /// SHA-256, in hex, of everything that decides the plan or what is learned. Left out: name, folder, loader
    /// threads and depth, checkpoints, and who is told, which may change between a run and its resumption; and epochs
    /// where no step depends on how many there are, so that a run can be made longer.
    pub fn hash(&self) -> Result<String, RecipeError> {
        let train = if self.is_extensible() { self.endless() } else { self.lesson() };
        hashed(&("plimsoll recipe 1", &self.model, self.samples(), train, &self.memory))
    }

    /// The same of what is learned alone: two recipes with the same one give the same model, to rounding, whatever
    /// memory they run in.
    pub fn learning_hash(&self) -> Result<String, RecipeError> {
        hashed(&("plimsoll learning 1", &self.model, self.samples(), self.lesson(), self.exactness()))
    }

    /// The same for trainings of any length, where a longer one begins with all of a shorter one.
    pub fn endless_hash(&self) -> Option<Result<String, RecipeError>> {
        let canonical = ("plimsoll endless 1", &self.model, self.samples(), self.endless(), self.exactness());
        self.is_extensible().then(|| hashed(&canonical))
    }

    /// Whether no step depends on how many there are, and a run ends with an epoch.
    fn is_extensible(&self) -> bool {
        let Schedule { name, warmup, .. } = self.train.schedule;
        let by_count = matches!(warmup, Warmup::Steps(_)) || warmup == Warmup::Fraction(0.0);
        name == ScheduleShape::Constant && by_count && self.train.steps.is_none()
    }

    fn samples(&self) -> Data {
        Data { workers: 0, prefetch: 0, ..self.data.clone() }
    }

    fn lesson(&self) -> Train {
        Train { checkpoint: Checkpoint { every: Every::Never, keep: 0 }, ..self.train.clone() }
    }

    fn endless(&self) -> Train {
        Train { epochs: 0, ..self.lesson() }
    }

    /// What of `[memory]` is more than another way to the same numbers; all of it where statistics are those of a
    /// micro-batch.
    fn exactness(&self) -> (Choice<Precision>, Choice<OptimizerState>, Option<&Memory>) {
        let by_micro_batch = self.model.family().batch_norm() == Some(BatchNormMode::Micro);
        (self.memory.precision, self.memory.optimizer_state, by_micro_batch.then_some(&self.memory))
    }

    /// The same of what a run keeps from its start to its end. Left out as well: the budget, which may change with the
    /// machine, and how long it trains, so that a finished run can go on.
    pub fn identity(&self) -> Result<String, RecipeError> {
        let train = Train { epochs: 1, steps: None, ..self.train.clone() };
        let memory = Memory { budget: Budget::Auto, ..self.memory.clone() };
        Recipe { train, memory, ..self.clone() }.hash()
    }

    /// The measures that its evaluations have.
    pub fn metrics(&self) -> &'static [Metric] {
        train::metrics(self.train.task, Some(&self.model))
    }

    /// Where a path of this recipe is: in the recipe's folder or, if nothing is there, in the working directory.
    pub fn resolve_path(&self, path: &Path) -> PathBuf {
        resolve_in(&self.dir, path)
    }

    /// The folder of the checkpoint that the model starts from, if any.
    pub fn checkpoint_dir(&self) -> Option<PathBuf> {
        let path = self.model.origin()?.checkpoint.as_deref()?;
        Some(self.resolve_path(path))
    }
}

fn hashed(canonical: &impl Serialize) -> Result<String, RecipeError> {
    let text = serde_json::to_vec(canonical).map_err(|e| RecipeError::Store(e.to_string()))?;
    Ok(Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect())
}

fn required_table<'a>(root: &Section<'a>, key: &'static str, example: &str) -> Option<Section<'a>> {
    root.require(key, root.section(key), &format!("add a table [{key}] with, for example, {example}"))
}

/// The file's tree with every setting laid over it; `None` where the file is not TOML.
fn raw_tree(sources: &Sources, sets: usize, issues: &Issues<'_>) -> Option<Table> {
    let root = tree::parse_document(sources.text(0));
    let mut root = match root {
        Ok(root) => root,
        Err(error) => {
            let cause = format!("not valid TOML: {}", error.cause);
            issues.report(Problem::new("", cause, error.place));
            return None;
        }
    };
    for source in 1..=sets {
        if let Err(problem) = set::apply(&mut root, sources, source) {
            issues.report(problem);
        }
    }
    drop_rivals(&mut root);
    Some(root)
}

/// Of a preset and a checkpoint, which exclude each other, the one from the command line replaces the file's.
fn drop_rivals(root: &mut Table) {
    let Some(tree::Value::Table(model)) = root.entries.get_mut("model").map(|node| &mut node.value) else { return };
    let [preset, checkpoint] = ["preset", "checkpoint"].map(|key| model.entries.get(key).map(|node| node.place.source));
    match (preset, checkpoint) {
        (Some(0), Some(1..)) => drop(model.entries.remove("preset")),
        (Some(1..), Some(0)) => drop(model.entries.remove("checkpoint")),
        _ => {}
    }
}

fn read_text(path: &Path) -> Result<String, RecipeError> {
    let refuse = |cause, hint| RecipeError::Read { path: path.to_path_buf(), cause, hint };
    let size = std::fs::metadata(path).map_err(|e| refuse(e, "is the path right?"))?.len();
    if size > MOST_FILE_BYTES {
        let cause =
            std::io::Error::other(format!("{} are too many for a recipe", plimsoll_base::units::format_bytes(size)));
        return Err(refuse(cause, "a recipe is a short TOML file; is this the right one?"));
    }
    // A pipe or a device has no size to ask for: reading stops where a recipe would have ended long ago.
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_FILE_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|e| refuse(e, "is it a readable file?"))?;
    if bytes.len() as u64 > MOST_FILE_BYTES {
        let cause = std::io::Error::other("it is too long for a recipe");
        return Err(refuse(cause, "a recipe is a short TOML file; is this the right one?"));
    }
    String::from_utf8(bytes).map_err(|e| {
        let cause = std::io::Error::other(format!("byte {} is not UTF-8", e.utf8_error().valid_up_to()));
        refuse(cause, "save the file as UTF-8")
    })
}
