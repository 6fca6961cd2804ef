//! The classifier on the first token, and what it learns.

use super::{Encoder, EncoderKind};
use crate::families::ProblemType;
use crate::families::layers::*;
use crate::families::{Build, Outputs};
use plimsoll_core::graph::{Graph, GraphError, ValueId};
use plimsoll_core::ops::*;
use plimsoll_core::types::{DType, Type};

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
            // The pooler of DeBERTa-v3's checkpoints drops nothing in front of it.
            EncoderKind::DebertaV3 => {
                let x = pool(g, "pooler.dense", x, Activation::Gelu)?;
                let x = drop(g, "dropout", x)?;
                dense(g, "classifier", x, labels, start)
            }
        }
    }

    pub(super) fn loss(&self, g: &mut Graph, build: &Build, logits: ValueId) -> Result<Outputs, GraphError> {
        let rows = [build.batch];
        let weight = g.data("weight", Type::new(g.float.wide(), &rows))?;
        let against = |g: &mut Graph, loss: LabelLoss| {
            let labels = g.data("labels", Type::new(g.float.wide(), &[build.batch, self.num_labels]))?;
            let loss = g.apply("loss", loss, &[logits, labels, weight])?;
            Ok(Outputs { loss, correct: None, logits: Some(logits) })
        };
        match self.problem_type {
            ProblemType::Single => {
                let label = g.data("label", Type::new(DType::I32, &rows))?;
                let head = classify(g, logits, label, weight)?;
                Ok(Outputs { loss: head.loss, correct: Some(head.correct), logits: Some(logits) })
            }
            ProblemType::Multi => against(g, LabelLoss::BinaryCrossEntropy),
            ProblemType::Regression => against(g, LabelLoss::SquaredError),
        }
    }
}
