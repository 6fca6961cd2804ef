//! The numbers of a run as columns: every number that a step, an evaluation or a device tells becomes one, so that what
//! later versions tell is drawn without a change here.

use super::Place;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Names that a column may have, so that a hostile file makes no thousands of them.
const MOST_COLUMNS: usize = 48;
/// Events of the other kinds that are kept, the last ones.
const MOST_KEPT: usize = 400;

/// Rows by step; a number that a row lacks is `null`.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct Table {
    /// Of each row; they rise.
    pub step: Vec<u64>,
    /// By name, as long as `step`.
    #[schema(value_type = BTreeMap<String, Vec<Option<f64>>>)]
    pub columns: BTreeMap<String, Vec<Option<f64>>>,
}

/// All that is drawn about a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Curves {
    steps: Table,
    evaluations: Table,
    devices: Table,
    samples: Vec<Value>,
    notes: Vec<Value>,
}

/// The same in as many points as a screen can show.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Thinned {
    /// The place in the events to go on from: `from` of the stream, or its `Last-Event-ID`.
    pub offset: String,
    /// Steps there are; `steps` may have fewer.
    pub rows: usize,
    pub steps: Table,
    pub evaluations: Table,
    pub devices: Table,
    /// Texts that the model wrote.
    #[schema(value_type = Vec<Object>)]
    pub samples: Vec<Value>,
    #[schema(value_type = Vec<Object>)]
    pub notes: Vec<Value>,
}

impl Curves {
    pub(crate) fn hear(&mut self, line: &[u8]) {
        let Ok(Value::Object(event)) = serde_json::from_slice(line) else { return };
        let step = event.get("step").and_then(Value::as_u64).unwrap_or(0);
        match event.get("event").and_then(Value::as_str).unwrap_or_default() {
            "step" => self.steps.add(step, &event),
            "evaluation" => self.evaluations.add(step, &event),
            "device" => self.devices.add(step, &event),
            "resumed" => self.cut(step),
            "sample" => keep(&mut self.samples, event),
            "note" => keep(&mut self.notes, event),
            _ => {}
        }
    }

    /// A run goes on from a checkpoint: what came after that is done again.
    fn cut(&mut self, step: u64) {
        for table in [&mut self.steps, &mut self.evaluations, &mut self.devices] {
            table.cut(step + 1);
        }
    }

    pub(crate) fn thinned(&self, points: usize, place: Place) -> Thinned {
        Thinned {
            offset: place.to_string(),
            rows: self.steps.step.len(),
            steps: self.steps.thinned(points),
            evaluations: self.evaluations.thinned(points),
            devices: self.devices.thinned(points),
            samples: self.samples.clone(),
            notes: self.notes.clone(),
        }
    }
}

fn keep(kept: &mut Vec<Value>, event: Map<String, Value>) {
    if kept.len() >= MOST_KEPT {
        kept.remove(0);
    }
    kept.push(Value::Object(event));
}

impl Table {
    fn add(&mut self, step: u64, event: &Map<String, Value>) {
        self.cut(step);
        let rows = self.step.len();
        self.step.push(step);
        for (name, value) in event.iter().filter(|(name, _)| *name != "step" && *name != "event") {
            if !(value.is_number() || value.is_null()) {
                continue;
            }
            let room = self.columns.len() < MOST_COLUMNS || self.columns.contains_key(name);
            if room {
                let column = self.columns.entry(name.clone()).or_default();
                column.resize(rows, None);
                column.push(value.as_f64());
            }
        }
        self.columns.values_mut().for_each(|column| column.resize(rows + 1, None));
    }

    /// Leaves the rows before a step.
    fn cut(&mut self, step: u64) {
        let kept = self.step.partition_point(|&other| other < step);
        self.step.truncate(kept);
        self.columns.values_mut().for_each(|column| column.truncate(kept));
    }

