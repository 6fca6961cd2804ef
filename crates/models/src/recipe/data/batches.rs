//! How texts of different lengths share batches: reading it.

use crate::reading::section::Section;
use crate::reading::tree::Value;
use plimsoll_base::batching::{Batching, Buckets, Compose};
use plimsoll_base::names::nearest;

/// The keys of [`Batching`].
pub(super) const BATCHING_KEYS: [&str; 2] = ["buckets", "compose"];

pub(super) fn batching(section: &Section<'_>) -> Batching {
    Batching {
        buckets: buckets(section).unwrap_or(Buckets::Auto),
        compose: section.choice("compose").unwrap_or(Compose::Length),
    }
}

fn buckets(section: &Section<'_>) -> Option<Buckets> {
    let node = section.get("buckets")?;
    let words = "\"auto\", \"off\" or ";
    match &node.value {
        Value::Text(text) if text == "auto" => Some(Buckets::Auto),
        Value::Text(text) if text == "off" => Some(Buckets::Off),
        Value::Text(text) => {
            let hint = nearest(text, ["auto", "off"]).map(|n| format!("did you mean \"{n}\"?"));
            section.unknown_value("buckets", node, &format!("{words}a number of lengths per octave"), hint);
            None
        }
        _ => section.size_of("buckets", node, 1..=64, words).map(Buckets::Steps),
    }
}
