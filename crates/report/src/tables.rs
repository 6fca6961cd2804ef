//! Plain-text tables: aligned columns, no colour codes.

#![deny(missing_docs)]

use crate::kinds::{BufferKind, kinds, layer_kinds};
use plimsoll_base::units::{format_bytes, format_seconds};
use plimsoll_core::graph::Component;
use plimsoll_core::plan::{ModuleBytes, Summary};
use plimsoll_planner::choose::Decision;
use std::collections::BTreeMap;

/// Memory at the peak by component; rows without bytes are left out.
pub fn breakdown_table(summary: &Summary) -> String {
    let total: usize = summary.breakdown.values().sum();
    let bytes_of = |c: Component| summary.breakdown.get(c.name()).copied().unwrap_or(0);
    let mut table = Table::new(&[("component", Side::Left), ("bytes", Side::Right), ("share", Side::Right)]);
    for component in Component::ALL.into_iter().filter(|&c| bytes_of(c) > 0) {
        let bytes = bytes_of(component);
        table.row([component.name().replace('_', " "), format_bytes(bytes as u64), percent(bytes, total)]);
    }
    table.row(["total".into(), format_bytes(total as u64), percent(total, total)]);
    table.to_text()
}

/// Memory at the peak by layer, the `top` largest and the rest in one row.
pub fn layers_table(summary: &Summary, top: usize) -> String {
    let total: usize = summary.layers.values().sum();
    let mut table = Table::new(&[("layer", Side::Left), ("bytes", Side::Right), ("share", Side::Right)]);
    let (largest, rest) = largest(&summary.layers, top);
    for (name, bytes) in largest {
        table.row([name.into(), format_bytes(bytes as u64), percent(bytes, total)]);
    }
    if let Some((count, bytes)) = rest {
        table.row([format!("{count} more"), format_bytes(bytes as u64), percent(bytes, total)]);
    }
    table.to_text()
}

/// Every layer, those that are alike in one row.
pub fn all_layers_table(summary: &Summary) -> String {
    let total: usize = summary.layers.values().sum();
    let columns = [("layer", Side::Left), ("each", Side::Right), ("together", Side::Right), ("share", Side::Right)];
    let mut table = Table::new(&columns);
    for (name, bytes, count) in layer_kinds(summary) {
        let together = bytes * count;
        table.row([name, times(count, bytes), format_bytes(together as u64), percent(together, total)]);
    }
    table.to_text()
}

/// The parts that layers are made of, over all layers.
pub fn modules_table(summary: &Summary) -> String {
    let total: usize = summary.layers.values().sum();
    let columns = [("part", Side::Left), ("a layer", Side::Right), ("together", Side::Right), ("share", Side::Right)];
    let mut table = Table::new(&columns);
    let mut rows: Vec<_> = summary.modules().into_iter().collect();
    rows.sort_by_key(|(_, module)| std::cmp::Reverse(module.bytes));
    for (name, ModuleBytes { bytes, layers }) in rows {
        let each = if layers > 1 { format_bytes((bytes / layers) as u64) } else { "·".into() };
        table.row([name, each, format_bytes(bytes as u64), percent(bytes, total)]);
    }
    table.to_text()
}

/// Every buffer alive at the peak, those of all layers together.
pub fn all_live_table(summary: &Summary) -> String {
    let columns = [("alive at the peak", Side::Left), ("component", Side::Left), ("each", Side::Right)];
    let mut table = Table::new(&[&columns[..], &[("together", Side::Right)]].concat());
    for BufferKind { name, component, bytes, count } in kinds(summary) {
        let component = component.name().replace('_', " ");
        table.row([name, component, times(count, bytes), format_bytes((bytes * count) as u64)]);
    }
    table.to_text()
}

fn times(count: usize, bytes: usize) -> String {
    let bytes = format_bytes(bytes as u64);
    if count > 1 { format!("{count} × {bytes}") } else { bytes }
}

/// The `top` largest buffers alive at the peak, and the rest in one row.
pub fn live_table(summary: &Summary, top: usize) -> String {
    let mut table = Table::new(&[("alive at the peak", Side::Left), ("component", Side::Left), ("bytes", Side::Right)]);
    for buffer in summary.live.iter().take(top) {
        let component = buffer.component.name().replace('_', " ");
        table.row([buffer.name.clone(), component, format_bytes(buffer.bytes as u64)]);
    }
    let rest = summary.live.get(top..).unwrap_or_default();
    if !rest.is_empty() {
        let bytes: usize = rest.iter().map(|b| b.bytes).sum();
        table.row([format!("{} more", rest.len()), String::new(), format_bytes(bytes as u64)]);
    }
    table.to_text()
}

/// What was decided, why, and how memory and predicted time differ from the same plan without it.
pub fn decisions_table(decisions: &[Decision]) -> String {
    let columns = [("lever", Side::Left), ("choice", Side::Left), ("memory", Side::Right), ("time", Side::Right)];
    let mut table = Table::new(&[&columns[..], &[("why", Side::Left)]].concat());
    for decision in decisions {
        let (saves, costs) = (saved(decision.saved_bytes), cost(decision.predicted_ms));
        table.row([decision.lever.clone(), decision.choice.clone(), saves, costs, decision.reason.clone()]);
    }
    table.to_text()
}

