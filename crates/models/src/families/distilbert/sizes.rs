//! distilbert: keys are those of Hugging Face's config.json.

use serde::Serialize;

use crate::families::Task;
use crate::families::counting::{check_divides, dividing, sum_of_products};
use crate::families::labels::{Labels, check_padding};
use crate::families::origin::HubSizes;
use crate::families::{FamilyName, HiddenAct, Input, Origin, ProblemType, Sizes};
use crate::hf::{Checkpoint, HfError};
use crate::reading::about::{About, about};
use crate::reading::config::ConfigKeys;
use crate::reading::keys::Keys;
use crate::reading::section::{Range, Section};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DistilBert {
    #[serde(flatten)]
    pub origin: Origin,
    pub vocab_size: usize,
    pub max_position_embeddings: usize,
    /// Positions start as sines. A checkpoint has them among its tensors; without one, they would have to be made.
    pub sinusoidal_pos_embds: bool,
    pub n_layers: usize,
    pub n_heads: usize,
    pub dim: usize,
    pub hidden_dim: usize,
    pub dropout: f32,
    pub attention_dropout: f32,
    pub activation: HiddenAct,
    pub initializer_range: f64,
    pub seq_classif_dropout: f32,
    pub pad_token_id: usize,
    pub num_labels: usize,
    pub problem_type: ProblemType,
}

/// What each key means.
const ABOUT: &[About] = &[
    about("model.vocab_size", "Tokens of the vocabulary."),
    about("model.max_position_embeddings", "Positions the model knows; RoBERTa keeps the first ones for padding."),
    about("model.sinusoidal_pos_embds", "Positions start as sines and cosines; only with a checkpoint that has them."),
    about("model.n_layers", "Layers."),
    about("model.n_heads", "Attention heads; they divide `dim`."),
    about("model.dim", "Width of the hidden state."),
    about("model.hidden_dim", "Width of the feed-forward part."),
    about("model.dropout", "The share of values that dropout takes away."),
    about("model.attention_dropout", "Dropout of attention probabilities."),
    about("model.activation", "Activation of the feed-forward part."),
    about("model.initializer_range", "Standard deviation of the first weights."),
    about("model.seq_classif_dropout", "Dropout before the classifier."),
    about("model.pad_token_id", "The id of the padding token."),
    about("model.num_labels", "Outputs of the classifier."),
    about(
        "model.problem_type",
        "What the classifier learns: one class, any number of labels, or numbers; with `num_labels` = 1 a regression unless written.",
    ),
];

impl DistilBert {
    /// Sizes of the base model, which are also what transformers takes for the keys that a config.json leaves out.
    pub(super) fn defaults() -> Self {
        Self {
            origin: Origin::default(),
            vocab_size: 30_522,
            max_position_embeddings: 512,
            sinusoidal_pos_embds: false,
            n_layers: 6,
            n_heads: 12,
            dim: 768,
            hidden_dim: 3072,
            dropout: 0.1,
            attention_dropout: 0.1,
            activation: HiddenAct::Gelu,
            initializer_range: 0.02,
            seq_classif_dropout: 0.2,
            pad_token_id: 0,
            num_labels: 2,
            problem_type: ProblemType::Single,
        }
    }

    pub(super) fn labels(&self) -> Labels {
        Labels { count: self.num_labels, problem: self.problem_type }
    }
}

