//! Model families: functions from sizes, batch and length to a graph.

mod attention;
mod clip;
mod encoder;
mod hybrid;
pub mod layers;
mod mu_sota;
mod t5;

pub use attention::{AttentionInputs, BiasInputs, attention};
pub use clip::Clip;
pub use encoder::Encoder;
pub use hybrid::HybridCnnLstm;
pub use mu_sota::MuSota;
pub use t5::names as generation_names;
pub use t5::{GenerationShape, T5};

use plimsoll_core::graph::{Graph, GraphError, ValueId};
use serde::{Deserialize, Serialize};

/// How attention is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttentionForm {
    /// The T × T scores exist as a value.
    Materialized,
    /// The scores are never stored.
    Fused,
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

/// How a family's tensors are called in Hugging Face's files. A parameter's name is the tensor's own; one that packs
/// several along its first dimension names them in braces: `attention.self.{query,key,value}.weight`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HuggingFace {
    /// `architectures` in config.json.
    pub architecture: &'static str,
    /// `model_type` in config.json.
    pub model_type: &'static str,
    /// What a checkpoint of the bare model leaves out in front of its names: `bert.`
    pub prefix: &'static str,
    /// Other names of the same tensor: (`lm_head.weight`, `shared.weight`).
    pub aliases: &'static [(&'static str, &'static str)],
    /// Beginnings of names (with the prefix) that are read over: buffers, heads of other tasks.
    pub ignored: &'static [&'static str],
    /// Beginnings of names that a checkpoint may lack: a fresh head starts at random.
    pub fresh: &'static [&'static str],
}

/// An architecture. `Send + Sync`: the page and the search plan from several threads.
pub trait Family: Send + Sync {
    /// The forward pass up to the loss. Declares its own inputs.
    fn forward(&self, graph: &mut Graph, build: &Build) -> Result<Outputs, GraphError>;

    /// The forward pass for one position of a text: logits of the next token. `None` if it writes no text.
    fn next_token(&self, _graph: &mut Graph, _build: &Build) -> Option<Result<ValueId, GraphError>> {
        None
    }

    /// Names in Hugging Face's files; `None` for families that are ours alone.
    fn hugging_face(&self) -> Option<HuggingFace> {
        None
    }

    /// The towers of a family whose loss compares the samples of a batch with each other: its micro-batches are
    /// accumulated as `train::contrastive` does, not by adding their losses.
    fn contrastive(&self) -> Option<&Clip> {
        None
    }

    /// The encoder–decoder, where it is one: it writes texts with a cache of keys and values.
    fn writer(&self) -> Option<&T5> {
        None
    }

    /// Whether statistics over the batch make the micro-batch part of what is learned.
    fn has_batch_statistics(&self) -> bool {
        false
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
