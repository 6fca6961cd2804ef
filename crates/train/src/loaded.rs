//! The data of a run, and what goes along with its model.

use plimsoll_data::{DataReport, Dataset, Normalizer, TextTokenizer, Vocabulary};
use std::sync::Arc;

pub struct LoadedData {
    pub train: Arc<dyn Dataset>,
    pub validation: Option<Arc<dyn Dataset>>,
    pub best_accuracy: Option<f64>,
    pub best_loss: Option<f64>,
    pub report: DataReport,
    pub extras: Extras,
}

/// What predictions need beside the weights; each task has its own of these.
#[derive(Default)]
pub struct Extras {
    /// Of series: names and scales of the columns, names of the classes.
    pub normalizer: Option<Normalizer>,
    /// Of a corpus.
    pub vocabulary: Option<Vocabulary>,
    /// Names of the classes of texts, in the order of the model's outputs.
    pub classes: Vec<String>,
    /// What turned texts into samples.
    pub tokenizer: Option<Arc<TextTokenizer>>,
    /// The tokenizer.json of captions made by code; those of files have a tokenizer of their own.
    pub made_tokenizer: Option<String>,
    /// Whether the last bits of samples depend on the machine: images are scaled with whatever instructions it has.
    pub differs_by_machine: bool,
}
