//! A trained run put to use: scores, answers, texts, a folder for others.

use crate::{Device, Recipe, RunError};
use plimsoll_base::explain::{Explain, Fault};
use plimsoll_train::infer;
use plimsoll_train::infer::{Evaluated, Question, Within};
use plimsoll_train::scoring::Prediction;
use plimsoll_train::writing::GenerationOptions;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The model of a run, inside the budget that it was trained in or another ([`Within`]). Its arena is taken when it is used
/// first.
///
/// ```
/// use plimsoll::answers::{Answer, Question};
/// use plimsoll::{Device, Recipe, Run, RunOptions, TrainedRun, evaluate};
/// # let text = "
/// #     [model]
/// #     family = \"hybrid-cnn-lstm\"
/// #     features = 2
/// #     window = 12
/// #     channels = [4, 8]
/// #     hidden = 8
/// #     heads = 2
/// #     classes = 2
/// #     [data]
/// #     train = \"TRAIN\"
/// #     label = \"label\"
/// #     validation = 0.25
/// #     workers = 0
/// #     [train]
/// #     effective_batch = 16
/// # ";
/// # let folder = tempfile::tempdir()?;
/// # let (run, file, exported) = (folder.path().join("run"), folder.path().join("rows.csv"), folder.path().join("model"));
/// # let row = |i: usize| format!("{},{},{}\n", i % 7, i % 5, ["down", "up"][i % 2]);
/// # std::fs::write(&file, "a,b,label\n".to_string() + &(0..200).map(row).collect::<String>())?;
/// # let text = text.replace("TRAIN", &file.display().to_string());
/// # let recipe = Recipe::parse(&text, "small.toml", &["train.steps=3".into()])?;
/// # let device = Device::named("cpu", Some(1))?;
/// # let options = RunOptions { out: run.clone(), ..RunOptions::default() };
/// # Run::open(recipe, &device, &options)?.train(&false.into(), &mut |_| ())?;
///
/// let report = evaluate(&run, &device, 0)?; // what `plimsoll eval --json` prints
/// assert!(report.found.scores.loss.is_finite() && report.samples > 0);
/// assert!(report.measured_peak_bytes <= report.planned_peak_bytes);
///
/// let mut model = TrainedRun::open(&run, &device)?;
/// let mut answers = Vec::new();
/// model.predict(&Question { file: &file, id: None }, &mut |prediction| {
///     answers.push(prediction.clone());
///     true // go on with the next row
/// })?;
/// let Answer::Class { label, probabilities, .. } = &answers[0].answer else { panic!("a classifier names classes") };
/// assert!(["down", "up"].contains(&label.as_str()) && probabilities.len() == 2);
///
/// model.export(&exported)?;
/// assert!(exported.join("model.safetensors").exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TrainedRun(infer::TrainedRun);

