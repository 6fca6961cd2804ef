//! Labels of rows: read from a column, or derived from the future of one.

use super::{
    DataError,
    formats::table::{Table, Values},
    whole::{classes_of, whole, whole_word},
    windows::NO_LABEL,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelRule {
    /// Whole numbers, 0..classes or as many others as there are classes; or words. What is no place is a name: classes
    /// are those of the training rows in sorted order.
    Column(String),
    /// Classes down, flat, up: the relative change of `column` over the next `horizon` rows against ±`threshold`.
    Return { column: String, horizon: usize, threshold: f64 },
}

impl LabelRule {
    pub(crate) fn column(&self) -> &str {
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
            (LabelRule::Column(_), Values::Numbers(labels)) => numbered(&labels[training], expected),
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
                let known = Known::new(table, column, classes);
                rows.map(|row| known.number(row, labels[row])).collect()
            }
            (LabelRule::Column(column), Values::Text(words)) => {
                let known = Known::new(table, column, classes);
                let label = |(row, word)| known.word(row, word);
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

/// Labels that are no labels are refused by place, and must not make a list of billions of names before that.
const MOST_NAMES: usize = 65_536;

/// The names of classes that are told by number: places, or what the rows hold.
fn numbered(labels: &[f64], expected: Option<usize>) -> Vec<String> {
    let mut found = BTreeSet::new();
    for label in labels.iter().filter_map(|&label| whole(label)) {
        found.insert(label);
        if found.len() > MOST_NAMES {
            break;
        }
    }
    let classes = expected.unwrap_or(highest(&found));
    let named: Vec<i64> = match classes_of(&found, classes) {
        Some(named) => named,
        None if found.len() > classes => found.into_iter().collect(),
        None => (0..classes as i64).collect(),
    };
    named.iter().map(i64::to_string).collect()
}

/// One more than the highest label that can be a place.
fn highest(labels: &BTreeSet<i64>) -> usize {
    labels.range(..MOST_NAMES as i64).next_back().map_or(0, |&label| usize::try_from(label + 1).unwrap_or(0))
}

/// The classes of a column, by what its labels call them.
struct Known<'a> {
    table: &'a Table,
    column: &'a str,
    names: &'a [String],
    words: HashMap<&'a str, i32>,
    /// Where every class is called by a number.
    numbers: Option<HashMap<i64, i32>>,
}

impl<'a> Known<'a> {
    fn new(table: &'a Table, column: &'a str, names: &'a [String]) -> Self {
        let words = names.iter().map(String::as_str).zip(0..).collect();
        let numbers = names.iter().zip(0..).map(|(name, class)| Some((whole_word(name)?, class))).collect();
        Known { table, column, names, words, numbers }
    }

    /// By its number; where classes have words for names, by its place among them.
    fn number(&self, row: usize, label: f64) -> Result<i32, DataError> {
        if label.is_nan() {
            return Ok(NO_LABEL);
        }
        let place = || {
            whole(label).and_then(|at| i32::try_from(at).ok().filter(|&at| at >= 0 && (at as usize) < self.names.len()))
        };
        let found = match &self.numbers {
            Some(numbers) => whole(label).and_then(|label| numbers.get(&label).copied()),
            None => place(),
        };
        found.ok_or_else(|| self.no_class(row, label))
    }

    fn no_class(&self, row: usize, label: f64) -> DataError {
        if self.names.first().is_some_and(|name| name != "0") && self.numbers.is_some() {
            return self.unknown(row, &label.to_string());
        }
        let (file, place, column) = (self.table.file.clone(), self.table.place(row), self.column.into());
        DataError::BadLabel { file, place, column, label, classes: self.names.len() }
    }

    fn word(&self, row: usize, word: &str) -> Result<i32, DataError> {
        match self.words.get(word) {
            Some(&class) => Ok(class),
            None if word.is_empty() => Ok(NO_LABEL),
            None => Err(self.unknown(row, word)),
        }
    }

    fn unknown(&self, row: usize, label: &str) -> DataError {
        let (file, place, column) = (self.table.file.clone(), self.table.place(row), self.column.into());
        DataError::UnknownLabel { file, place, column, label: label.into(), known: self.names.to_vec() }
    }
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
            let hint = "derive the label from a column without zeros, or take such rows out of the file";
            return Err(DataError::Malformed { file, place, cause, hint });
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

    /// −1, 0 and 1 for sell, hold and buy; in another file they mean the same.
    #[test]
    fn numbers_that_are_no_places_are_classes_where_there_are_as_many() {
        let (classes, labels) = label(&column(&["1", "-1", "0", "1"]), Some(3)).unwrap();
        assert_eq!((classes.join(" ").as_str(), labels), ("-1 0 1", vec![2, 0, 1, 2]));
        let (classes, labels) = label(&column(&["-1", "1"]), Some(2)).unwrap();
        assert_eq!((classes.join(" ").as_str(), labels), ("-1 1", vec![0, 1]));
        let rule = LabelRule::Column("y".into());
        let later = column(&["1", "1", "0"]);
        assert_eq!(rule.labels(&later, 0..2, &classes).unwrap(), [1, 1]);
        assert!(matches!(rule.labels(&later, 2..3, &classes), Err(DataError::UnknownLabel { .. })));
        let error = label(&column(&["-1", "0", "1"]), Some(2)).unwrap_err();
        assert!(matches!(&error, DataError::TooManyLabels { names, .. } if names.join(" ") == "-1 0 1"), "{error}");
        let error = label(&column(&["-1", "1"]), Some(3)).unwrap_err();
        assert!(matches!(error, DataError::BadLabel { label: -1.0, .. }), "{error}");
    }

    #[test]
    fn bad_labels_are_placed() {
        let error = label(&column(&["0", "3"]), Some(3)).unwrap_err();
        assert!(matches!(error, DataError::BadLabel { place: super::super::Place::Line(3), .. }), "{error}");
        for bad in ["1.5", "1e300"] {
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
        let error = rule.labels(&zero, 0..3, &[]).unwrap_err();
        assert!(error.hint().contains("without zeros"), "{}", error.hint());
    }
}
