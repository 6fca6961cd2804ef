//! How good a model was.

use serde::{Deserialize, Serialize};

/// What an evaluation found. Means over the samples or tokens of a dataset; what a task does not have is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    pub loss: f64,
    /// Share of right answers: labels, next tokens, or for several labels per text the share of texts with all right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// The mean of the classes' F1: a class that is never right counts as much as the most frequent one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f1: Option<f64>,
    /// Pearson's correlation of answers and truth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pearson: Option<f64>,
    /// Spearman's: the correlation of ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spearman: Option<f64>,
}

impl std::fmt::Display for Scores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "loss {:.4}", self.loss)?;
        self.accuracy.map_or(Ok(()), |x| write!(f, ", accuracy {:.1} %", 100.0 * x))?;
        self.f1.map_or(Ok(()), |x| write!(f, ", F1 {x:.3}"))?;
        self.pearson.map_or(Ok(()), |x| write!(f, ", correlation {x:.3}"))?;
        self.spearman.map_or(Ok(()), |x| write!(f, ", of ranks {x:.3}"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    pub step: usize,
    #[serde(flatten)]
    pub scores: Scores,
}
