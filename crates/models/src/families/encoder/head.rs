//! The classifier on the first token.

use super::{Encoder, EncoderKind};
use crate::families::Build;
use crate::families::layers::*;
use plimsoll_core::graph::{Graph, GraphError, ValueId};
use plimsoll_core::ops::*;

impl Encoder {
    /// (B, D) → (B, labels).
    pub(super) fn logits(&self, g: &mut Graph, build: &Build, x: ValueId) -> Result<ValueId, GraphError> {
        let (batch, width, labels) = (build.batch, self.hidden_size, self.num_labels);
        let p = self.classifier_dropout.unwrap_or(self.hidden_dropout_prob);
        let drop = |g: &mut Graph, name: &str, x: ValueId| dropout(g, name, x, p, batch, build.training);
        let start = self.start();
        let pool = |g: &mut Graph, name: &str, x: ValueId, act: Activation| {
            dense_activated(g, name, x, width, start, act, build.training)
        };
        match self.kind {
            EncoderKind::Bert => {
                let x = pool(g, "bert.pooler.dense", x, Activation::Tanh)?;
                let x = drop(g, "dropout", x)?;
                dense(g, "classifier", x, labels, start)
            }
            EncoderKind::Roberta | EncoderKind::XlmRoberta => g.scope("classifier", |g| {
                let x = drop(g, "dropout", x)?;
                let x = pool(g, "dense", x, Activation::Tanh)?;
                let x = drop(g, "dropout.2", x)?;
                dense(g, "out_proj", x, labels, start)
            }),
            EncoderKind::DebertaV3 => {
                let before = self.pooler_dropout.unwrap_or(0.0);
                let x = dropout(g, "pooler.dropout", x, before, batch, build.training)?;
                let x = pool(g, "pooler.dense", x, Activation::Gelu)?;
                let x = drop(g, "dropout", x)?;
                dense(g, "classifier", x, labels, start)
            }
        }
    }
}
