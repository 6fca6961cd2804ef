//! Model families: one folder each, with sizes, graph, files, presets and what calibration trains, behind one trait and
//! one line in `model.rs`.

mod attention;
mod capabilities;
mod clip;
mod counting;
mod distilbert;
mod encoder;
mod hybrid_cnn_lstm;
mod labels;
pub mod layers;
mod model;
mod mu_sota;
mod origin;
mod presets;
mod t5;
mod task;
#[cfg(test)]
mod testing;
mod texts;
mod workloads;

pub use attention::{AttentionInputs, BiasInputs, attention};
pub use capabilities::{
    Classifier, Contrast, Decoder, GenerationShape, Halves, Images, ProblemType, Tokens, generation_names,
};
pub use clip::{Clip, ClipText, ClipVision};
pub use distilbert::DistilBert;
pub use encoder::{Encoder, EncoderKind};
pub use hybrid_cnn_lstm::{BatchNormMode, HybridCnnLstm};
pub use layers::HiddenAct;
pub(crate) use model::ABOUT;
pub use model::{FamilyName, Model};
pub use mu_sota::MuSota;
pub use origin::{Origin, family_in};
pub(crate) use presets::of_family as presets_of;
pub use presets::{Preset, presets, smaller_siblings};
pub use t5::{FeedForward, T5};
pub use task::Task;
pub use workloads::Workload;

pub use crate::hf::HuggingFace;
use crate::reading::about::About;
use crate::reading::section::Section;
use plimsoll_base::named;
use plimsoll_core::graph::{Graph, GraphError, ValueId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt::Debug;
use std::path::Path;
use workloads::Workloads;

/// What the rest of the recipe must know about a family's sizes.
pub trait Sizes {
    /// Reports sizes that do not go together.
    fn check(&self, _section: &Section<'_>) {}

    /// What each key of its sizes means.
    fn about(&self) -> &'static [About] {
        &[]
    }

    /// Tasks it can learn; the first is the default.
    fn tasks(&self) -> &'static [Task];

    /// What one sample looks like.
    fn input(&self) -> Input;

    /// Trained numbers; `None` beyond `u64`.
    fn parameters(&self) -> Option<u64>;

    /// Numbers in the largest value that one sample makes on its way through the model; `None` beyond `u64`.
    fn largest_value(&self) -> Option<u64>;

    /// How many blocks or heads `memory.block_group` can divide.
    fn groups(&self) -> usize;

    /// How many heads its attention can have at its width, in rising order; `None` where any number will do, or where
    /// there is more than one width.
    fn possible_heads(&self) -> Option<Vec<usize>> {
        None
    }

    /// Over what batch norm takes its statistics; `None` without any. Over the effective batch, it cannot be split.
    fn batch_norm(&self) -> Option<BatchNormMode> {
        None
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    Series { features: usize, window: usize, classes: usize },
    Tokens { max_length: usize, vocab: usize },
    Images { channels: usize, side: usize, max_length: usize, vocab: usize },
}

named! {
    /// How attention is computed.
    #[deny(missing_docs)]
    #[derive(JsonSchema)]
    #[schemars(rename_all = "lowercase")]
    pub enum AttentionForm {
        /// The T × T scores exist as a value.
        Materialized = "materialized",
        /// The scores are never stored.
        Fused = "fused",
    }
}

/// How a feed-forward is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeedForwardForm {
    /// Its hidden values exist as a value.
    #[default]
    Plain,
    /// They are never stored.
    Fused,
}

/// What one forward graph is built for. Nothing here changes what is learned, except `training`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Build {
    /// Samples in the batch.
    pub batch: usize,
    /// Steps of a series, tokens of a text.
    pub length: usize,
    /// Tokens that the decoder writes; 0 for families without one.
    pub target_length: usize,
    /// Dropout and batch statistics on.
    pub training: bool,
    pub attention: AttentionForm,
    /// Blocks computed at a time (mu-sota).
    pub block_group: usize,
    /// Tokens of the loss head computed at a time.
    pub loss_chunk: usize,
    pub feed_forward: FeedForwardForm,
}

