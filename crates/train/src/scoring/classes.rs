//! Scores of each class by itself, and which class was taken for which.

#![deny(missing_docs)]

use serde::Serialize;

/// How well one class is told.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassScore {
    /// As the data calls it.
    pub name: String,
    /// Of those claimed, the share that is; 0 where none is claimed.
    pub precision: f64,
    /// Of those that are, the share that is claimed; 0 where there are none.
    pub recall: f64,
    /// The harmonic mean of both.
    pub f1: f64,
    /// Samples that are of it.
    pub support: u64,
}

/// All classes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Classes {
    /// In the order of the model's outputs.
    pub classes: Vec<ClassScore>,
    /// Rows are the truth, columns the answers, in the order of the classes. Not for several labels at once, nor for more
    /// classes than anyone reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confusion: Option<Vec<Vec<u64>>>,
}

impl ClassScore {
    /// `counts`: right, claimed, true.
    pub(super) fn new(name: String, [right, claimed, truth]: [u64; 3]) -> ClassScore {
        let share = |of: u64| if of == 0 { 0.0 } else { right as f64 / of as f64 };
        let f1 = if claimed + truth == 0 { 0.0 } else { 2.0 * right as f64 / (claimed + truth) as f64 };
        ClassScore { name, precision: share(claimed), recall: share(truth), f1, support: truth }
    }
}
