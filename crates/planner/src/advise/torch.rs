//! What a training step needs in PyTorch. Weights, gradients and optimizer state are exact. Activations are what
//! autograd saves, op by op, as PyTorch and transformers write these modules; the rules reproduce measured peaks (see
//! the tests). Nothing here describes plimsoll, which keeps less.

mod saved;

pub(super) use saved::{element_widths, packed, scores_bytes, scores_shape};

use crate::choose;
use plimsoll_core::graph::{Graph, GraphError, Value};
use plimsoll_core::types::DType;
use plimsoll_models::families::{AttentionForm, Build, Family, FeedForwardForm};
use plimsoll_models::recipe::{self, Precision, Recipe};
use serde::Serialize;

/// How attention is computed there.
#[deny(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attention {
    /// One fused kernel, where the model has it and its heads are wide enough.
    Sdpa,
    /// Scores, softmax and dropout one after the other.
    Eager,
}

/// Optimizers whose state is counted.
#[deny(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Optimizer {
    /// Two moments in f32.
    AdamW,
    /// Moments of one byte each.
    AdamW8bit,
    /// Moments of rows and columns.
    Adafactor,
    /// No state.
    Sgd,
    /// One moment in f32.
    SgdMomentum,
}

/// One way to run the step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TorchSetup {
    pub batch: usize,
    pub length: usize,
    pub target_length: usize,
    pub precision: Precision,
    pub attention: Attention,
    pub checkpointing: bool,
    /// Several micro-batches per update: gradients are there from the second on.
    pub accumulates: bool,
    pub optimizer: Optimizer,
    /// Whether AdamW is PyTorch's default one, which makes temporaries as large as the weights, rather than fused.
    pub foreach: bool,
}

/// Bytes in tensors at the peak, and what they are.
#[deny(missing_docs)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Need {
    /// The parameters, in the precision that they are kept in.
    pub weights_bytes: u64,
    /// Those that are there at the peak.
    pub gradients_bytes: u64,
    /// Moments.
    pub optimizer_bytes: u64,
    /// What autograd saved, the batch itself, and casts of weights.
    pub activations_bytes: u64,
    /// Values that come and go around the peak, logits among them.
    pub passing_bytes: u64,
    /// What the estimate is made larger by, so that it errs on the safe side.
    pub margin_bytes: u64,
    /// Numbers that are trained, or frozen: how many, not bytes.
    pub parameters: u64,
}

/// Blocks of PyTorch's allocator are not all full: the measured runs reserved 1 to 8 % more than they used at sizes
/// that matter (small models up to 40 %, of little).
const CACHE_SHARE: f64 = 0.08;

/// CUDA's context with PyTorch's kernels: 767 to 785 MiB on an H200.
const CONTEXT_BYTES: u64 = 770 << 20;

impl Need {
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.tensor_bytes() + self.margin_bytes
    }

    fn tensor_bytes(&self) -> u64 {
        self.weights_bytes + self.gradients_bytes + self.optimizer_bytes + self.activations_bytes + self.passing_bytes
    }

    /// What the card must have: tensors, what the allocator keeps beside them, the process's context.
    pub(crate) fn card_bytes(&self) -> u64 {
        let allocated = self.allocated_bytes();
        allocated + (allocated as f64 * CACHE_SHARE) as u64 + CONTEXT_BYTES
    }
}

/// A recipe's model as PyTorch would train it.
pub struct Torch {
    family: Box<dyn Family>,
}

impl Torch {
    pub fn new(recipe: &Recipe) -> Torch {
        Torch { family: choose::family(&recipe.model) }
    }

    pub fn family(&self) -> &dyn Family {
        self.family.as_ref()
    }

    /// The forward pass of a whole batch, nothing chunked.
    pub fn graph(&self, shape: &TorchSetup, form: AttentionForm) -> Result<Graph, GraphError> {
        let mut graph = Graph::new("pytorch", DType::F32);
        let build = Build {
            batch: shape.batch,
            length: shape.length,
            target_length: shape.target_length,
            training: true,
            attention: form,
            block_group: self.family.blocks(),
            loss_chunk: usize::MAX,
            feed_forward: FeedForwardForm::Plain,
        };
        self.family.forward(&mut graph, &build)?;
        refuse_absurd(&graph)?;
        Ok(graph)
    }

    pub(crate) fn need(&self, shape: &TorchSetup) -> Result<Need, GraphError> {
        Ok(saved::need(&self.graph(shape, AttentionForm::Fused)?, shape))
    }
}

/// No step is larger; below it no product and no sum here comes near to overflow.
pub(super) const MOST_BYTES: u64 = 1 << 50;

fn refuse_absurd(graph: &Graph) -> Result<(), GraphError> {
    let bytes = |value: &Value| 8 * value.ty.elements() as u128;
    let Some(largest) = graph.values().iter().max_by_key(|value| bytes(value)) else { return Ok(()) };
    match graph.values().iter().map(bytes).sum::<u128>() > u128::from(MOST_BYTES) {
        true => Err(GraphError::TooLarge { name: largest.name.to_string(), ty: largest.ty.to_string() }),
        false => Ok(()),
    }
}

impl Optimizer {
    pub(crate) fn of(rule: &recipe::Rule) -> Optimizer {
        match rule {
            recipe::Rule::AdamW { .. } => Optimizer::AdamW,
            recipe::Rule::Sgd { momentum } if *momentum > 0.0 => Optimizer::SgdMomentum,
            recipe::Rule::Sgd { .. } => Optimizer::Sgd,
            recipe::Rule::Adafactor => Optimizer::Adafactor,
        }
    }
}

#[cfg(test)]
mod tests;
