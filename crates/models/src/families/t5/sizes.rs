//! t5: encoder and decoder with relative position bias. Keys are those of Hugging Face's config.json.

use serde::Serialize;
use serde_json::{Value, json};

use crate::families::Task;
use crate::families::counting::sum_of_products;
use crate::families::origin::HubSizes;
use crate::families::{FamilyName, Input, Origin, Sizes};
use crate::hf::{Checkpoint, HfError};
use crate::reading::about::{About, about};
use crate::reading::config::ConfigKeys;
use crate::reading::keys::Keys;
use crate::reading::section::{Range, Section};
use plimsoll_base::named;

named! {
    pub enum FeedForward {
        Relu = "relu",
        GatedGelu = "gated-gelu",
        GatedSilu = "gated-silu",
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct T5 {
    #[serde(flatten)]
    pub origin: Origin,
    pub vocab_size: usize,
    pub d_model: usize,
    /// Width of one head.
    pub d_kv: usize,
    pub d_ff: usize,
    pub num_layers: usize,
    pub num_decoder_layers: usize,
    pub num_heads: usize,
    pub relative_attention_num_buckets: usize,
    pub relative_attention_max_distance: usize,
    pub dropout_rate: f32,
    pub layer_norm_epsilon: f64,
    pub initializer_factor: f64,
    pub feed_forward_proj: FeedForward,
    /// The output head is the embedding. With a checkpoint, the tensors present decide.
    pub tie_word_embeddings: bool,
    /// The decoder's output times 1/√d_model before the head.
    pub scale_decoder_outputs: bool,
    pub pad_token_id: usize,
    pub eos_token_id: usize,
    pub decoder_start_token_id: usize,
}

/// What each key means.
const ABOUT: &[About] = &[
    about("model.vocab_size", "Tokens of the vocabulary."),
    about("model.d_model", "Width of the hidden state."),
    about("model.d_kv", "Width of one head."),
    about("model.d_ff", "Width of the feed-forward part."),
    about("model.num_layers", "Layers of the encoder, and of the decoder unless `num_decoder_layers` is written."),
    about("model.num_decoder_layers", "Layers of the decoder."),
    about("model.num_heads", "Attention heads."),
    about("model.relative_attention_num_buckets", "Buckets of relative positions."),
    about("model.relative_attention_max_distance", "Relative positions beyond this share the last bucket."),
    about("model.dropout_rate", "The share of values that dropout takes away."),
    about("model.layer_norm_epsilon", "Added to the mean square in layer norms."),
    about("model.initializer_factor", "Scales the first weights."),
    about("model.feed_forward_proj", "The feed-forward part: plain, or gated as from version 1.1 on."),
    about("model.tie_word_embeddings", "The output head is the embedding; with a checkpoint its tensors decide."),
    about(
        "model.scale_decoder_outputs",
        "Multiplies the decoder's output by 1/√d_model before the head; unless written as `tie_word_embeddings`.",
    ),
    about("model.pad_token_id", "The id of the padding token."),
    about("model.eos_token_id", "The id of the token that ends a text."),
    about("model.decoder_start_token_id", "The id of the token that the decoder starts from."),
];

impl T5 {
    /// Sizes of t5-small, which are also what transformers takes for the keys that a config.json leaves out.
    pub(super) fn defaults() -> Self {
        Self {
            origin: Origin::default(),
            vocab_size: 32_128,
            d_model: 512,
            d_kv: 64,
            d_ff: 2048,
            num_layers: 6,
            num_decoder_layers: 6,
            num_heads: 8,
            relative_attention_num_buckets: 32,
            relative_attention_max_distance: 128,
            dropout_rate: 0.1,
            layer_norm_epsilon: 1e-6,
            initializer_factor: 1.0,
            feed_forward_proj: FeedForward::Relu,
            tie_word_embeddings: true,
            scale_decoder_outputs: true,
            pad_token_id: 0,
            eos_token_id: 1,
            decoder_start_token_id: 0,
        }
    }
}

impl HubSizes for T5 {
    const FREE: &'static [&'static str] =
        &["dropout_rate", "initializer_factor", "eos_token_id", "decoder_start_token_id"];

    fn family(&self) -> FamilyName {
        FamilyName::T5
    }

    fn origin_mut(&mut self) -> &mut Origin {
        &mut self.origin
    }

    fn preset(&self, name: &str) -> Option<Self> {
        Self::of_preset(name)
    }

    /// Whether the head is tied is decided by the tensors (a copy of the embedding is none of its own where the file says
    /// that it is tied); scaling by `scale_decoder_outputs` or else by what
    /// `tie_word_embeddings` says, which older files use for both.
    fn config(&self, keys: &ConfigKeys<'_>, checkpoint: Option<&Checkpoint>) -> Result<Self, HfError> {
        let read = Self::defaults().overlay(keys);
        refuse_unsupported(&read, keys);
        let tied_by_key = keys.flag("tie_word_embeddings").unwrap_or(true);
        Ok(Self {
            tie_word_embeddings: checkpoint.map_or(Ok(tied_by_key), |c| is_tied(c, tied_by_key))?,
            scale_decoder_outputs: keys.flag("scale_decoder_outputs").unwrap_or(tied_by_key),
            ..read
        })
    }

    fn overlay(self, keys: &impl Keys) -> Self {
        let wide = 1..=65_536;
        let layers = keys.size("num_layers", 1..=4096);
        let tied = keys.flag("tie_word_embeddings");
        let symmetric = layers.filter(|_| self.num_layers == self.num_decoder_layers);
        // Spelled-out sizes follow the first T5, which scales exactly when it ties; a preset or file says both.
        let scaled = tied.filter(|_| self.origin == Origin::default()).unwrap_or(self.scale_decoder_outputs);
        Self {
            vocab_size: keys.size("vocab_size", 2..=16_777_216).unwrap_or(self.vocab_size),
            d_model: keys.size("d_model", wide.clone()).unwrap_or(self.d_model),
            d_kv: keys.size("d_kv", wide).unwrap_or(self.d_kv),
            d_ff: keys.size("d_ff", 1..=16_777_216).unwrap_or(self.d_ff),
            num_layers: layers.unwrap_or(self.num_layers),
            num_decoder_layers: keys
                .size("num_decoder_layers", 1..=4096)
                .or(symmetric)
                .unwrap_or(self.num_decoder_layers),
            num_heads: keys.size("num_heads", 1..=1024).unwrap_or(self.num_heads),
            relative_attention_num_buckets: keys
                .size("relative_attention_num_buckets", 2..=65_536)
                .unwrap_or(self.relative_attention_num_buckets),
            relative_attention_max_distance: keys
                .size("relative_attention_max_distance", 2..=1_048_576)
                .unwrap_or(self.relative_attention_max_distance),
            dropout_rate: keys.dropout("dropout_rate").unwrap_or(self.dropout_rate),
            layer_norm_epsilon: keys
                .number("layer_norm_epsilon", Range::above(0.0, 1.0))
                .unwrap_or(self.layer_norm_epsilon),
            initializer_factor: keys
                .number("initializer_factor", Range::closed(0.0, 1e3))
                .unwrap_or(self.initializer_factor),
            feed_forward_proj: keys.choice("feed_forward_proj").unwrap_or(self.feed_forward_proj),
            tie_word_embeddings: tied.unwrap_or(self.tie_word_embeddings),
            scale_decoder_outputs: keys.flag("scale_decoder_outputs").unwrap_or(scaled),
            pad_token_id: keys.size("pad_token_id", 0..=16_777_215).unwrap_or(self.pad_token_id),
            eos_token_id: keys.size("eos_token_id", 0..=16_777_215).unwrap_or(self.eos_token_id),
            decoder_start_token_id: keys
                .size("decoder_start_token_id", 0..=16_777_215)
                .unwrap_or(self.decoder_start_token_id),
            origin: self.origin,
        }
    }
}

/// Other tools write a tied head out as a copy.
fn is_tied(checkpoint: &Checkpoint, tied_by_key: bool) -> Result<bool, HfError> {
    const HEAD: &str = "lm_head.weight";
    if !checkpoint.has(HEAD) {
        return Ok(true);
    }
    let names = ["shared.weight", "decoder.embed_tokens.weight", "encoder.embed_tokens.weight"];
    match names.into_iter().find(|name| checkpoint.has(name)) {
        Some(embedding) if tied_by_key => checkpoint.is_same(HEAD, embedding),
        _ => Ok(false),
    }
}

/// What a config.json says of the feed-forward part beside its name counts in transformers; texts end by one token.
fn refuse_unsupported(read: &T5, keys: &ConfigKeys<'_>) {
    let (gated, act) = read.feed_forward_proj.parts();
    let spellings: &[&str] = match act {
        "gelu_new" => &["gelu_new", "gelu_pytorch_tanh", "gelu_fast"],
        "silu" => &["silu", "swish"],
        _ => &["relu"],
    };
    keys.only("dense_act_fn", json!(act), &spellings.iter().map(|name| json!(name)).collect::<Vec<_>>());
    keys.only("is_gated_act", json!(gated), &[json!(gated)]);
    if let Some(Value::Array(ids)) =
        keys.get("eos_token_id").filter(|ids| ids.as_array().is_some_and(|ids| ids.len() > 1))
    {
        keys.report("eos_token_id", format!("{} tokens that end a text are not supported, only one", ids.len()));
    }
}

impl FeedForward {
    /// Whether it is gated, and its activation in the words of transformers.
    pub(super) fn parts(self) -> (bool, &'static str) {
        match self {
            FeedForward::Relu => (false, "relu"),
            FeedForward::GatedGelu => (true, "gelu_new"),
            FeedForward::GatedSilu => (true, "silu"),
        }
    }
}

/// Positions are relative, so no length is too long for the model; this is where a typing error is assumed.
pub(super) const LONGEST: usize = 1 << 16;

impl Sizes for T5 {
    fn check(&self, section: &Section<'_>) {
        let tokens = [
            ("pad_token_id", self.pad_token_id),
            ("eos_token_id", self.eos_token_id),
            ("decoder_start_token_id", self.decoder_start_token_id),
        ];
        for (key, id) in tokens.into_iter().filter(|(_, id)| *id >= self.vocab_size) {
            let cause = format!("{id} is outside of the vocabulary of {}", self.vocab_size);
            section.refuse(key, cause, format!("an id below {}", self.vocab_size));
        }
        let (buckets, distance) = (self.relative_attention_num_buckets, self.relative_attention_max_distance);
        // Half of the decoder's buckets, a quarter of the encoder's, stand for one distance each.
        if buckets < 4 || distance <= buckets / 2 {
            let cause = format!("{buckets} buckets do not go with a largest distance of {distance}");
            let hint = format!("at least 4 buckets, and a relative_attention_max_distance above {}", buckets / 2);
            section.refuse("relative_attention_num_buckets", cause, hint);
        }
    }

    fn about(&self) -> &'static [About] {
        ABOUT
    }

    fn tasks(&self) -> &'static [Task] {
        &[Task::Seq2seq]
    }

    fn input(&self) -> Input {
        Input::Tokens { max_length: LONGEST, vocab: self.vocab_size }
    }

    fn parameters(&self) -> Option<u64> {
        let (d, inner) = (self.d_model, self.num_heads.checked_mul(self.d_kv)?);
        let gates = if self.feed_forward_proj == FeedForward::Relu { 2 } else { 3 };
        let attention = sum_of_products(&[&[4, d, inner], &[d]])?;
        let ffn = sum_of_products(&[&[gates, d, self.d_ff], &[d]])?;
        let encoder = attention.checked_add(ffn)?.checked_mul(self.num_layers as u64)?;
        let decoder = attention.checked_mul(2)?.checked_add(ffn)?.checked_mul(self.num_decoder_layers as u64)?;
        let tables = if self.tie_word_embeddings { 1 } else { 2 };
        let ends = sum_of_products(&[
            &[tables, self.vocab_size, d],
            &[2, d],
            &[2, self.relative_attention_num_buckets, self.num_heads],
        ])?;
        encoder.checked_add(decoder)?.checked_add(ends)
    }

    fn largest_value(&self) -> Option<u64> {
        sum_of_products(&[&[self.vocab_size.max(self.d_ff.checked_mul(2)?)]])
    }

    fn groups(&self) -> usize {
        self.num_heads
    }
}
