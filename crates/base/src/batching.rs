//! How samples come together in batches: the words that recipes and loaders share.

#![deny(missing_docs)]

use crate::named;
use serde::{Serialize, Serializer};

/// Lengths that batches are padded to. Padding changes no result, only what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buckets {
    /// 16 lengths per octave; 4 where source and target both vary.
    Auto,
    /// So many lengths per octave.
    Steps(usize),
    /// Always the longest.
    Off,
}

impl Serialize for Buckets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Off => serializer.serialize_str("off"),
            Self::Steps(steps) => steps.serialize(serializer),
        }
    }
}

named! {
    /// Which samples share a batch. What is learned depends on it, the plan does not.
    pub enum Compose {
        /// Samples of about the same length, in shuffled batches.
        Length = "length",
        /// Any samples.
        Random = "random",
    }
}

/// How samples come together in batches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Batching {
    /// What lengths batches have.
    pub buckets: Buckets,
    /// Which samples share one.
    pub compose: Compose,
}

impl Batching {
    /// For samples that all have the same length.
    pub const EQUAL: Self = Self { buckets: Buckets::Off, compose: Compose::Random };
}

named! {
    /// What to do with a row that cannot be used.
    pub enum BadRows {
        /// Refuse the file.
        Error = "error",
        /// Leave it out, and report how many there were.
        Skip = "skip",
    }
}

named! {
    /// What to do with a row of a series that lacks a value.
    pub enum Gaps {
        /// Refuse the file.
        Error = "error",
        /// The value before it counts on.
        Forward = "forward",
        /// The mean of the training rows.
        Mean = "mean",
        /// The row is left out.
        Drop = "drop",
    }
}
