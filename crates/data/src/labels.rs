//! Labels of rows: read from a column, or derived from the future of one.

use super::{
    DataError,
    formats::table::{Table, Values},
    windows::NO_LABEL,
};
use serde::{Deserialize, Serialize};
use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelRule {
    /// Whole numbers 0..classes, or words: classes are the words of the training rows in sorted order.
    Column(String),
    /// Classes down, flat, up: the relative change of `column` over the next `horizon` rows against ±`threshold`.
    Return { column: String, horizon: usize, threshold: f64 },
}

impl LabelRule {
    pub fn column(&self) -> &str {
        match self {
            LabelRule::Column(column) | LabelRule::Return { column, .. } => column,
        }
    }

    /// Rows behind a row that its label looks at.
    pub(super) fn horizon(&self) -> usize {
        match self {
            LabelRule::Column(_) => 0,
            LabelRule::Return { horizon, .. } => *horizon,
        }
    }

    pub(super) fn check(&self) -> Result<(), DataError> {
        match self {
            LabelRule::Return { horizon: 0, .. } => Err(DataError::option("horizon", "must be at least 1 row")),
            LabelRule::Return { threshold, .. } if !(threshold.is_finite() && *threshold >= 0.0) => {
                Err(DataError::option("threshold", format!("{threshold} must be 0 or more")))
            }
            _ => Ok(()),
        }
    }

    /// The names of the classes, from the rows `training` only. `expected` is the number the model has.
    pub(super) fn classes(
        &self,
        table: &Table,
        training: Range<usize>,
        expected: Option<usize>,
    ) -> Result<Vec<String>, DataError> {
        let names = match (self, table.column(self.column())?) {
            (LabelRule::Return { .. }, _) => ["down", "flat", "up"].map(String::from).to_vec(),
            (LabelRule::Column(_), Values::Text(words)) => {
                distinct(words.iter().take(training.end).skip(training.start))
            }
            (LabelRule::Column(_), Values::Numbers(_)) if expected.is_some() => numbered(expected.unwrap_or(0)),
            (LabelRule::Column(_), Values::Numbers(labels)) => numbered(highest(&labels[training])),
        };
        match expected {
            Some(classes) if names.len() > classes => {
                Err(DataError::TooManyLabels { file: table.file.clone(), column: self.column().into(), names, classes })
            }
            _ => Ok(names),
        }
    }

    /// The labels of `rows`; the last `horizon` rows have none. Rows outside `rows` are never looked at.
    pub(super) fn labels(&self, table: &Table, rows: Range<usize>, classes: &[String]) -> Result<Vec<i32>, DataError> {
        match (self, table.column(self.column())?) {
            (LabelRule::Return { horizon, threshold, .. }, _) => {
                returns(table, self.column(), rows, *horizon, *threshold)
            }
            (LabelRule::Column(column), Values::Numbers(labels)) => {
                rows.map(|row| whole(table, column, row, labels[row], classes.len())).collect()
            }
            (LabelRule::Column(column), Values::Text(words)) => {
                let label = |(row, word)| known(table, column, row, word, classes);
                words.iter().enumerate().take(rows.end).skip(rows.start).map(label).collect()
            }
        }
    }
}

fn distinct<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for word in words.filter(|word| !word.is_empty()) {
        if let Err(at) = names.binary_search_by(|name| name.as_str().cmp(word)) {
            names.insert(at, word.into());
        }
    }
    names
}

fn numbered(classes: usize) -> Vec<String> {
    (0..classes).map(|class| class.to_string()).collect()
}

/// One more than the highest label. Labels that are no labels are refused later, by place; they must not make a list
/// of billions of names here.
fn highest(labels: &[f64]) -> usize {
    const MOST: f64 = 65_536.0;
    labels.iter().filter(|label| (0.0..MOST).contains(*label)).fold(0, |most, &label| most.max(label as usize + 1))
}

fn whole(table: &Table, column: &str, row: usize, label: f64, classes: usize) -> Result<i32, DataError> {
    if label.is_nan() {
        return Ok(NO_LABEL);
    }
    if label.fract() == 0.0 && label >= 0.0 && label < classes as f64 {
        return Ok(label as i32);
    }
    let (file, place) = (table.file.clone(), table.place(row));
    Err(DataError::BadLabel { file, place, column: column.into(), label, classes })
}

