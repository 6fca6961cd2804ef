//! Encoders that classify texts: bert, roberta, xlm-roberta and deberta-v3. Keys are those of Hugging Face's config.json.

use serde::Serialize;
use serde_json::{Value, json};

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
use plimsoll_base::named;
use plimsoll_base::names::Named;

named! {
    pub enum EncoderKind {
        Bert = "bert",
        Roberta = "roberta",
        XlmRoberta = "xlm-roberta",
        DebertaV3 = "deberta-v3",
    }
}

impl EncoderKind {
    /// The kind that a family of this type is.
    pub(super) fn of(name: FamilyName) -> EncoderKind {
        *EncoderKind::ALL.iter().find(|kind| kind.family() == name).unwrap_or(&EncoderKind::Bert)
    }

    pub fn family(self) -> FamilyName {
        match self {
            Self::Bert => FamilyName::Bert,
            Self::Roberta => FamilyName::Roberta,
            Self::XlmRoberta => FamilyName::XlmRoberta,
            Self::DebertaV3 => FamilyName::DebertaV3,
        }
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
    /// DeBERTa: before its pooler; none given: nothing is dropped there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pooler_dropout: Option<f32>,
    pub pad_token_id: usize,
    pub initializer_range: f64,
    pub num_labels: usize,
    pub problem_type: ProblemType,
    /// DeBERTa: logarithmic buckets of relative positions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position_buckets: Option<usize>,
    /// DeBERTa: the furthest relative position; none given: `max_position_embeddings`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_relative_positions: Option<usize>,
}

/// What each key means.
const ABOUT: &[About] = &[
    about("model.vocab_size", "Tokens of the vocabulary."),
    about("model.hidden_size", "Width of the hidden state."),
    about("model.num_hidden_layers", "Layers."),
    about("model.num_attention_heads", "Attention heads; they divide `hidden_size`."),
    about("model.intermediate_size", "Width of the feed-forward part."),
    about("model.max_position_embeddings", "Positions the model knows; RoBERTa keeps the first ones for padding."),
    about("model.type_vocab_size", "Kinds of segments; 0 where the model has none."),
    about("model.hidden_act", "Activation of the feed-forward part."),
    about("model.layer_norm_eps", "Added to the variance in layer norms."),
    about("model.hidden_dropout_prob", "Dropout of embeddings and hidden states."),
    about("model.attention_probs_dropout_prob", "Dropout of attention probabilities."),
    about("model.classifier_dropout", "Dropout before the classifier.").unset("as `hidden_dropout_prob`"),
    about("model.pooler_dropout", "Dropout before the pooler.").unset("0"),
    about("model.pad_token_id", "The id of the padding token."),
    about("model.initializer_range", "Standard deviation of the first weights."),
    about("model.num_labels", "Outputs of the classifier."),
    about(
        "model.problem_type",
        "What the classifier learns: one class, any number of labels, or numbers; with `num_labels` = 1 a regression unless written.",
    ),
    about("model.position_buckets", "Logarithmic buckets of relative positions."),
    about("model.max_relative_positions", "The furthest relative position told apart.")
        .unset("as `max_position_embeddings`"),
];

impl Encoder {
    /// Sizes of the base model of each kind.
    pub(super) fn defaults(kind: EncoderKind) -> Self {
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
            pooler_dropout: None,
            pad_token_id: 0,
            initializer_range: 0.02,
            num_labels: 2,
            problem_type: ProblemType::Single,
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

    /// What transformers takes for the keys that a config.json leaves out.
    fn config_defaults(kind: EncoderKind) -> Self {
        let bert = Self::defaults(EncoderKind::Bert);
        match kind {
            EncoderKind::Bert => bert,
            EncoderKind::Roberta => Self { kind, vocab_size: 50_265, pad_token_id: 1, ..bert },
            EncoderKind::XlmRoberta => Self { kind, pad_token_id: 1, ..bert },
            EncoderKind::DebertaV3 => Self {
                hidden_size: 1536,
                num_hidden_layers: 24,
                num_attention_heads: 24,
                intermediate_size: 6144,
                position_buckets: None,
                ..Self::defaults(kind)
            },
        }
    }

    pub(super) fn labels(&self) -> Labels {
        Labels { count: self.num_labels, problem: self.problem_type }
    }

    /// Tokens of the longest text: RoBERTa keeps the first positions for padding.
    pub(crate) fn longest(&self) -> usize {
        match self.kind {
            EncoderKind::Roberta | EncoderKind::XlmRoberta => {
                self.max_position_embeddings.saturating_sub(self.pad_token_id + 1)
            }
            _ => self.max_position_embeddings,
        }
    }
}

impl HubSizes for Encoder {
    const FREE: &'static [&'static str] = &[
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "classifier_dropout",
        "pooler_dropout",
        "initializer_range",
        "num_labels",
        "problem_type",
    ];

