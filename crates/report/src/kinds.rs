//! What is the same in every layer, in one row.

use plimsoll_core::graph::{Component, without_numbers};
use plimsoll_core::plan::Summary;
use std::collections::HashMap;

/// Buffers of one kind: the same value of every layer.
pub(crate) struct BufferKind {
    pub name: String,
    pub component: Component,
    /// Of one of them.
    pub bytes: usize,
    pub count: usize,
}

/// Values that differ by the number of their layer only are one kind; the kinds with most bytes first.
pub(crate) fn kinds(summary: &Summary) -> Vec<BufferKind> {
    let mut kinds: Vec<BufferKind> = Vec::new();
    let mut known: HashMap<(String, Component, usize), usize> = HashMap::new();
    for buffer in &summary.live {
        let key = (without_numbers(&buffer.name), buffer.component, buffer.bytes);
        let at = *known.entry(key).or_insert_with_key(|(name, component, bytes)| {
            kinds.push(BufferKind { name: name.clone(), component: *component, bytes: *bytes, count: 0 });
            kinds.len() - 1
        });
        kinds[at].count += 1;
        // One of its kind keeps its number.
        kinds[at].name = if kinds[at].count == 1 { buffer.name.clone() } else { without_numbers(&buffer.name) };
    }
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.bytes * kind.count));
    kinds
}

/// Layers of equal size that differ by their number only, together: (name, bytes of each, how many), the largest first.
pub(crate) fn layer_kinds(summary: &Summary) -> Vec<(String, usize, usize)> {
    let mut known: HashMap<(String, usize), (String, usize)> = HashMap::new();
    for (name, &bytes) in &summary.layers {
        let alike = without_numbers(name);
        let (said, count) = known.entry((alike.clone(), bytes)).or_insert_with(|| (name.clone(), 0));
        *count += 1;
        if *count > 1 {
            *said = alike;
        }
    }
    let mut rows: Vec<(String, usize, usize)> =
        known.into_iter().map(|((_, bytes), (name, count))| (name, bytes, count)).collect();
    rows.sort_by(|a, b| (b.1 * b.2, &a.0).cmp(&(a.1 * a.2, &b.0)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::plan::{LiveBuffer, Peak};

    #[test]
    fn buffers_of_all_layers_are_one_kind() {
        let buffer =
            |name: &str, bytes: usize| LiveBuffer { name: name.into(), bytes, component: Component::Activations };
        let live =
            vec![buffer("head", 50), buffer("layers.0.up", 30), buffer("layers.1.up", 30), buffer("layers.2.up", 8)];
        let peak = Peak { phase: "step".into(), tick: 0, node: "head".into() };
        let summary = Summary { peak, breakdown: [].into(), layers: [].into(), live };
        let found: Vec<(String, usize)> = kinds(&summary).into_iter().map(|kind| (kind.name, kind.count)).collect();
        assert_eq!(found, [("layers.*.up".into(), 2), ("head".into(), 1), ("layers.2.up".into(), 1)]);
    }

    #[test]
    fn equal_layers_are_one_row() {
        let layers = [("layers.0", 7), ("layers.1", 7), ("layers.2", 9), ("head", 3)];
        let peak = Peak { phase: "step".into(), tick: 0, node: "head".into() };
        let layers = layers.map(|(name, bytes)| (name.to_string(), bytes)).into();
        let summary = Summary { peak, breakdown: [].into(), layers, live: Vec::new() };
        let expected = [("layers.*", 7, 2), ("layers.2", 9, 1), ("head", 3, 1)];
        assert_eq!(layer_kinds(&summary), expected.map(|(name, bytes, count)| (name.to_string(), bytes, count)));
    }
}