    /// Of each stretch of rows the ones with the least and the greatest loss, so that no spike is lost.
    fn thinned(&self, points: usize) -> Table {
        let rows = self.step.len();
        if rows <= points.max(2) {
            return self.clone();
        }
        let loss = self.columns.get("loss");
        let value = |row: usize| loss.and_then(|loss| loss[row]).unwrap_or(0.0);
        let stretches = (points / 2).max(1);
        let mut kept: Vec<usize> = Vec::with_capacity(points + 2);
        for stretch in 0..stretches {
            let range = stretch * rows / stretches..(stretch + 1) * rows / stretches;
            let by_loss = |a: &usize, b: &usize| value(*a).total_cmp(&value(*b));
            kept.extend(range.clone().min_by(by_loss).into_iter().chain(range.max_by(by_loss)));
        }
        kept.push(rows - 1);
        kept.sort_unstable();
        kept.dedup();
        self.only(&kept)
    }

    fn only(&self, rows: &[usize]) -> Table {
        let pick = |column: &Vec<Option<f64>>| rows.iter().map(|&row| column[row]).collect();
        Table {
            step: rows.iter().map(|&row| self.step[row]).collect(),
            columns: self.columns.iter().map(|(name, column)| (name.clone(), pick(column))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(lines: &[String]) -> Curves {
        let mut curves = Curves::default();
        lines.iter().for_each(|line| curves.hear(line.as_bytes()));
        curves
    }

    fn step(step: u64, loss: f64) -> String {
        format!("{{\"event\":\"step\",\"step\":{step},\"loss\":{loss},\"lr\":0.1}}")
    }

    #[test]
    fn a_resumed_run_has_each_step_once() {
        let mut lines: Vec<String> = (1..=10).map(|n| step(n, n as f64)).collect();
        lines.push("{\"event\":\"resumed\",\"step\":6,\"replanned\":false}".into());
        lines.extend((7..=12).map(|n| step(n, 100.0 + n as f64)));
        let curves = heard(&lines);
        assert_eq!(curves.steps.step, (1..=12).collect::<Vec<u64>>());
        assert_eq!(curves.steps.columns["loss"][6], Some(107.0));
    }

    #[test]
    fn columns_have_the_length_of_the_rows_whatever_is_missing() {
        let lines =
            [step(1, 1.0), "{\"event\":\"step\",\"step\":2,\"loss\":null,\"tokens_per_s\":7}".into(), step(3, 2.0)];
        let curves = heard(&lines);
        assert!(curves.steps.columns.values().all(|column| column.len() == 3));
        assert_eq!(curves.steps.columns["tokens_per_s"], [None, Some(7.0), None]);
        assert_eq!(curves.steps.columns["loss"], [Some(1.0), None, Some(2.0)]);
    }

    #[test]
    fn thinning_keeps_the_ends_and_every_spike() {
        let lines: Vec<String> =
            (1..=10_000).map(|n| step(n, if n == 7_777 { 50.0 } else { 1.0 / n as f64 })).collect();
        let thinned = heard(&lines).thinned(400, Place { at: 9, file: None });
        assert!(thinned.steps.step.len() <= 402 && thinned.rows == 10_000 && thinned.offset == "9");
        assert_eq!(thinned.steps.step.last(), Some(&10_000));
        assert!(thinned.steps.step.contains(&7_777) && thinned.steps.step.is_sorted());
        assert_eq!(heard(&lines[..300]).thinned(400, Place::default()).steps.step.len(), 300);
    }

    #[test]
    fn a_hostile_file_makes_few_columns() {
        let lines: Vec<String> = (0..500).map(|n| format!("{{\"event\":\"step\",\"step\":{n},\"c{n}\":1}}")).collect();
        assert_eq!(heard(&lines).steps.columns.len(), MOST_COLUMNS);
        let junk = ["", "[]", "nul", "{\"event\":7}", "{\"event\":\"step\",\"step\":-1}"].map(String::from);
        assert_eq!(heard(&junk).steps.step, [0]);
    }
}
