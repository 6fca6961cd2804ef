//! What was read of texts: how far reading went, and how long they are.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How the reading of a file went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Rows that are used.
    pub rows: usize,
    /// Rows left out because they cannot be used.
    pub skipped: usize,
    /// What is wrong with the first of them.
    pub first_skipped: Option<String>,
}

/// Lengths of texts in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LengthReport {
    pub shortest: usize,
    pub median: usize,
    /// 90 and 99 of 100 are no longer.
    pub p90: usize,
    pub p99: usize,
    pub longest: usize,
    pub tokens: usize,
}

impl LengthReport {
    pub(crate) fn new(mut lengths: Vec<usize>) -> Self {
        lengths.sort_unstable();
        let at = |share: f64| {
            let index = (share * lengths.len().saturating_sub(1) as f64).round() as usize;
            lengths.get(index).copied().unwrap_or(0)
        };
        LengthReport {
            shortest: at(0.0),
            median: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            longest: at(1.0),
            tokens: lengths.iter().sum(),
        }
    }
}

impl fmt::Display for LengthReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LengthReport { shortest, median, p90, p99, longest, tokens } = self;
        write!(f, "{shortest} to {longest} tokens, median {median}, p90 {p90}, p99 {p99}; {tokens} in all")
    }
}
