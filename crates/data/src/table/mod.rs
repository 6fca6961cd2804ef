//! Columns of a CSV, JSONL or Parquet file, chosen by name and checked cell by cell while they are read.

mod csv;
mod jsonl;
mod parquet;

use super::{DataError, Place};
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

/// Which columns to read.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    /// Numeric columns in this order; `None`: all numeric columns of the file, in its order, but those in `others`.
    pub numbers: Option<Vec<String>>,
    /// Columns that may hold numbers or text (labels, time). A column may be in both lists.
    pub others: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Values {
    Numbers(Vec<f64>),
    Text(Vec<String>),
}

#[derive(Clone, Debug)]
struct Column {
    name: String,
    role: Role,
    values: Option<Values>,
    /// Rows without a value, as long as the column's type is open.
    missing: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    /// Must be numeric.
    Number,
    /// Numeric or text.
    Other,
    /// Kept if numeric, dropped if text.
    Candidate,
    Ignored,
}

pub(super) enum Cell<'a> {
    Missing,
    Number(f64),
    Text(&'a str),
}

#[derive(Debug)]
pub(super) struct Table {
    pub file: PathBuf,
    pub rows: usize,
    columns: Vec<Column>,
    /// Line of each row, for files that have lines.
    lines: Vec<u64>,
}

impl Table {
    pub fn read(file: &Path, selection: &Selection) -> Result<Table, DataError> {
        let extension = file.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        let table = match extension.as_deref() {
            Some("csv") => csv::read(file, selection)?,
            Some("jsonl" | "ndjson") => jsonl::read(file, selection)?,
            Some("parquet" | "pq") => parquet::read(file, selection)?,
            _ => return Err(DataError::UnknownFormat { file: file.into(), wanted: "a series" }),
        };
        if table.rows == 0 {
            return Err(DataError::Empty { file: file.into(), what: "rows" });
        }
        Ok(table)
    }

    /// A table with the columns `names` of the file, as `selection` wants them.
    fn new(file: &Path, names: Vec<String>, selection: &Selection) -> Result<Table, DataError> {
        let mut wanted = selection.numbers.iter().flatten().chain(&selection.others);
        if let Some(column) = wanted.find(|wanted| !names.contains(wanted)) {
            return Err(DataError::MissingColumn { file: file.into(), column: column.clone(), columns: names });
        }
        let columns = names.into_iter().map(|name| {
            let role = role(&name, selection);
            Column { name, role, values: None, missing: 0 }
        });
        let table = Table { file: file.into(), rows: 0, columns: columns.collect(), lines: Vec::new() };
        table.refuse_twins()?;
        Ok(table)
    }

    /// Columns are asked for by name, so names must tell them apart.
    fn refuse_twins(&self) -> Result<(), DataError> {
        let mut seen = HashSet::new();
        let mut wanted = self.columns.iter().filter(|column| column.role != Role::Ignored);
        match wanted.find(|column| !seen.insert(column.name.as_str())) {
            None => Ok(()),
            Some(Column { name, .. }) => Err(DataError::Malformed {
                file: self.file.clone(),
                place: Place::Line(1),
                cause: format!("two columns are called `{name}`"),
            }),
        }
    }

    /// A table made by code; all columns have the same length and hold finite values.
    pub fn made(source: &str, columns: Vec<(String, Vec<f64>)>) -> Table {
        let rows = columns.first().map_or(0, |(_, values)| values.len());
        let columns = columns.into_iter().map(|(name, values)| Column {
            name,
            role: Role::Number,
            values: Some(Values::Numbers(values)),
            missing: 0,
        });
        Table { file: source.into(), rows, columns: columns.collect(), lines: Vec::new() }
    }

    pub fn place(&self, row: usize) -> Place {
        self.lines.get(row).map_or(Place::Row(row as u64 + 1), |&line| Place::Line(line))
    }

    /// The columns that are features: the list of the selection, or the numeric ones, in file order.
    pub fn number_names(&self, selection: &Selection) -> Vec<String> {
        let numeric = |column: &&Column| {
            matches!(column.values, Some(Values::Numbers(_))) && !selection.others.contains(&column.name)
        };
        let found = || self.columns.iter().filter(numeric).map(|column| column.name.clone()).collect();
        selection.numbers.clone().unwrap_or_else(found)
    }

    /// A column of the selection.
    pub fn column(&self, name: &str) -> Result<&Values, DataError> {
        let column = self.columns.iter().find(|column| column.name == name);
        column.and_then(|column| column.values.as_ref()).ok_or_else(|| DataError::MissingColumn {
            file: self.file.clone(),
            column: name.into(),
            columns: self.columns.iter().map(|column| column.name.clone()).collect(),
        })
    }

    /// A numeric column of the selection.
    pub fn numbers(&self, name: &str) -> Result<&[f64], DataError> {
        match self.column(name)? {
            Values::Numbers(values) => Ok(values),
            Values::Text(values) => Err(DataError::NotNumeric {
                file: self.file.clone(),
                place: self.place(0),
                column: name.into(),
                content: shorten(values.first().map_or("", String::as_str)),
            }),
        }
    }

    fn wants(&self, column: usize) -> bool {
        self.columns[column].role != Role::Ignored
    }

    /// Takes the cell of `column` in the row at `place`.
    fn push(&mut self, column: usize, place: Place, cell: Cell<'_>) -> Result<(), DataError> {
        let Err(fault) = self.columns[column].push(cell) else { return Ok(()) };
        let (file, first, column) = (self.file.clone(), self.place(0), self.columns[column].name.clone());
        Err(match fault {
            Fault::NotFinite(value) => DataError::NotFinite { file, place, column, value },
            Fault::NotNumeric(content) => DataError::NotNumeric { file, place, column, content },
            Fault::Missing => DataError::MissingValue { file, place, column },
            Fault::MissingBefore => DataError::MissingValue { file, place: first, column },
        })
    }

