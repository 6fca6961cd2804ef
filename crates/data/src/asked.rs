//! Rows of a file that a model is asked about: which row a sample is, what it is called there, and why others have no
//! answer. Nothing of the file is lost on the way.

use crate::{DataError, formats::Cell};
use serde_json::Value;

/// Which rows of a file the samples are, and which rows are none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// Of each sample its row of the file, from 0.
    rows: Vec<u32>,
    /// Of each sample what its row is called; empty where nobody asked for it.
    ids: Vec<Value>,
    unanswered: Vec<Unanswered>,
}

/// A row that has no answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Unanswered {
    /// From 0.
    pub row: usize,
    pub id: Option<Value>,
    pub cause: String,
}

/// What a row is called, and what became of it.
pub(crate) struct Named<T> {
    pub id: Option<Value>,
    pub outcome: Result<T, DataError>,
}

impl Asked {
    /// The row of the file that a sample is, from 0.
    pub fn row(&self, sample: usize) -> usize {
        self.rows[sample] as usize
    }

    /// What the row of a sample is called, where the file has a column for it.
    pub fn id(&self, sample: usize) -> Option<&Value> {
        self.ids.get(sample).filter(|id| !id.is_null())
    }

    /// Rows without an answer, in file order.
    pub fn unanswered(&self) -> &[Unanswered] {
        &self.unanswered
    }

    pub(crate) fn push(&mut self, row: usize, id: Option<Value>) {
        self.rows.push(row as u32);
        // Rows before this one had none.
        if id.is_some() || !self.ids.is_empty() {
            self.ids.resize(self.rows.len() - 1, Value::Null);
            self.ids.push(id.unwrap_or_default());
        }
    }

    pub(crate) fn refuse(&mut self, row: usize, id: Option<Value>, cause: &DataError) {
        self.unanswered.push(Unanswered { row, id, cause: cause.to_string() });
    }

    /// Keeps what became of a row, or the reason why there is nothing to keep.
    pub(crate) fn take<T>(
        &mut self,
        row: usize,
        worked: Result<Named<T>, DataError>,
        keep: impl FnOnce(T) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let Named { id, outcome } = worked.unwrap_or_else(|error| Named { id: None, outcome: Err(error) });
        match outcome.and_then(keep) {
            Ok(()) => self.push(row, id),
            Err(error) if error.is_of_a_row() => self.refuse(row, id, &error),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// What a row is called, as its file says it: an integer stays one to its last digit.
pub(crate) fn id_of(cell: Cell<'_>) -> Option<Value> {
    match cell {
        Cell::Text(text) => Some(Value::from(text.as_ref())),
        Cell::Number(number) if number.fract() == 0.0 && number.abs() < 9.0e15 => Some(Value::from(number as i64)),
        Cell::Number(number) => Some(Value::from(number)),
        Cell::Exact(value) => Some(value),
        Cell::Missing | Cell::List(_) | Cell::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_their_rows_even_where_some_have_none() {
        let mut asked = Asked::default();
        asked.push(0, None);
        asked.push(3, Some("c".into()));
        asked.push(4, None);
        assert_eq!(
            [0, 1, 2].map(|s| (asked.row(s), asked.id(s).cloned())),
            [(0, None), (3, Some("c".into())), (4, None)]
        );
    }

    #[test]
    fn whole_numbers_stay_whole() {
        assert_eq!(id_of(Cell::Number(17.0)), Some(Value::from(17)));
        assert_eq!(id_of(Cell::Number(0.5)), Some(Value::from(0.5)));
        assert_eq!(id_of(Cell::Text("007".into())), Some(Value::from("007")));
        assert_eq!(id_of(Cell::Exact(Value::from(u64::MAX))), Some(Value::from(u64::MAX)));
        assert_eq!(id_of(Cell::Missing), None);
    }
}
