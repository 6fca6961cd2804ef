//! What was read of images with captions.

use super::mebibytes;
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaptionReport {
    pub source: String,
    pub train: usize,
    pub validation: usize,
    /// Images left out because they cannot be used.
    pub skipped: usize,
    /// Captions that lost their tail.
    pub truncated: usize,
    pub max_length: usize,
    /// Tokens of the longest caption, cut or not.
    pub longest: usize,
    pub side: usize,
    pub resident_bytes: usize,
    /// What decoding takes on each worker, at most.
    pub worker_bytes: usize,
    /// Retrieval at the first place that a perfect model reaches on the validation part, where it is known.
    pub best_accuracy: Option<f64>,
}

impl fmt::Display for CaptionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CaptionReport { source, train, validation, side, max_length, longest, .. } = self;
        writeln!(f, "images {source}: {train} train, {validation} validation, read at {side} × {side}")?;
        write!(f, "  captions of up to {max_length} tokens (longest {longest}), {} cut", self.truncated)?;
        if self.skipped > 0 {
            write!(f, "; {} images left out as unusable", self.skipped)?;
        }
        let (resident, worker) = (mebibytes(self.resident_bytes), mebibytes(self.worker_bytes));
        write!(f, "\n  host memory: {resident}, and up to {worker} on each worker while decoding")?;
        match self.best_accuracy {
            Some(best) => write!(f, "\n  best possible retrieval on validation: {:.1} %", 100.0 * best),
            None => Ok(()),
        }
    }
}
