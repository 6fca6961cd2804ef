//! How texts of different lengths share batches: reading it.

use std::ops::RangeInclusive;

use crate::reading::about::{About, about};
use crate::reading::kind::KeyKind;
use crate::reading::section::Section;
use crate::reading::tree::Value;
use plimsoll_base::batching::{Batching, Buckets, Compose};
use plimsoll_base::names::nearest;

/// The keys of [`Batching`].
pub(super) const BATCHING_KEYS: [&str; 2] = ["buckets", "compose"];

/// What each key means.
pub(in crate::recipe) const ABOUT: &[About] = &[
    about(
        "data.buckets",
        "Lengths that batches are padded to: so many per octave, always the longest (`off`), or as many as pay (`auto`). Changes no result, only what it costs.",
    ),
    about(
        "data.compose",
        "Which samples share a batch: those of about the same length, or any. What is learned depends on it.",
    ),
];

/// Lengths per octave.
const PER_OCTAVE: RangeInclusive<usize> = 1..=64;

pub(super) fn batching(section: &Section<'_>) -> Batching {
    Batching {
        buckets: buckets(section).unwrap_or(Buckets::Auto),
        compose: section.choice("compose").unwrap_or(Compose::Length),
    }
}

fn buckets(section: &Section<'_>) -> Option<Buckets> {
    section.declare("buckets", || KeyKind::any([KeyKind::words(["auto", "off"]), KeyKind::integer(&PER_OCTAVE)]));
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
        _ => section.size_of("buckets", node, PER_OCTAVE, words).map(Buckets::Steps),
    }
}