/// What a forward graph gives.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// Σ weight · loss over the batch's samples or tokens.
    pub loss: ValueId,
    /// Σ weight · [right answer], where answers are right or wrong.
    pub correct: Option<ValueId>,
    /// One row per sample, where they are few.
    pub logits: Option<ValueId>,
}

/// How a family of the list is made. One type may stand behind several names.
pub(crate) trait Listed: Family + Sized {
    /// In its usual sizes.
    fn usual(name: FamilyName) -> Self;

    /// As a recipe says; paths start at `folder`.
    fn read(name: FamilyName, section: &Section<'_>, folder: &Path) -> Self;

    /// The names of its presets, those of one model together.
    fn presets(_name: FamilyName) -> Vec<presets::Names> {
        Vec::new()
    }

    /// What calibration trains of it.
    fn workloads(name: FamilyName) -> Workloads;
}

/// An architecture at some size. `Send + Sync`: the page and the search plan from several threads.
pub trait Family: Sizes + Debug + Send + Sync {
    /// The forward pass up to the loss. Declares its own inputs.
    fn forward(&self, graph: &mut Graph, build: &Build) -> Result<Outputs, GraphError>;

    /// The forward pass for one position of a text: logits of the next token. `None` if it writes no text.
    fn next_token(&self, _graph: &mut Graph, _build: &Build) -> Option<Result<ValueId, GraphError>> {
        None
    }

    /// Embeddings of texts, (B, D), which need no head; `None` if it makes none.
    fn text_embedding(&self, _graph: &mut Graph, _build: &Build) -> Option<Result<ValueId, GraphError>> {
        None
    }

    /// Names in Hugging Face's files; `None` for families that are ours alone.
    fn hugging_face(&self) -> Option<HuggingFace> {
        None
    }

    /// The keys of its config.json, laid over those of the checkpoint it came from; `labels` names the classes.
    fn config_json(&self, _config: &mut Map<String, Value>, _labels: &[String]) {}

    /// Where a Hugging Face model comes from.
    fn origin(&self) -> Option<&Origin> {
        None
    }

    /// What can be halved where nothing else fits, by key.
    fn halves(&self) -> Halves {
        Halves::default()
    }

    /// How transformers makes it; `None` for families that it does not know.
    fn transformers_class(&self) -> Option<&'static str> {
        None
    }

    /// Whether PyTorch computes its attention without storing the scores.
    fn has_sdpa(&self) -> bool {
        true
    }

    /// What it answers about texts, where it has a head that classifies them.
    fn classifier(&self) -> Option<Classifier> {
        None
    }

    /// A loss that compares the samples of a batch with each other: its micro-batches are accumulated by embeddings, not
    /// by adding their losses.
    fn contrast(&self) -> Option<&dyn Contrast> {
        None
    }

    /// What writes texts token by token over a cache of keys and values.
    fn decoder(&self) -> Option<&dyn Decoder> {
        None
    }

    /// Layers that can be recomputed one by one.
    fn layers(&self) -> usize;

    /// Rows of the loss per sample: 1, or tokens.
    fn rows_per_sample(&self, length: usize) -> usize;

    /// How many blocks can be grouped; 1 where there are none.
    fn blocks(&self) -> usize {
        1
    }

    /// Whether the loss head can be computed in chunks.
    fn has_loss_chunks(&self) -> bool {
        false
    }

    /// Whether it has feed-forwards that the CUDA kernels can fuse.
    fn has_fused_feed_forward(&self) -> bool {
        false
    }

    /// Whether attention has forms to choose from: none without attention, and none where a bias goes with the scores.
    fn has_attention_forms(&self) -> bool {
        true
    }
}
