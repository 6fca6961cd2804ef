//! What the rows of a file look like, from the first of them: columns, their types, how many values they take. It is
//! what a recipe for the file is proposed from.

use crate::DataError;
use crate::formats::{Cell, Columns, Wanted, open};
use std::collections::BTreeSet;
use std::path::Path;

/// Rows that are looked at.
pub(crate) const SURVEYED_ROWS: usize = 20_000;

/// A column that takes more values than this is no list of classes.
const MOST_VALUES: usize = 1000;

/// The columns of a file, in its order.
#[derive(Clone, Debug, PartialEq)]
pub struct Survey {
    pub columns: Vec<SurveyedColumn>,
    /// Rows that were looked at.
    pub rows: usize,
    /// Whether these were all.
    pub whole: bool,
}

/// What one column holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SurveyedColumn {
    pub name: String,
    pub numbers: usize,
    pub texts: usize,
    pub lists: usize,
    pub missing: usize,
    /// Characters of the longest text.
    pub longest: usize,
    /// Characters of all texts.
    characters: usize,
    /// The different values; `None` once they are too many.
    values: Option<BTreeSet<String>>,
}

impl SurveyedColumn {
    fn new(name: String) -> Self {
        Self { name, values: Some(BTreeSet::new()), ..Self::default() }
    }

    /// Every value that is there is a number.
    pub fn is_numeric(&self) -> bool {
        self.numbers > 0 && self.texts == 0 && self.lists == 0
    }

    /// No value is a number or a list.
    pub fn is_text(&self) -> bool {
        self.texts > 0 && self.lists == 0 && self.texts > self.numbers
    }

    /// The different values, where they are few enough to be classes: at most a thousand, and each seen twice on
    /// average.
    pub fn classes(&self) -> Option<&BTreeSet<String>> {
        let seen = self.numbers + self.texts;
        self.values.as_ref().filter(|values| values.len() >= 2 && 2 * values.len() <= seen)
    }

    /// Characters of a text, on average.
    pub fn mean_length(&self) -> usize {
        self.characters / self.texts.max(1)
    }

    fn take(&mut self, cell: &Cell<'_>) {
        match cell {
            Cell::Missing => self.missing += 1,
            Cell::Number(number) => self.take_number(*number),
            // Formats without types hold numbers as texts.
            Cell::Text(text) => match text.trim().parse::<f64>() {
                Ok(number) => self.take_number(number),
                Err(_) => self.take_text(text),
            },
            Cell::Exact(value) => self.take_number(value.as_f64().unwrap_or(f64::NAN)),
            Cell::List(_) | Cell::Other(_) => self.lists += 1,
        }
    }

    fn take_number(&mut self, number: f64) {
        self.numbers += 1;
        self.take_value(&number.to_string());
    }

    fn take_text(&mut self, text: &str) {
        let characters = text.chars().count();
        self.texts += 1;
        self.characters += characters;
        self.longest = self.longest.max(characters);
        self.take_value(text);
    }

    fn take_value(&mut self, value: &str) {
        let Some(values) = &mut self.values else { return };
        if !values.contains(value) {
            values.insert(value.into());
        }
        if values.len() > MOST_VALUES {
            self.values = None;
        }
    }
}

/// Looks at the first rows of a file, whatever format has them.
pub fn survey(file: &Path) -> Result<Survey, DataError> {
    let names = open(file, None, Wanted::TEXTS, &Columns::new([]))?.names().to_vec();
    let columns = Columns::new(names.iter().cloned());
    let mut rows = open(file, None, Wanted::TEXTS, &columns)?;
    let mut survey = Survey { columns: names.into_iter().map(SurveyedColumn::new).collect(), rows: 0, whole: false };
    while survey.rows < SURVEYED_ROWS {
        let Some(mut row) = rows.next()? else {
            survey.whole = true;
            break;
        };
        let cells = row.cells(file, &columns)?;
        survey.rows += 1;
        survey.columns.iter_mut().zip(&cells).for_each(|(column, cell)| column.take(cell));
    }
    if survey.rows == 0 {
        return Err(DataError::Empty { file: file.into(), what: "rows" });
    }
    Ok(survey)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::table::tests::{file, mutated};

    #[test]
    fn columns_of_every_format_are_told_apart() {
        let csv = "word,n,day\n\"a, b\",1.5,mon\nlonger text,2,tue\nx,,mon\ny,4,tue\n";
        let jsonl = "{\"word\": \"a, b\", \"n\": 1.5, \"day\": \"mon\"}\n{\"word\": \"longer text\", \"n\": 2, \
                     \"day\": \"tue\"}\n{\"word\": \"x\", \"n\": null, \"day\": \"mon\"}\n{\"word\": \"y\", \"n\": 4, \
                     \"day\": \"tue\"}\n";
        for (name, text) in [("a.csv", csv), ("a.jsonl", jsonl)] {
            let (_dir, path) = file(name, text);
            let survey = survey(&path).unwrap();
            assert!(survey.whole && survey.rows == 4, "{survey:?}");
            let column = |name: &str| survey.columns.iter().find(|c| c.name == name).unwrap();
            let (word, n, day) = (column("word"), column("n"), column("day"));
            assert!(word.is_text() && word.classes().is_none() && word.longest == 11, "{word:?}");
            assert!(n.is_numeric() && n.missing == 1 && n.classes().is_none(), "{n:?}");
            assert_eq!(day.classes().unwrap().len(), 2);
        }
    }

    #[test]
    fn long_files_are_looked_at_in_part_and_many_values_are_no_classes() {
        let rows: String = (0..SURVEYED_ROWS + 5).map(|i| format!("{i},{}\n", i % 3)).collect();
        let (_dir, path) = file("a.csv", format!("id,y\n{rows}"));
        let survey = survey(&path).unwrap();
        assert!(!survey.whole && survey.rows == SURVEYED_ROWS);
        assert!(survey.columns[0].classes().is_none());
        assert_eq!(survey.columns[1].classes().unwrap().len(), 3);
    }

    #[test]
    fn damaged_and_empty_files_are_errors_or_surveys_never_panics() {
        let text = "a,b\n1,x\n2,y\n";
        for seed in 0..300 {
            for name in ["a.csv", "a.jsonl", "a.parquet"] {
                let (_dir, path) = file(name, mutated(text, seed));
                let _ = survey(&path);
            }
        }
        for (name, text) in [("a.csv", ""), ("a.csv", "a,b\n"), ("a.jsonl", ""), ("a.parquet", ""), ("a.doc", "x")] {
            let (_dir, path) = file(name, text);
            assert!(survey(&path).is_err(), "{name}: {text:?}");
        }
    }
}