    fn family(&self) -> FamilyName {
        self.kind.family()
    }

    fn origin_mut(&mut self) -> &mut Origin {
        &mut self.origin
    }

    fn preset(&self, name: &str) -> Option<Self> {
        Self::of_preset(self.kind, name)
    }

    fn config(&self, keys: &ConfigKeys<'_>, _: Option<&Checkpoint>) -> Result<Self, HfError> {
        refuse_unsupported(self.kind, keys);
        let base = Self::config_defaults(self.kind);
        let base = Self { num_labels: Labels::listed(keys).unwrap_or(base.num_labels), ..base };
        let read = base.overlay(keys);
        // DeBERTa's files have a word of their own for it, and transformers knows no other there.
        Ok(match self.kind {
            EncoderKind::DebertaV3 => Self { classifier_dropout: keys.dropout("cls_dropout"), ..read },
            _ => read,
        })
    }

    fn overlay(self, keys: &impl Keys) -> Self {
        let wide = 1..=65_536;
        let labels = self.labels().overlay(keys);
        Self {
            kind: self.kind,
            vocab_size: keys.size("vocab_size", 2..=16_777_216).unwrap_or(self.vocab_size),
            hidden_size: keys.size("hidden_size", wide).unwrap_or(self.hidden_size),
            num_hidden_layers: keys.size("num_hidden_layers", 1..=4096).unwrap_or(self.num_hidden_layers),
            num_attention_heads: keys.size("num_attention_heads", 1..=1024).unwrap_or(self.num_attention_heads),
            intermediate_size: keys.size("intermediate_size", 1..=16_777_216).unwrap_or(self.intermediate_size),
            max_position_embeddings: keys
                .size("max_position_embeddings", 2..=1_048_576)
                .unwrap_or(self.max_position_embeddings),
            type_vocab_size: keys.size("type_vocab_size", 0..=1024).unwrap_or(self.type_vocab_size),
            hidden_act: keys.choice("hidden_act").unwrap_or(self.hidden_act),
            layer_norm_eps: keys.number("layer_norm_eps", Range::above(0.0, 1.0)).unwrap_or(self.layer_norm_eps),
            hidden_dropout_prob: keys.dropout("hidden_dropout_prob").unwrap_or(self.hidden_dropout_prob),
            attention_probs_dropout_prob: keys
                .dropout("attention_probs_dropout_prob")
                .unwrap_or(self.attention_probs_dropout_prob),
            classifier_dropout: keys.dropout("classifier_dropout").or(self.classifier_dropout),
            pooler_dropout: match self.kind {
                EncoderKind::DebertaV3 => keys.dropout("pooler_dropout").or(self.pooler_dropout),
                _ => None,
            },
            pad_token_id: keys.size("pad_token_id", 0..=16_777_215).unwrap_or(self.pad_token_id),
            initializer_range: keys
                .number("initializer_range", Range::closed(0.0, 10.0))
                .unwrap_or(self.initializer_range),
            num_labels: labels.count,
            problem_type: labels.problem,
            position_buckets: keys.size("position_buckets", 1..=65_536).or(self.position_buckets),
            max_relative_positions: keys.size("max_relative_positions", 1..=1_048_576).or(self.max_relative_positions),
            origin: self.origin,
        }
    }
}

/// Variants that exist in config files and that the graph does not compute.
fn refuse_unsupported(kind: EncoderKind, keys: &ConfigKeys<'_>) {
    if kind != EncoderKind::DebertaV3 {
        keys.only("is_decoder", json!(false), &[json!(false)]);
        keys.only("position_embedding_type", json!("absolute"), &[json!("absolute")]);
        return;
    }
    keys.only("relative_attention", json!(false), &[json!(true)]);
    keys.only("share_att_key", json!(false), &[json!(true)]);
    keys.only("norm_rel_ebd", json!("none"), &[json!("layer_norm")]);
    keys.only("position_biased_input", json!(true), &[json!(false)]);
    keys.only("conv_kernel_size", json!(0), &[json!(0)]);
    keys.only("pooler_hidden_act", json!("gelu"), &[json!("gelu")]);
    let both = [json!("c2p|p2c"), json!("p2c|c2p"), json!(["c2p", "p2c"]), json!(["p2c", "c2p"])];
    keys.only("pos_att_type", json!([]), &both);
    if keys.get("position_buckets").and_then(Value::as_i64).is_none_or(|n| n <= 0) {
        keys.report("position_buckets", "only relative positions in buckets are supported, such as 256");
    }
    for (key, width) in [("embedding_size", "hidden_size"), ("pooler_hidden_size", "hidden_size")] {
        if keys.get(key).is_some_and(|v| Some(v) != keys.get(width)) {
            keys.report(key, format!("only the same as {width} is supported"));
        }
    }
}

impl Sizes for Encoder {
    fn check(&self, section: &Section<'_>) {
        check_divides(section, "num_attention_heads", self.num_attention_heads, self.hidden_size, "hidden_size");
        self.labels().check(section);
        if self.kind != EncoderKind::DebertaV3 {
            for key in ["position_buckets", "max_relative_positions", "pooler_dropout"] {
                section.not_with(key, format!("family {}", self.kind));
            }
        }
        let distance = self.max_relative_positions.unwrap_or(self.max_position_embeddings);
        if let Some(buckets) = self.position_buckets
            && self.kind == EncoderKind::DebertaV3
            && (buckets < 2 || distance <= buckets / 2 + 1)
        {
            let cause = format!("{buckets} buckets are too many for relative positions up to {distance}");
            section.refuse(
                "position_buckets",
                cause,
                format!("between 2 and {}", (2 * distance).saturating_sub(3).max(2)),
            );
        }
        if self.longest() < 2 {
            let cause = "no position is left beside those for padding";
            section.refuse("max_position_embeddings", cause, format!("at least {}", self.pad_token_id + 3));
        }
        check_padding(section, self.pad_token_id, self.vocab_size);
    }

    fn possible_heads(&self) -> Option<Vec<usize>> {
        Some(dividing(self.hidden_size).collect())
    }

    fn about(&self) -> &'static [About] {
        ABOUT
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
        let positions = match (self.kind, self.position_buckets) {
            // Relative positions, before and after, and the norm over their table.
            (EncoderKind::DebertaV3, buckets) => {
                let table = buckets.or(self.max_relative_positions).unwrap_or(self.max_position_embeddings);
                table.checked_mul(2)?.checked_add(2)?
            }
            _ => self.max_position_embeddings,
        };
        let ends = sum_of_products(&[
            &[self.vocab_size, d],
            &[positions, d],
            &[self.type_vocab_size, d],
            &[2, d],
            // pooler, or the dense layer of the head
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
}
