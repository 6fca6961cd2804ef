//! Encoders that classify texts: bert, roberta, xlm-roberta and deberta-v3. Keys are those of Hugging Face's config.json.

use serde::Serialize;

use super::{Family, Input, Origin, check_divides, sum_of_products};
use crate::recipe::names::named;
use crate::recipe::section::{Range, Section};
use crate::recipe::train::Task;

named! {
    pub enum EncoderKind {
        Bert = "bert",
        Roberta = "roberta",
        XlmRoberta = "xlm-roberta",
        DebertaV3 = "deberta-v3",
    }
}

named! {
    /// What the classifier head learns.
    pub enum Problem {
        Single = "single_label_classification",
        Multi = "multi_label_classification",
        Regression = "regression",
    }
}

named! {
    /// Activations by the names that config.json uses.
    pub enum HiddenAct {
        Gelu = "gelu",
        GeluNew = "gelu_new",
        QuickGelu = "quick_gelu",
        Relu = "relu",
        Silu = "silu",
        Tanh = "tanh",
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Encoder {
    #[serde(skip)]
    pub kind: EncoderKind,
    #[serde(flatten)]
    pub origin: Origin,
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub intermediate_size: usize,
    pub max_position_embeddings: usize,
    /// Kinds of segments; 0 where the model has none.
    pub type_vocab_size: usize,
    pub hidden_act: HiddenAct,
    pub layer_norm_eps: f64,
    pub hidden_dropout_prob: f32,
    pub attention_probs_dropout_prob: f32,
    /// None given: as `hidden_dropout_prob`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classifier_dropout: Option<f32>,
    pub pad_token_id: usize,
    pub initializer_range: f64,
    pub num_labels: usize,
    pub problem_type: Problem,
    /// DeBERTa: logarithmic buckets of relative positions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position_buckets: Option<usize>,
    /// DeBERTa: the furthest relative position; none given: `max_position_embeddings`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_relative_positions: Option<usize>,
}

impl Encoder {
    /// Sizes of the base model of each kind.
    fn defaults(kind: EncoderKind) -> Self {
        let bert = Self {
            kind,
            origin: Origin::default(),
            vocab_size: 30_522,
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            max_position_embeddings: 512,
            type_vocab_size: 2,
            hidden_act: HiddenAct::Gelu,
            layer_norm_eps: 1e-12,
            hidden_dropout_prob: 0.1,
            attention_probs_dropout_prob: 0.1,
            classifier_dropout: None,
            pad_token_id: 0,
            initializer_range: 0.02,
            num_labels: 2,
            problem_type: Problem::Single,
            position_buckets: None,
            max_relative_positions: None,
        };
        let roberta = Self {
            vocab_size: 50_265,
            max_position_embeddings: 514,
            type_vocab_size: 1,
            layer_norm_eps: 1e-5,
            pad_token_id: 1,
            ..bert.clone()
        };
        match kind {
            EncoderKind::Bert => bert,
            EncoderKind::Roberta => roberta,
            EncoderKind::XlmRoberta => Self { vocab_size: 250_002, ..roberta },
            EncoderKind::DebertaV3 => Self {
                vocab_size: 128_100,
                type_vocab_size: 0,
                layer_norm_eps: 1e-7,
                position_buckets: Some(256),
                ..bert
            },
        }
    }

    pub fn read(kind: EncoderKind, section: &Section<'_>) -> Self {
        let base = Self::defaults(kind);
        let wide = 1..=65_536;
        let share = Range::closed(0.0, 0.99);
        Self {
            kind,
            origin: Origin::read(section),
            vocab_size: section.size("vocab_size", 2..=16_777_216).unwrap_or(base.vocab_size),
            hidden_size: section.size("hidden_size", wide.clone()).unwrap_or(base.hidden_size),
            num_hidden_layers: section.size("num_hidden_layers", 1..=4096).unwrap_or(base.num_hidden_layers),
            num_attention_heads: section.size("num_attention_heads", 1..=1024).unwrap_or(base.num_attention_heads),
            intermediate_size: section.size("intermediate_size", 1..=16_777_216).unwrap_or(base.intermediate_size),
            max_position_embeddings: section
                .size("max_position_embeddings", 2..=1_048_576)
                .unwrap_or(base.max_position_embeddings),
            type_vocab_size: section.size("type_vocab_size", 0..=1024).unwrap_or(base.type_vocab_size),
            hidden_act: section.choice("hidden_act").unwrap_or(base.hidden_act),
            layer_norm_eps: section.number("layer_norm_eps", Range::above(0.0, 1.0)).unwrap_or(base.layer_norm_eps),
            hidden_dropout_prob: section
                .number("hidden_dropout_prob", share)
                .map_or(base.hidden_dropout_prob, |n| n as f32),
            attention_probs_dropout_prob: section
                .number("attention_probs_dropout_prob", share)
                .map_or(base.attention_probs_dropout_prob, |n| n as f32),
            classifier_dropout: section.number("classifier_dropout", share).map(|n| n as f32),
            pad_token_id: section.size("pad_token_id", 0..=16_777_215).unwrap_or(base.pad_token_id),
            initializer_range: section
                .number("initializer_range", Range::closed(0.0, 10.0))
                .unwrap_or(base.initializer_range),
            num_labels: section.size("num_labels", 1..=1_000_000).unwrap_or(base.num_labels),
            problem_type: section.choice("problem_type").unwrap_or(base.problem_type),
            position_buckets: section.size("position_buckets", 1..=65_536).or(base.position_buckets),
            max_relative_positions: section
                .size("max_relative_positions", 1..=1_048_576)
                .or(base.max_relative_positions),
        }
    }

    /// Tokens of the longest text: RoBERTa keeps the first positions for padding.
    pub fn longest(&self) -> usize {
        match self.kind {
            EncoderKind::Roberta | EncoderKind::XlmRoberta => {
                self.max_position_embeddings.saturating_sub(self.pad_token_id + 1)
            }
            _ => self.max_position_embeddings,
        }
    }
}

impl Family for Encoder {
    fn check(&self, section: &Section<'_>) {
        check_divides(section, "num_attention_heads", self.num_attention_heads, self.hidden_size, "hidden_size");
    }

    fn tasks(&self) -> &'static [Task] {
        &[Task::Classify]
    }

    fn input(&self) -> Input {
        Input::Tokens { max_length: self.longest(), vocab: self.vocab_size }
    }

    fn parameters(&self) -> Option<u64> {
        let (d, f) = (self.hidden_size, self.intermediate_size);
        let layer = sum_of_products(&[&[4, d, d], &[2, d, f], &[f], &[9, d]])?;
        let layers = layer.checked_mul(self.num_hidden_layers as u64)?;
        let ends = sum_of_products(&[
            &[self.vocab_size, d],
            &[self.max_position_embeddings, d],
            &[self.type_vocab_size, d],
            &[2, d],
            &[d, d],
            &[d],
            &[d, self.num_labels],
            &[self.num_labels],
        ])?;
        layers.checked_add(ends)
    }

    fn largest_value(&self) -> Option<u64> {
        let (t, d) = (self.max_position_embeddings, self.hidden_size);
        let rows = sum_of_products(&[&[t, self.intermediate_size.max(d.checked_mul(3)?)]])?;
        Some(rows.max(sum_of_products(&[&[self.num_attention_heads, t, t]])?))
    }

    fn groups(&self) -> usize {
        self.num_attention_heads
    }

    fn needs_whole_batch(&self) -> bool {
        false
    }
}
