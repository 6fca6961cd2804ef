//! What a model learns: one file for each task, behind one trait and one line in [`task`].

mod asking;
mod classify;
mod contrastive;
mod expect;
mod language_model;
mod seq2seq;
mod series;
mod shared;
mod weighing;

pub use asking::Question;
pub use expect::{ExpectedData, ExpectedSteps, Look, beside_the_run, counts_process, expected_data, host_peak_bytes};
pub(crate) use expect::{answering_bytes, evaluation_bytes};
pub use expect::{graph_bytes, loader_bytes, look_at_data};
pub use shared::loader_options;

use crate::RunError;
use crate::loaded::LoadedData;
use crate::scoring::{Prediction, WrittenTexts};
use crate::writing::GenerationOptions;
use plimsoll_core::plan::Program;
use plimsoll_data::{Dataset, FieldSpec, Normalizer};
use plimsoll_exec::Executor;
use plimsoll_models::families::GenerationShape;
use plimsoll_models::recipe::{DataKind, Recipe};
use std::path::Path;

/// One kind of learning: where its samples come from, and what it answers.
pub trait Task {
    /// Reads (or makes) the data that the recipe names.
    fn load(&self) -> Result<LoadedData, RunError>;

    /// The fields of one sample, before any is read.
    fn fields(&self) -> Result<Vec<FieldSpec>, RunError>;

    /// What the recipe alone says about its data, or why it cannot be used; `None` where samples have to be looked at.
    fn expected(&self) -> Option<Result<ExpectedData, RunError>> {
        None
    }

    /// The tokenizer that the recipe names.
    fn tokenizer(&self) -> Option<&Path> {
        None
    }

    /// Answers every row of a file, in order, or says why it has no answer. `each` says whether to go on.
    fn predict(&self, asked: &Question<'_>, model: &mut dyn Trained, each: Each<'_>) -> Result<(), RunError>;

    /// Lets the model write to the first `most` held-out sources and compares that with what was to be written; `None` if
    /// it writes no text, or there is no room to.
    fn judge(&self, _: Midway<'_>, _most: usize) -> Result<Option<WrittenTexts>, RunError> {
        Ok(None)
    }

    /// Whether rows that cannot be used may be left out.
    fn leaves_out_bad_rows(&self) -> bool {
        false
    }

    /// The room that writing up to so many tokens takes; `None` if it writes no text.
    fn room(&self, _tokens: Option<usize>, _beams: usize) -> Option<GenerationShape> {
        None
    }

    /// Whether what it writes goes on where the prompt ends.
    fn continues(&self) -> bool {
        false
    }

    /// Continues or answers a text.
    fn generate(&self, _: &str, _: &mut dyn Trained, _: &GenerationOptions) -> Result<String, RunError> {
        Err(RunError::Refused {
            cause: format!("{} writes no text", self.recipe().model.name()),
            hint: "ask it about a file with `plimsoll predict RUN FILE`".into(),
        })
    }

    /// A little text in the midst of training; `None` if it writes none.
    fn sample(&self, _: Midway<'_>) -> Result<Option<Written>, RunError> {
        Ok(None)
    }

    /// Of a run of series: names and scales of the columns, to go along with the model.
    fn normalizer(&self, _run: &Path) -> Result<Option<Normalizer>, RunError> {
        Ok(None)
    }

    /// What it was made for.
    fn recipe(&self) -> &Recipe;
}

/// Takes a prediction and says whether to go on.
pub type Each<'a> = &'a mut dyn FnMut(&Prediction) -> bool;

/// Takes the number of a sample and its logits, and says whether to go on.
pub type EachRow<'a> = &'a mut dyn FnMut(usize, &[f32]) -> bool;

/// Takes the number of a sample and the embeddings of image and text, and says whether to go on.
pub type EachPair<'a> = &'a mut dyn FnMut(usize, [&[f32]; 2]) -> bool;

/// A trained model, as tasks put it to use.
pub trait Trained {
    /// The folder of its run.
    fn folder(&self) -> &Path;

    /// The logits of every sample, in order.
    fn logits(&mut self, samples: &dyn Dataset, each: EachRow<'_>) -> Result<(), RunError>;

    /// The embeddings of every image and its text, in order.
    fn embeddings(&mut self, samples: &dyn Dataset, each: EachPair<'_>) -> Result<(), RunError>;

    /// What it writes to each source, in the room it was opened with.
    fn write(&mut self, sources: &[Vec<i32>], options: &GenerationOptions) -> Result<Vec<Vec<i32>>, RunError>;
}

/// A run in the midst of training.
pub struct Midway<'a> {
    pub data: &'a LoadedData,
    pub program: &'a Program,
    pub executor: &'a mut dyn Executor,
    /// Updates so far.
    pub step: usize,
}

/// What was written to which prompt.
pub struct Written {
    pub prompt: String,
    pub text: String,
}

/// The task of a recipe.
pub fn task(recipe: &Recipe) -> Box<dyn Task + '_> {
    match &recipe.data.kind {
        DataKind::Series(keys) => Box::new(series::Series { recipe, keys }),
        DataKind::Text(keys) => Box::new(language_model::LanguageModel { recipe, keys }),
        DataKind::Labelled(keys) => Box::new(classify::Classify { recipe, keys }),
        DataKind::Pairs(keys) => Box::new(seq2seq::Seq2seq { recipe, keys }),
        DataKind::Captions(keys) => Box::new(contrastive::Contrastive { recipe, keys }),
    }
}

/// Reads (or makes) the data that the recipe names.
pub fn load_data(recipe: &Recipe) -> Result<LoadedData, RunError> {
    let data = task(recipe).load()?;
    weighing::weigh(recipe, data)
}
