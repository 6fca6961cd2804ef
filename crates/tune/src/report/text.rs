//! A study for the terminal.

use super::{Plain, StudyReport, TrialReport};
use crate::order;
use plimsoll::format_seconds;
use plimsoll::page::{Side, Table};

/// Rows of a table that are read at a glance.
const SHOWN: usize = 20;

impl StudyReport {
    /// What it found: the best first, then what decides, then every trial (`all`) or the best of them.
    pub fn text(&self, all: bool) -> String {
        let counts: Vec<String> = self.counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
        let mut text = format!("{}: {} trials ({})", self.study, self.trials.len(), counts.join(", "));
        text += &format!(", {}\n{}\n\n", format_seconds(self.seconds), self.storage);
        text += &self.best_text();
        text += &self.importance_text();
        text + &self.table(all)
    }

    fn best_text(&self) -> String {
        let title = if self.directions.len() == 1 { "best" } else { "best (none is better in every objective)" };
        let mut text = format!("{title}\n");
        for trial in self.best.iter().filter_map(|number| self.trial(*number)) {
            let params: Vec<String> =
                trial.params.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect();
            text += &format!("  trial {}: {}\n    {}\n", trial.number, self.values_text(trial), params.join(" "));
            if let Some(run) = trial.text_attr(crate::attributes::RUN) {
                text += &format!("    {run}\n");
            }
        }
        if self.best.is_empty() {
            text += "  no trial is complete yet\n";
        }
        text + "\n"
    }

    fn values_text(&self, trial: &TrialReport) -> String {
        let named = self.objectives.iter().enumerate();
        let shown = named.filter_map(|(at, name)| Some(format!("{name} {}", self.shown_value(trial, at)?)));
        shown.collect::<Vec<_>>().join(", ")
    }

    fn importance_text(&self) -> String {
        if self.importances.is_empty() {
            return String::new();
        }
        let mut sorted: Vec<(&String, &f64)> = self.importances.iter().collect();
        order::sort_by(&mut sorted, |a, b| b.1.total_cmp(a.1));
        let mut table = Table::new(&[("what decides", Side::Left), ("share", Side::Right)]);
        sorted.iter().for_each(|(name, share)| table.row([name.to_string(), format!("{:.0} %", 100.0 * **share)]));
        table.to_text() + "\n"
    }

    fn table(&self, all: bool) -> String {
        let columns = [("trial", Side::Right), ("state", Side::Left), (self.first_objective(), Side::Right)];
        let more = [("planned", Side::Right), ("measured", Side::Right), ("time", Side::Right), ("why", Side::Left)];
        let mut table = Table::new(&[&columns[..], &more[..]].concat());
        let mut trials: Vec<&TrialReport> = self.trials.iter().collect();
        if !all {
            order::sort_by(&mut trials, |a, b| self.rank(a).total_cmp(&self.rank(b)).then(a.number.cmp(&b.number)));
        }
        let count = if all { trials.len() } else { SHOWN };
        trials.iter().take(count).for_each(|trial| table.row(self.cells(trial)));
        let hidden = trials.len().saturating_sub(count);
        let more = if hidden > 0 { format!("and {hidden} more: --all\n") } else { String::new() };
        table.to_text() + &more
    }

    fn cells(&self, trial: &TrialReport) -> [String; 7] {
        use crate::attributes as name;
        let gigabytes = |key: &str| trial.number_attr(key).map_or("-".into(), |gb| format!("{gb:.3} GB"));
        let seconds = trial.number_attr(name::SECONDS).or(trial.seconds);
        [
            trial.number.to_string(),
            trial.state.into(),
            self.shown_value(trial, 0).unwrap_or("-".into()),
            gigabytes(name::PEAK_MEMORY_GB),
            gigabytes(name::MEASURED_PEAK_MEMORY_GB),
            seconds.map_or("-".into(), format_seconds),
            trial.why(),
        ]
    }

    fn first_objective(&self) -> &str {
        self.objectives.first().map_or("value", String::as_str)
    }

    /// Less is better; what has no value comes last.
    fn rank(&self, trial: &TrialReport) -> f64 {
        let sign = if self.directions.first() == Some(&"maximize") { -1.0 } else { 1.0 };
        let value = trial.values.as_ref().and_then(|values| values.first()).filter(|_| trial.is_complete());
        value.map_or(f64::INFINITY, |value| sign * value)
    }
}

pub(super) fn shown(value: &Plain) -> String {
    value.as_str().map_or_else(|| value.to_string(), String::from)
}