    fn end_row(&mut self, line: Option<u64>) {
        self.rows += 1;
        self.lines.extend(line);
    }

    /// Columns that were demanded but never had a value are errors; undemanded ones are dropped.
    fn finish(self) -> Result<Table, DataError> {
        let hollow = |column: &&Column| {
            matches!(column.role, Role::Number | Role::Other) && column.values.is_none() && column.missing > 0
        };
        match self.columns.iter().find(hollow) {
            Some(column) => Err(DataError::MissingValue {
                file: self.file.clone(),
                place: self.place(0),
                column: column.name.clone(),
            }),
            None => Ok(self),
        }
    }
}

fn role(name: &String, selection: &Selection) -> Role {
    match &selection.numbers {
        Some(numbers) if numbers.contains(name) => Role::Number,
        _ if selection.others.contains(name) => Role::Other,
        None => Role::Candidate,
        Some(_) => Role::Ignored,
    }
}

/// Why a column refuses a cell.
enum Fault {
    NotFinite(f64),
    NotNumeric(String),
    Missing,
    /// All cells before this one, beginning with the first, were missing.
    MissingBefore,
}

impl Column {
    /// The first value decides whether a column holds numbers or text.
    fn push(&mut self, cell: Cell<'_>) -> Result<(), Fault> {
        match (cell, &mut self.values) {
            _ if self.role == Role::Ignored => {}
            (Cell::Number(value), _) if !value.is_finite() => return Err(Fault::NotFinite(value)),
            (Cell::Missing, None) => self.missing += 1,
            (Cell::Missing, Some(_)) => return Err(Fault::Missing),
            (Cell::Text(text), Some(Values::Numbers(_))) => return Err(Fault::NotNumeric(shorten(text))),
            (Cell::Text(text), Some(Values::Text(values))) => values.push(text.into()),
            (Cell::Number(value), Some(Values::Numbers(values))) => values.push(value),
            // Among words, `7` is a word too.
            (Cell::Number(value), Some(Values::Text(values))) => values.push(value.to_string()),
            (Cell::Text(_), None) if self.role == Role::Candidate => self.role = Role::Ignored,
            (Cell::Text(text), None) if self.role == Role::Number => return Err(Fault::NotNumeric(shorten(text))),
            (_, None) if self.missing > 0 => return Err(Fault::MissingBefore),
            (Cell::Text(text), None) => self.values = Some(Values::Text(vec![text.into()])),
            (Cell::Number(value), None) => self.values = Some(Values::Numbers(vec![value])),
        }
        Ok(())
    }
}

/// Cells are quoted in messages: the first characters are enough to find them.
fn shorten(text: &str) -> String {
    const SHOWN: usize = 40;
    if text.chars().count() <= SHOWN { text.into() } else { text.chars().take(SHOWN).chain(['…']).collect() }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use plimsoll_base::random::mix;
    use std::fs;

    /// Writes `content` to a fresh file called `name`.
    pub fn file(name: &str, content: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        (folder, path)
    }

    /// `text` with up to three bytes changed, dropped or doubled, by `seed`.
    pub fn mutated(text: &str, seed: u64) -> Vec<u8> {
        let mut bytes = text.as_bytes().to_vec();
        for change in 0..1 + seed % 3 {
            let draw = mix(seed * 3 + change + 1);
            let at = (draw >> 16) as usize % bytes.len();
            match draw % 4 {
                0 => drop(bytes.remove(at)),
                1 => bytes.insert(at, bytes[at]),
                2 => bytes[at] = (draw >> 8) as u8,
                _ => bytes[at] = b"0-.,\"\n{e"[(draw >> 8) as usize % 8],
            }
        }
        bytes
    }

    pub fn read(
        name: &str,
        content: impl AsRef<[u8]>,
        numbers: Option<&[&str]>,
        others: &[&str],
    ) -> Result<Table, DataError> {
        let (_folder, path) = file(name, content);
        let names = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        Table::read(&path, &Selection { numbers: numbers.map(names), others: names(others) })
    }

    #[test]
    fn unknown_extensions_and_missing_files_are_told_apart() {
        assert!(matches!(read("a.xlsx", "", None, &[]), Err(DataError::UnknownFormat { .. })));
        let missing = Table::read(Path::new("/nowhere/a.csv"), &Selection::default());
        assert!(matches!(missing, Err(DataError::Unreadable { .. })));
    }

    #[test]
    fn equal_names_are_refused_only_where_wanted() {
        assert!(matches!(read("a.csv", "a,b,a\n1,2,3\n", None, &[]), Err(DataError::Malformed { .. })));
        assert!(matches!(read("a.jsonl", "{\"a\":1,\"a\":2}\n", None, &[]), Err(DataError::Malformed { .. })));
        assert!(read("a.csv", "a,b,a\n1,2,3\n", Some(&["b"]), &[]).is_ok());
    }

    #[test]
    fn a_column_can_be_feature_and_label_source_at_once() {
        let table = read("a.csv", "a,b\n1,2\n3,4\n", Some(&["b", "a"]), &["a"]).unwrap();
        assert_eq!(table.numbers("a").unwrap(), [1.0, 3.0]);
        assert_eq!(table.numbers("b").unwrap(), [2.0, 4.0]);
    }
}
