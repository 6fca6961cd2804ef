//! Columns of a file, chosen by name and checked cell by cell while they are read.

use crate::{
    DataError, Place,
    formats::{Cell, Columns, Row, RowReader},
};
use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

/// Which columns to read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Numeric columns in this order; `None`: all numeric columns of the file, in its order, but those in `others`.
    pub numbers: Option<Vec<String>>,
    /// Columns that may hold numbers or text (labels, time). A column may be in both lists.
    pub others: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
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

#[derive(Debug)]
pub(crate) struct Table {
    pub file: PathBuf,
    pub rows: usize,
    columns: Vec<Column>,
    /// Where a column is, by its name.
    index: HashMap<String, usize>,
    /// Columns that may still turn out to be features.
    candidates: usize,
    /// Line of each row, for files that have lines.
    lines: Vec<u64>,
}

impl Table {
    /// Takes the rows of a reader.
    pub(crate) fn of_rows(file: &Path, reader: &mut dyn RowReader, selection: &Selection) -> Result<Table, DataError> {
        if reader.names().is_empty() {
            // Without rows, or with a first row that cannot be read, which says why.
            let first = reader.next()?.ok_or_else(|| DataError::Empty { file: file.into(), what: "rows" });
            first?.cells(file, &Columns::new([]))?;
        }
        let mut table = Table::new(file, reader.names().to_vec(), selection)?;
        let mut wanted = table.choose(reader)?;
        while let Some(mut row) = reader.next()? {
            let candidates = table.candidates;
            table.take(&mut row, &wanted)?;
            if table.candidates != candidates {
                wanted = table.choose(reader)?;
            }
        }
        table.finish()
    }

    /// Asks for the columns that are still wanted.
    fn choose(&self, reader: &mut dyn RowReader) -> Result<Choice, DataError> {
        let positions: Vec<usize> = (0..self.columns.len()).filter(|&column| self.wants(column)).collect();
        let columns = Columns::new(positions.iter().map(|&column| self.columns[column].name.clone()));
        reader.select(&columns)?;
        Ok(Choice { positions, columns, typed: reader.typed() })
    }

    fn take(&mut self, row: &mut Row<'_>, choice: &Choice) -> Result<(), DataError> {
        let place = row.place;
        let cells = row.cells(&self.file, &choice.columns)?;
        for (&column, cell) in choice.positions.iter().zip(cells) {
            self.push(column, place, if choice.typed { cell } else { typed(cell) })?;
        }
        self.end_row(if let Place::Line(line) = place { Some(line) } else { None });
        Ok(())
    }