fn known(table: &Table, column: &str, row: usize, word: &str, classes: &[String]) -> Result<i32, DataError> {
    if word.is_empty() {
        return Ok(NO_LABEL);
    }
    classes.binary_search_by(|name| name.as_str().cmp(word)).map(|class| class as i32).map_err(|_| {
        DataError::UnknownLabel {
            file: table.file.clone(),
            place: table.place(row),
            column: column.into(),
            label: word.into(),
            known: classes.to_vec(),
        }
    })
}

fn returns(
    table: &Table,
    column: &str,
    rows: Range<usize>,
    horizon: usize,
    threshold: f64,
) -> Result<Vec<i32>, DataError> {
    let values = &table.numbers(column)?[rows.clone()];
    let pairs = values.iter().zip(values.get(horizon..).unwrap_or(&[]));
    let label = |(row, (now, then)): (usize, (&f64, &f64))| {
        // What was filled in is no truth.
        if now.is_nan() || then.is_nan() {
            return Ok(NO_LABEL);
        }
        let change = (then - now) / now.abs();
        if !change.is_finite() {
            let (file, place) = (table.file.clone(), table.place(rows.start + row));
            let cause = format!("column `{column}`: no relative change from {now}");
            return Err(DataError::Malformed { file, place, cause });
        }
        Ok(1 + i32::from(change > threshold) - i32::from(change < -threshold))
    };
    pairs.enumerate().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::table::tests::read;

    fn column(cells: &[&str]) -> Table {
        read("a.csv", format!("y\n{}\n", cells.join("\n")), Some(&[]), &["y"]).unwrap()
    }

    fn label(table: &Table, expected: Option<usize>) -> Result<(Vec<String>, Vec<i32>), DataError> {
        let rule = LabelRule::Column("y".into());
        let classes = rule.classes(table, 0..table.rows, expected)?;
        let labels = rule.labels(table, 0..table.rows, &classes)?;
        Ok((classes, labels))
    }

    #[test]
    fn words_are_sorted_and_numbers_kept() {
        let (classes, labels) = label(&column(&["up", "down", "up", "flat"]), None).unwrap();
        assert_eq!((classes.join(" ").as_str(), labels), ("down flat up", vec![2, 0, 2, 1]));
        let (classes, labels) = label(&column(&["0", "2"]), None).unwrap();
        assert_eq!((classes.len(), labels), (3, vec![0, 2]));
        assert_eq!(label(&column(&["0", "2"]), Some(5)).unwrap().0.len(), 5);
    }

    #[test]
    fn bad_labels_are_placed() {
        let error = label(&column(&["0", "3"]), Some(3)).unwrap_err();
        assert!(matches!(error, DataError::BadLabel { place: super::super::Place::Line(3), .. }), "{error}");
        for bad in ["1.5", "-1", "1e300", "99999999999"] {
            assert!(matches!(label(&column(&["0", bad]), None), Err(DataError::BadLabel { .. })), "{bad}");
        }
        assert!(
            matches!(label(&column(&["a", "b"]), Some(1)), Err(DataError::TooManyLabels { names, .. }) if names.len() == 2)
        );
        let table = column(&["a", "b", "c"]);
        let rule = LabelRule::Column("y".into());
        let classes = rule.classes(&table, 0..2, None).unwrap();
        let error = rule.labels(&table, 2..3, &classes).unwrap_err();
        assert!(matches!(error, DataError::UnknownLabel { .. }), "{error}");
    }

    #[test]
    fn returns_look_horizon_rows_ahead() {
        let table = column(&["100", "101", "100.5", "90", "90"]);
        let rule = LabelRule::Return { column: "y".into(), horizon: 2, threshold: 0.01 };
        // +0.5 %, −10.9 %, −10.4 %; the last two rows have no future.
        assert_eq!(rule.labels(&table, 0..5, &[]).unwrap(), [1, 0, 0]);
        assert!(rule.labels(&table, 0..2, &[]).unwrap().is_empty());
        let zero = column(&["0", "1", "2"]);
        assert!(rule.labels(&zero, 0..3, &[]).is_err());
    }
}
