//! How texts of different lengths share batches.

use serde::{Serialize, Serializer};

use crate::recipe::names::{named, nearest};
use crate::recipe::section::Section;
use crate::recipe::tree::Value;

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

named! {
    /// Which samples share a batch. What is learned depends on it, the plan does not.
    pub enum Compose {
        /// Samples of about the same length, in shuffled batches.
        Length = "length",
        Random = "random",
    }
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

/// The keys of [`Batching`].
pub(super) const BATCHING_KEYS: [&str; 2] = ["buckets", "compose"];

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Batching {
    pub buckets: Buckets,
    pub compose: Compose,
}

impl Batching {
    /// For samples that all have the same length.
    pub const EQUAL: Self = Self { buckets: Buckets::Off, compose: Compose::Random };

    pub(super) fn read(section: &Section<'_>) -> Self {
        Self {
            buckets: Buckets::read(section).unwrap_or(Buckets::Auto),
            compose: section.choice("compose").unwrap_or(Compose::Length),
        }
    }
}

impl Buckets {
    fn read(section: &Section<'_>) -> Option<Self> {
        let node = section.get("buckets")?;
        let words = "\"auto\", \"off\" or ";
        match &node.value {
            Value::Text(text) if text == "auto" => Some(Self::Auto),
            Value::Text(text) if text == "off" => Some(Self::Off),
            Value::Text(text) => {
                let hint = nearest(text, ["auto", "off"]).map(|n| format!("did you mean \"{n}\"?"));
                section.unknown_value("buckets", node, &format!("{words}a number of lengths per octave"), hint);
                None
            }
            _ => section.size_of("buckets", node, 1..=64, words).map(Self::Steps),
        }
    }
}