    /// A table with the columns `names` of the file, as `selection` wants them.
    pub(crate) fn new(file: &Path, names: Vec<String>, selection: &Selection) -> Result<Table, DataError> {
        // The first of equal names counts, where only one of them is wanted at all.
        let index: HashMap<String, usize> =
            names.iter().cloned().enumerate().rev().map(|(at, name)| (name, at)).collect();
        let mut wanted = selection.numbers.iter().flatten().chain(&selection.others);
        if let Some(column) = wanted.find(|wanted| !index.contains_key(*wanted)) {
            return Err(DataError::missing_column(file, column, &names));
        }
        let roles = Roles::new(selection);
        let column = |name: String| Column { role: roles.of(&name), name, values: None, missing: 0 };
        let columns: Vec<Column> = names.into_iter().map(column).collect();
        let candidates = columns.iter().filter(|column| column.role == Role::Candidate).count();
        let table = Table { file: file.into(), rows: 0, columns, index, candidates, lines: Vec::new() };
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
    pub(crate) fn made(source: &str, columns: Vec<(String, Vec<f64>)>) -> Table {
        let rows = columns.first().map_or(0, |(_, values)| values.len());
        let index = columns.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)).collect();
        let columns = columns.into_iter().map(|(name, values)| Column {
            name,
            role: Role::Number,
            values: Some(Values::Numbers(values)),
            missing: 0,
        });
        Table { file: source.into(), rows, columns: columns.collect(), index, candidates: 0, lines: Vec::new() }
    }

    pub(crate) fn place(&self, row: usize) -> Place {
        self.lines.get(row).map_or(Place::Row(row as u64 + 1), |&line| Place::Line(line))
    }

    /// The columns that are features: the list of the selection, or the numeric ones, in file order.
    pub(crate) fn number_names(&self, selection: &Selection) -> Vec<String> {
        let numeric = |column: &&Column| {
            matches!(column.values, Some(Values::Numbers(_))) && !selection.others.contains(&column.name)
        };
        let found = || self.columns.iter().filter(numeric).map(|column| column.name.clone()).collect();
        selection.numbers.clone().unwrap_or_else(found)
    }

    /// A column of the selection.
    pub(crate) fn column(&self, name: &str) -> Result<&Values, DataError> {
        let column = self.index.get(name).map(|&at| &self.columns[at]);
        column.and_then(|column| column.values.as_ref()).ok_or_else(|| {
            let names: Vec<String> = self.columns.iter().map(|column| column.name.clone()).collect();
            DataError::missing_column(&self.file, name, &names)
        })
    }

    /// A numeric column of the selection.
    pub(crate) fn numbers(&self, name: &str) -> Result<&[f64], DataError> {
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

    /// Columns of the file, wanted or not.
    pub(crate) fn width(&self) -> usize {
        self.columns.len()
    }

    pub(crate) fn column_name(&self, column: usize) -> &str {
        &self.columns[column].name
    }

    pub(crate) fn wants(&self, column: usize) -> bool {
        self.columns[column].role != Role::Ignored
    }

    /// Leaves a column out that nobody named.
    pub(crate) fn drop_candidate(&mut self, column: usize) {
        if self.columns[column].role == Role::Candidate {
            self.columns[column].role = Role::Ignored;
            self.candidates -= 1;
        }
    }

    /// A wanted column of a damaged file that has another number of rows than the table, and this number.
    pub(crate) fn uneven(&self) -> Option<(&str, usize)> {
        let length = |column: &Column| match &column.values {
            Some(Values::Numbers(values)) => values.len(),
            Some(Values::Text(values)) => values.len(),
            None => self.rows,
        };
        let wanted = self.columns.iter().filter(|column| column.role != Role::Ignored);
        wanted.map(|column| (column.name.as_str(), length(column))).find(|(_, rows)| *rows != self.rows)
    }

    /// Takes the cell of `column` in the row at `place`.
    pub(crate) fn push(&mut self, column: usize, place: Place, cell: Cell<'_>) -> Result<(), DataError> {
        if !matches!(cell, Cell::Number(_) | Cell::Missing) && self.columns[column].values.is_none() {
            self.drop_candidate(column);
        }
        let Err(fault) = self.columns[column].push(cell) else { return Ok(()) };
        let (file, first, column) = (self.file.clone(), self.place(0), self.columns[column].name.clone());
        Err(match fault {
            Fault::NotFinite(value) => DataError::NotFinite { file, place, column, value },
            Fault::NotNumeric(content) => DataError::NotNumeric { file, place, column, content },
            Fault::Missing => DataError::MissingValue { file, place, column },
            Fault::MissingBefore => DataError::MissingValue { file, place: first, column },
        })
    }

    pub(crate) fn end_row(&mut self, line: Option<u64>) {
        self.rows += 1;
        self.lines.extend(line);
    }

    /// Columns that were demanded but never had a value are errors; undemanded ones are dropped.
    pub(crate) fn finish(self) -> Result<Table, DataError> {
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

/// What a table takes from each row.
struct Choice {
    positions: Vec<usize>,
    columns: Columns,
    typed: bool,
}

/// A cell of a file without types, with the type that it looks like.
fn typed(cell: Cell<'_>) -> Cell<'_> {
    let Cell::Text(text) = &cell else { return cell };
    match text.trim() {
        "" => Cell::Missing,
        word => match word.parse() {
            Ok(number) => Cell::Number(number),
            Err(_) if word.len() < text.len() => Cell::Text(Cow::Owned(word.into())),
            Err(_) => cell,
        },
    }
}

/// A selection, ready to be asked about many columns.
struct Roles<'a> {
    numbers: Option<HashSet<&'a str>>,
    others: HashSet<&'a str>,
}

impl<'a> Roles<'a> {
    fn new(selection: &'a Selection) -> Self {
        let set = |names: &'a Vec<String>| names.iter().map(String::as_str).collect();
        Roles { numbers: selection.numbers.as_ref().map(set), others: set(&selection.others) }
    }

    fn of(&self, name: &str) -> Role {
        match &self.numbers {
            Some(numbers) if numbers.contains(name) => Role::Number,
            _ if self.others.contains(name) => Role::Other,
            None => Role::Candidate,
            Some(_) => Role::Ignored,
        }
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
            (Cell::Text(text), Some(Values::Numbers(_))) => return Err(Fault::NotNumeric(shorten(&text))),
            (Cell::Text(text), Some(Values::Text(values))) => values.push(text.into_owned()),
            (Cell::Number(value), Some(Values::Numbers(values))) => values.push(value),
            // Among words, `7` is a word too.
            (Cell::Number(value), Some(Values::Text(values))) => values.push(value.to_string()),
            (Cell::Text(text), None) if self.role == Role::Number => return Err(Fault::NotNumeric(shorten(&text))),
            (_, None) if self.missing > 0 => return Err(Fault::MissingBefore),
            (Cell::Text(text), None) => self.values = Some(Values::Text(vec![text.into_owned()])),
            (Cell::Number(value), None) => self.values = Some(Values::Numbers(vec![value])),
            // What is neither number nor text is quoted as a text that stands for it.
            (Cell::List(_), _) => return self.push(Cell::Text("[…]".into())),
            (Cell::Other(_), _) => return self.push(Cell::Text("{…}".into())),
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
pub(crate) mod tests {
    use super::*;
    use plimsoll_base::random::mix;
    use std::fs;

    /// Writes `content` to a fresh file called `name`.
    pub(crate) fn file(name: &str, content: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        (folder, path)
    }

    /// `text` with up to three bytes changed, dropped or doubled, by `seed`.
    pub(crate) fn mutated(text: &str, seed: u64) -> Vec<u8> {
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

    pub(crate) fn read(
        name: &str,
        content: impl AsRef<[u8]>,
        numbers: Option<&[&str]>,
        others: &[&str],
    ) -> Result<Table, DataError> {
        let (_folder, path) = file(name, content);
        let names = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        crate::formats::table(&path, None, &Selection { numbers: numbers.map(names), others: names(others) })
    }

    #[test]
    fn unknown_extensions_and_missing_files_are_told_apart() {
        assert!(matches!(read("a.xlsx", "", None, &[]), Err(DataError::UnknownFormat { .. })));
        let missing = crate::formats::table(Path::new("/nowhere/a.csv"), None, &Selection::default());
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