impl TrainedRun {
    /// Reads recipe and weights of a run's folder: the weights of `model/`, or of the last checkpoint.
    ///
    /// # Errors
    /// The folder is no run's, or nothing was kept yet.
    pub fn open<'a>(run: impl Into<Within<'a>>, device: &Device) -> Result<TrainedRun, RunError> {
        infer::TrainedRun::open(run, device).map(TrainedRun)
    }

    /// The same with room to write texts of up to `tokens` tokens (none given: as many as the recipe says), following
    /// `beams` continuations at once. A model that writes no texts is opened without.
    ///
    /// # Errors
    /// As of [`TrainedRun::open`].
    pub fn open_to_write<'a>(
        run: impl Into<Within<'a>>,
        device: &Device,
        tokens: Option<usize>,
        beams: usize,
    ) -> Result<TrainedRun, RunError> {
        infer::TrainedRun::open_to_write(run, device, tokens, beams).map(TrainedRun)
    }

    /// Answers every row of a file, in order, or says why it has no answer. `each` says whether to go on.
    ///
    /// # Errors
    /// The file cannot be read, or has not the columns of the training file.
    pub fn predict(&mut self, asked: &Question<'_>, each: &mut dyn FnMut(&Prediction) -> bool) -> Result<(), RunError> {
        self.0.predict(asked, each)
    }

    /// Continues a text, or answers it where the model has an encoder.
    ///
    /// ```
    /// use plimsoll::answers::GenerationOptions;
    /// use plimsoll::{Device, Recipe, Run, RunOptions, TrainedRun};
    /// # let text = "
    /// #     [model]
    /// #     family = \"mu-sota\"
    /// #     vocab = 257
    /// #     layers = 1
    /// #     blocks = 2
    /// #     block_width = 4
    /// #     block_heads = 2
    /// #     cross_heads = 2
    /// #     ffn = 16
    /// #     max_length = 16
    /// #     [data]
    /// #     train = \"TRAIN\"
    /// #     workers = 0
    /// #     [train]
    /// #     effective_batch = 8
    /// # ";
    /// # let folder = tempfile::tempdir()?;
    /// # let (run, file) = (folder.path().join("run"), folder.path().join("corpus.txt"));
    /// # std::fs::write(&file, "the sea is deep and the ship is long. ".repeat(40))?;
    /// # let text = text.replace("TRAIN", &file.display().to_string());
    /// # let recipe = Recipe::parse(&text, "small.toml", &["train.steps=2".into()])?;
    /// # let device = Device::named("cpu", Some(1))?;
    /// # let options = RunOptions { out: run.clone(), ..RunOptions::default() };
    /// # Run::open(recipe, &device, &options)?.train(&false.into(), &mut |_| ())?;
    ///
    /// let mut model = TrainedRun::open_to_write(&run, &device, Some(8), 1)?;
    /// let greedy = GenerationOptions { max_new_tokens: 8, ..GenerationOptions::default() };
    /// let written = model.generate("the sea", &greedy)?;
    /// assert_eq!(model.generate("the sea", &greedy)?, written);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The model writes no texts, or was opened without room to.
    pub fn generate(&mut self, prompt: &str, options: &GenerationOptions) -> Result<String, RunError> {
        self.0.generate(prompt, options)
    }

    /// Writes the model as a folder: one that transformers loads, where the family is known there
    /// ([`TrainedRun::is_for_transformers`]).
    ///
    /// # Errors
    /// The folder holds something else than an earlier export, or the disk is full; it is as it was then.
    pub fn export(&mut self, folder: &Path) -> Result<(), RunError> {
        self.0.export(folder)
    }

    /// What it was trained by.
    pub fn recipe(&self) -> &Recipe {
        &self.0.recipe
    }

    /// Where the weights came from.
    pub fn weights(&self) -> &Path {
        self.0.weights()
    }

    /// What it may take, by its plan; nothing before it is used.
    pub fn planned_peak_bytes(&self) -> u64 {
        self.0.planned_peak_bytes()
    }

    /// What it took at its peak so far, as the plan counts it.
    pub fn measured_peak_bytes(&self) -> u64 {
        self.0.measured_bytes()
    }

    /// Whether rows that cannot be used may be left out, by the recipe.
    pub fn leaves_out_bad_rows(&self) -> bool {
        self.0.leaves_out_bad_rows()
    }

    /// Whether what it writes goes on where the prompt ends.
    pub fn continues(&self) -> bool {
        self.0.continues()
    }

    /// Whether its family is one that transformers knows.
    pub fn is_for_transformers(&self) -> bool {
        self.0.is_for_transformers()
    }

    fn judged(mut self, texts: usize) -> Result<EvalReport, RunError> {
        let (found, data) = self.0.evaluate(texts)?;
        Ok(EvalReport {
            weights: self.weights().into(),
            samples: data.validation.map_or(0, |validation| validation.len()),
            found,
            best_possible_accuracy: data.best_accuracy,
            best_possible_loss: data.best_loss,
            planned_peak_bytes: self.planned_peak_bytes(),
            measured_peak_bytes: self.measured_peak_bytes(),
            lacks_texts: false,
            remembers_its_data: self.0.remembers_its_data()?,
        })
    }
}

/// What a trained run is worth on its validation data: what `plimsoll eval --json` prints of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvalReport {
    /// Where the weights came from.
    pub weights: PathBuf,
    /// Samples of the validation data.
    pub samples: usize,
    /// Scores, and what they are made of.
    #[serde(flatten)]
    pub found: Evaluated,
    /// What the best possible model would reach, where the data's source knows it.
    pub best_possible_accuracy: Option<f64>,
    /// The same of the loss.
    pub best_possible_loss: Option<f64>,
    /// What it might take, by its plan.
    pub planned_peak_bytes: u64,
    /// What it took.
    pub measured_peak_bytes: u64,
    /// Whether texts were wanted and the budget had no room to write them: scores without texts are better than none.
    #[serde(skip)]
    pub lacks_texts: bool,
    /// Whether the run remembers what it was trained on, so that this was held against it; one of an earlier version
    /// without a checkpoint does not.
    #[serde(skip)]
    pub remembers_its_data: bool,
}

/// Evaluates a trained run on the validation data of its recipe. Where answers are texts, so many are written and compared
/// (exact match, ROUGE), if there is room to; 0 for none.
///
/// # Errors
/// The run cannot be opened, its recipe holds no data out, or the data is not what it was trained with.
pub fn evaluate<'a>(run: impl Into<Within<'a>>, device: &Device, texts: usize) -> Result<EvalReport, RunError> {
    let run = run.into();
    let plain = || TrainedRun::open(run, device)?.judged(0);
    if texts == 0 {
        return plain();
    }
    let writing = infer::TrainedRun::open_to_judge(run, device).map(TrainedRun);
    match writing.and_then(|model| model.judged(texts)) {
        Err(error) if error.fault() == Fault::DoesNotFit => Ok(EvalReport { lacks_texts: true, ..plain()? }),
        judged => judged,
    }
}