/// Less memory has a minus. A choice may take more: pinned against the grain, or made for speed.
fn saved(bytes: i64) -> String {
    match bytes {
        0 => "·".into(),
        1.. => format!("−{}", format_bytes(bytes as u64)),
        _ => format!("+{}", format_bytes(bytes.unsigned_abs())),
    }
}

/// What rounds to nothing is nothing.
fn cost(ms: f64) -> String {
    if ms.abs() < 0.05 { "·".into() } else { signed_seconds(ms / 1e3) }
}

/// `+1.2 ms`, `−1 min 3 s`.
pub(crate) fn signed_seconds(seconds: f64) -> String {
    let sign = if seconds < 0.0 { "−" } else { "+" };
    format!("{sign}{}", format_seconds(seconds.abs()))
}

fn percent(part: usize, total: usize) -> String {
    format!("{:.1} %", 100.0 * part as f64 / total.max(1) as f64)
}

type Rest = Option<(usize, usize)>;

/// The `top` largest, and (count, bytes) of all others.
fn largest(layers: &BTreeMap<String, usize>, top: usize) -> (Vec<(&str, usize)>, Rest) {
    let mut rows: Vec<(&str, usize)> = layers.iter().map(|(name, &bytes)| (name.as_str(), bytes)).collect();
    // Stable: equal sizes stay in the order of their names.
    rows.sort_by_key(|row| std::cmp::Reverse(row.1));
    let rest = rows.split_off(top.min(rows.len()));
    let bytes = rest.iter().map(|row| row.1).sum();
    (rows, (!rest.is_empty()).then_some((rest.len(), bytes)))
}

/// Where the cells of a column stand.
#[derive(Clone, Copy, PartialEq)]
pub enum Side {
    /// At its left edge: names.
    Left,
    /// At its right edge: numbers.
    Right,
}

/// Rows under a header.
pub struct Table {
    sides: Vec<Side>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Without rows yet.
    pub fn new(columns: &[(&str, Side)]) -> Table {
        let header = columns.iter().map(|(name, _)| name.to_string()).collect();
        Table { sides: columns.iter().map(|(_, side)| *side).collect(), rows: vec![header] }
    }

    /// One more row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Columns as wide as their widest cell, two spaces between, a rule under the header.
    pub fn to_text(&self) -> String {
        let cell_width = |row: &Vec<String>, i: usize| row.get(i).map_or(0, |cell| cell.chars().count());
        let widths: Vec<usize> =
            (0..self.sides.len()).map(|i| self.rows.iter().map(|row| cell_width(row, i)).max().unwrap_or(0)).collect();
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            let cells = row.iter().zip(&widths).zip(&self.sides).map(|((cell, &width), side)| match side {
                Side::Left => format!("{cell:<width$}"),
                Side::Right => format!("{cell:>width$}"),
            });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
            if index == 0 {
                text.push_str(&"─".repeat(widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)));
                text.push('\n');
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::plan::{LiveBuffer, Peak};

    fn summary() -> Summary {
        let live = [("layers.0.up", 3 << 20, Component::Activations), ("head.weight", 1 << 20, Component::Weights)]
            .map(|(name, bytes, component)| LiveBuffer { name: name.into(), bytes, component });
        Summary {
            peak: Peak { phase: "step".into(), tick: 3, node: "layers.0.up".into() },
            breakdown: [("activations", 3 << 20), ("weights", 1 << 20), ("inputs", 0)].into(),
            layers: [("layers.0".to_string(), 3 << 20), ("head".to_string(), 1 << 20), ("lr".to_string(), 64)].into(),
            live: live.into(),
        }
    }

    #[test]
    fn components_line_up_and_empty_ones_are_left_out() {
        let expected = "\
component    bytes    share
───────────────────────────
weights      1 MiB   25.0 %
activations  3 MiB   75.0 %
total        4 MiB  100.0 %
";
        assert_eq!(breakdown_table(&summary()), expected);
    }

    #[test]
    fn the_rest_is_one_row() {
        let layers = layers_table(&summary(), 1);
        assert!(layers.contains("layers.0"), "{layers}");
        assert!(layers.lines().last().unwrap().starts_with("2 more"), "{layers}");
        let live = live_table(&summary(), 1);
        assert_eq!(live.lines().last().unwrap().split_whitespace().collect::<Vec<_>>(), ["1", "more", "1", "MiB"]);
        assert!(!live_table(&summary(), 9).contains("more"));
    }

    #[test]
    fn decisions_show_what_they_save_or_cost() {
        let decision = |saved_bytes: i64| Decision {
            lever: "recompute".into(),
            choice: "cheap".into(),
            saved_bytes,
            predicted_ms: 1.25,
            reason: "the budget".into(),
        };
        let text = decisions_table(&[decision(0), decision(2 << 20), decision(-1024)]);
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(rows[0], "recompute  cheap        ·  +1.2 ms  the budget");
        assert_eq!(rows[1], "recompute  cheap   −2 MiB  +1.2 ms  the budget");
        assert_eq!(rows[2], "recompute  cheap   +1 KiB  +1.2 ms  the budget");
    }
}
