//! A study as a table for spreadsheets: a row per trial.

use super::{Plain, StudyReport, TrialReport};
use crate::order;
use std::collections::BTreeSet;

/// Attributes that are worth a column.
const FACTS: [&str; 6] =
    ["peak_memory_gb", "measured_peak_memory_gb", "seconds", "predicted_seconds", "micro_batch", "recompute"];

impl StudyReport {
    /// Comma-separated, a header first.
    pub fn csv(&self) -> String {
        let names: BTreeSet<&String> = order::set(self.trials.iter().flat_map(|trial| trial.params.keys()));
        let head = ["number", "state"].into_iter().map(String::from).chain(self.objectives.iter().cloned());
        let head = head.chain(names.iter().map(ToString::to_string));
        let head = head.chain(FACTS.map(String::from)).chain(["why".into()]);
        let mut text = line(head);
        for trial in &self.trials {
            text += &line(row(trial, self.objectives.len(), &names));
        }
        text
    }
}

fn row(trial: &TrialReport, objectives: usize, names: &BTreeSet<&String>) -> Vec<String> {
    let value = |index: usize| trial.values.as_ref().and_then(|values| values.get(index));
    let mut cells = vec![trial.number.to_string(), trial.state.to_string()];
    cells.extend((0..objectives).map(|index| value(index).map_or(String::new(), ToString::to_string)));
    cells.extend(names.iter().map(|name| trial.params.get(*name).map_or(String::new(), cell)));
    cells.extend(FACTS.iter().map(|key| trial.user_attrs.get(*key).map_or(String::new(), cell)));
    cells.push(trial.why());
    cells
}

fn cell(value: &Plain) -> String {
    match value {
        Plain::String(text) => text.clone(),
        Plain::Null => String::new(),
        other => other.to_string(),
    }
}

fn line(cells: impl IntoIterator<Item = String>) -> String {
    let quoted = |text: String| match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    };
    cells.into_iter().map(quoted).collect::<Vec<_>>().join(",") + "\n"
}