impl HubSizes for DistilBert {
    const FREE: &'static [&'static str] =
        &["dropout", "attention_dropout", "seq_classif_dropout", "initializer_range", "num_labels", "problem_type"];

    fn family(&self) -> FamilyName {
        FamilyName::DistilBert
    }

    fn origin_mut(&mut self) -> &mut Origin {
        &mut self.origin
    }

    fn preset(&self, name: &str) -> Option<Self> {
        Self::of_preset(name)
    }

    fn config(&self, keys: &ConfigKeys<'_>, _: Option<&Checkpoint>) -> Result<Self, HfError> {
        refuse_other_names(keys);
        let base = Self::defaults();
        let base = Self { num_labels: Labels::listed(keys).unwrap_or(base.num_labels), ..base };
        Ok(base.overlay(keys))
    }

    fn overlay(self, keys: &impl Keys) -> Self {
        let labels = self.labels().overlay(keys);
        Self {
            vocab_size: keys.size("vocab_size", 2..=16_777_216).unwrap_or(self.vocab_size),
            max_position_embeddings: keys
                .size("max_position_embeddings", 2..=1_048_576)
                .unwrap_or(self.max_position_embeddings),
            sinusoidal_pos_embds: keys.flag("sinusoidal_pos_embds").unwrap_or(self.sinusoidal_pos_embds),
            n_layers: keys.size("n_layers", 1..=4096).unwrap_or(self.n_layers),
            n_heads: keys.size("n_heads", 1..=1024).unwrap_or(self.n_heads),
            dim: keys.size("dim", 1..=65_536).unwrap_or(self.dim),
            hidden_dim: keys.size("hidden_dim", 1..=16_777_216).unwrap_or(self.hidden_dim),
            dropout: keys.dropout("dropout").unwrap_or(self.dropout),
            attention_dropout: keys.dropout("attention_dropout").unwrap_or(self.attention_dropout),
            activation: keys.choice("activation").unwrap_or(self.activation),
            initializer_range: keys
                .number("initializer_range", Range::closed(0.0, 10.0))
                .unwrap_or(self.initializer_range),
            seq_classif_dropout: keys.dropout("seq_classif_dropout").unwrap_or(self.seq_classif_dropout),
            pad_token_id: keys.size("pad_token_id", 0..=16_777_215).unwrap_or(self.pad_token_id),
            num_labels: labels.count,
            problem_type: labels.problem,
            origin: self.origin,
        }
    }
}

/// Other names that transformers takes for a size. No file that it writes has them, so one that says something else is
/// refused rather than guessed at.
fn refuse_other_names(keys: &ConfigKeys<'_>) {
    let names = [("hidden_size", "dim"), ("num_attention_heads", "n_heads"), ("num_hidden_layers", "n_layers")];
    for (other, name) in names {
        if keys.get(other).is_some_and(|value| Some(value) != keys.get(name)) {
            keys.report(other, format!("only the same as {name} is supported"));
        }
    }
}

impl Sizes for DistilBert {
    fn check(&self, section: &Section<'_>) {
        check_divides(section, "n_heads", self.n_heads, self.dim, "dim");
        self.labels().check(section);
        check_padding(section, self.pad_token_id, self.vocab_size);
        if self.sinusoidal_pos_embds && self.origin.checkpoint.is_none() {
            let cause = "positions that start as sines are only read from a checkpoint, not made";
            section.refuse("sinusoidal_pos_embds", cause, "false, or a checkpoint that has them");
        }
    }

    fn possible_heads(&self) -> Option<Vec<usize>> {
        Some(dividing(self.dim).collect())
    }

    fn about(&self) -> &'static [About] {
        ABOUT
    }

    fn tasks(&self) -> &'static [Task] {
        &[Task::Classify]
    }

    fn input(&self) -> Input {
        Input::Tokens { max_length: self.max_position_embeddings, vocab: self.vocab_size }
    }

    fn parameters(&self) -> Option<u64> {
        let (d, f) = (self.dim, self.hidden_dim);
        let layer = sum_of_products(&[&[4, d, d], &[2, d, f], &[f], &[9, d]])?;
        let ends = sum_of_products(&[
            &[self.vocab_size, d],
            &[self.max_position_embeddings, d],
            &[2, d],
            // pre_classifier
            &[d, d],
            &[d],
            &[d, self.num_labels],
            &[self.num_labels],
        ])?;
        layer.checked_mul(self.n_layers as u64)?.checked_add(ends)
    }

    fn largest_value(&self) -> Option<u64> {
        let (t, d) = (self.max_position_embeddings, self.dim);
        let rows = sum_of_products(&[&[t, self.hidden_dim.max(d.checked_mul(3)?)]])?;
        Some(rows.max(sum_of_products(&[&[self.n_heads, t, t]])?))
    }

    fn groups(&self) -> usize {
        self.n_heads
    }
}
