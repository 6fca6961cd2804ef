//! A recipe in training.

use crate::{Device, PlanReport};
use plimsoll_models::recipe::Recipe;
use plimsoll_runs::{Event, Finished};
use plimsoll_train::RunError;
use plimsoll_train::run::{self, RunOptions};
use plimsoll_train::tasks::ExpectedData;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// A recipe that is about to be trained: its plan is made, its data is loaded, the arena is not taken yet. Nobody else
/// trains in its folder as long as it lives.
///
/// ```
/// use plimsoll::{Device, Event, Recipe, Run, RunOptions};
/// use std::sync::atomic::AtomicBool;
///
/// # let text = "
/// #     [model]
/// #     family = \"hybrid-cnn-lstm\"
/// #     features = 3
/// #     window = 12
/// #     channels = [4, 8]
/// #     hidden = 8
/// #     heads = 2
/// #     classes = 3
/// #     [data]
/// #     source = \"synthetic:regimes\"
/// #     samples = 200
/// #     workers = 0
/// #     [train]
/// #     effective_batch = 16
/// # ";
/// # let folder = tempfile::tempdir()?;
/// let recipe = Recipe::parse(text, "small.toml", &["train.steps=3".into()])?;
/// let options = RunOptions { out: folder.path().join("run"), ..RunOptions::default() };
/// let mut run = Run::open(recipe, &Device::named("cpu", Some(1))?, &options)?;
/// let announced = run.report();
///
/// let (stop, mut losses) = (AtomicBool::new(false), Vec::new());
/// let finished = run.train(&stop, &mut |event| {
///     if let Event::Step(step) = event {
///         losses.push(step.loss);
///     }
/// })?;
/// assert_eq!((finished.steps, losses.len()), (3, 3));
/// assert!(finished.measured_peak_bytes <= announced.budget_bytes);
/// assert!(run.folder().join("model/model.safetensors").exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Run(run::Run);

impl Run {
    /// Takes the folder, plans (or reads the stored plan of a run to go on with) and loads the data. Where that fails, the
    /// folder is as it was.
    ///
    /// # Errors
    /// [`RunError::Planning`] where nothing fits, with the smallest plan there is.
    pub fn open(recipe: Recipe, device: &Device, options: &RunOptions) -> Result<Run, RunError> {
        run::Run::open(recipe, device, options).map(Run)
    }

    /// Trains to the end, or until `stop` is set: a checkpoint is written then, and the run can go on later. `sink` sees
    /// every event after it was written to `events.jsonl`.
    ///
    /// # Errors
    /// What was done until the last checkpoint is kept.
    pub fn train(&mut self, stop: &AtomicBool, sink: &mut dyn FnMut(&Event)) -> Result<Finished, RunError> {
        self.0.train(stop, sink)
    }

    /// What is trained.
    pub fn recipe(&self) -> &Recipe {
        &self.0.recipe
    }

    /// Its plan, with the data that was loaded.
    pub fn report(&self) -> PlanReport {
        let data = ExpectedData::of(&self.0.data, &self.0.recipe);
        PlanReport::with_data(&self.0.recipe, &self.0.planned, data)
    }

    /// Recipe, plan, events, checkpoints and the model are in it.
    pub fn folder(&self) -> &Path {
        &self.0.out
    }

    /// Updates of the whole run.
    pub fn steps(&self) -> usize {
        self.0.steps()
    }

    /// Whether it goes on from a checkpoint.
    pub fn is_resumed(&self) -> bool {
        self.0.from.is_some()
    }

    /// What it does otherwise than before, in words, where it goes on.
    pub fn changes(&self) -> &[String] {
        &self.0.changes
    }
}
