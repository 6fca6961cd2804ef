//! Heads that classify texts: what `num_labels` and `problem_type` say, and the loss that they decide.

use super::layers::classify;
use super::{Build, Outputs, ProblemType};
use crate::reading::config::ConfigKeys;
use crate::reading::keys::Keys;
use crate::reading::section::Section;
use plimsoll_core::graph::{Graph, GraphError, ValueId};
use plimsoll_core::ops::LabelLoss;
use plimsoll_core::types::{DType, Type};
use serde_json::Value;

/// How many labels, and what is learned of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Labels {
    pub count: usize,
    pub problem: ProblemType,
}

impl Labels {
    /// How many labels a config.json names, where it does.
    pub(super) fn listed(keys: &ConfigKeys<'_>) -> Option<usize> {
        keys.get("id2label").and_then(Value::as_object).map(|labels| labels.len()).filter(|&n| n > 0)
    }

    /// These labels with the keys laid over them. As in transformers: one number is a regression, several are classes,
    /// unless told otherwise.
    pub(super) fn overlay(self, keys: &impl Keys) -> Labels {
        let count = keys.size("num_labels", 1..=1_000_000).unwrap_or(self.count);
        let usual = match (self.count, count, self.problem) {
            (_, 1, ProblemType::Single) => ProblemType::Regression,
            (1, 2.., ProblemType::Regression) => ProblemType::Single,
            (_, _, problem) => problem,
        };
        Labels { count, problem: keys.choice("problem_type").unwrap_or(usual) }
    }

    pub(super) fn check(self, section: &Section<'_>) {
        if self.count == 1 && self.problem == ProblemType::Single {
            let cause = "a single label leaves nothing to choose from";
            section.refuse("num_labels", cause, "at least 2, or problem_type = \"regression\"");
        }
    }

    /// The loss of logits (B, labels). Declares the inputs `weight` and `label` or `labels`.
    pub(super) fn loss(self, g: &mut Graph, build: &Build, logits: ValueId) -> Result<Outputs, GraphError> {
        let rows = [build.batch];
        let weight = g.data("weight", Type::new(g.float.wide(), &rows))?;
        let against = |g: &mut Graph, loss: LabelLoss| {
            let labels = g.data("labels", Type::new(g.float.wide(), &[build.batch, self.count]))?;
            let loss = g.apply("loss", loss, &[logits, labels, weight])?;
            Ok(Outputs { loss, correct: None, logits: Some(logits) })
        };
        match self.problem {
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

/// Reports a padding token that no table has a row for.
pub(super) fn check_padding(section: &Section<'_>, padding: usize, vocabulary: usize) {
    if padding >= vocabulary {
        let cause = format!("{padding} is outside of the vocabulary of {vocabulary}");
        section.refuse("pad_token_id", cause, "the id of the padding token, often 0 or 1");
    }
}
