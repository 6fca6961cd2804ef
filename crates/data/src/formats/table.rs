//! Columns of a file, chosen by name and checked cell by cell while they are read.

use super::{
    lines::RowLines,
    looks::{has_decimal_comma, stands_for_nothing},
    words::WordColumn,
};
use crate::{
    DataError, Place,
    formats::{Cell, Columns, Row, RowReader},
    problems::Problems,
};
use plimsoll_base::formats::Format;
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
    /// Columns that may hold numbers or text (labels). A column may be in both lists.
    pub others: Vec<String>,
    /// The column that must not go backwards. It is looked at while it is read, and kept only if it is in a list.
    pub ordered: Option<String>,
    /// Numeric columns that are kept however many rows there are, beside those in `others`.
    pub kept: Vec<String>,
    /// Numbers that are kept at most. In larger files they are counted and checked, and read again a few columns at a
    /// time: a series is held once, in the form that training wants.
    pub most_numbers: MostNumbers,
    /// Which rows are kept though they lack something: as NaN, or as an empty text.
    pub keeps: Keeps,
}

/// What may be wrong with a cell of a row that is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Keeps {
    #[default]
    Nothing,
    /// There is no value.
    Gaps,
    /// There is none that can be used.
    Faults,
}

/// 64 MiB of numbers unless it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MostNumbers(pub usize);

impl Default for MostNumbers {
    fn default() -> MostNumbers {
        MostNumbers(8 << 20)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    /// None where there were too many to keep.
    Numbers(Vec<f64>),
    Text(WordColumn),
}

#[derive(Clone, Debug)]
struct Column {
    name: String,
    role: Role,
    values: Option<Values>,
    store: Keeping,
    /// Values so far.
    count: usize,
    /// The value before, where values must not go backwards.
    before: Option<Moment>,
    is_ordered: bool,
    /// Rows without a value, as long as the column's type is open.
    missing: u64,
    /// Rows without a value, in order.
    gaps: Vec<u32>,
}

/// Whether values are kept, or only counted and checked.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Keeping {
    Always,
    /// As long as the table has few numbers.
    WhileFew,
    Never,
}

/// A value of a column that is ordered by time.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
pub(crate) enum Moment {
    Number(f64),
    Text(String),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    /// Must be numeric.
    Number,
    /// Numeric or text.
    Other,
    /// Numeric or text, looked at and not kept.
    Ordered,
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
    lines: RowLines,
    /// As the file was read: to read columns again that were too many to keep.
    pub(super) format: Option<Format>,
    most_numbers: usize,
    /// Numbers that are kept.
    numbers: usize,
    is_whole: bool,
    keeps: Keeps,
    /// What is wrong with rows: all of it is told at once.
    problems: Problems,
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
        let cells = match row.cells(&self.file, &choice.columns) {
            Ok(cells) => cells,
            Err(error) => return self.problems.note(error),
        };
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
        let mut wanted = selection.numbers.iter().flatten().chain(&selection.others).chain(&selection.ordered);
        if let Some(column) = wanted.find(|wanted| !index.contains_key(*wanted)) {
            return Err(DataError::missing_column(file, column, &names));
        }
        let roles = Roles::new(selection);
        let columns: Vec<Column> =
            names.into_iter().map(|name| Column::new(roles.of(&name), name, selection)).collect();
        let candidates = columns.iter().filter(|column| column.role == Role::Candidate).count();
        let (most_numbers, keeps) = (selection.most_numbers.0, selection.keeps);
        let table = Table { most_numbers, keeps, ..Table::empty(file, columns, index, candidates) };
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
                hint: "rename one of them, or list the feature columns without it with data.columns",
            }),
        }
    }

    /// A table made by code; all columns have the same length and hold finite values.
    pub(crate) fn made(source: &str, columns: Vec<(String, Vec<f64>)>) -> Table {
        let rows = columns.first().map_or(0, |(_, values)| values.len());
        let index = columns.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)).collect();
        let column = |(name, values): (String, Vec<f64>)| Column {
            count: values.len(),
            values: Some(Values::Numbers(values)),
            ..Column::new(Role::Number, name, &Selection::default())
        };
        let columns = columns.into_iter().map(column).collect();
        Table { rows, ..Table::empty(source.as_ref(), columns, index, 0) }
    }

    fn empty(file: &Path, columns: Vec<Column>, index: HashMap<String, usize>, candidates: usize) -> Table {
        Table {
            file: file.into(),
            rows: 0,
            columns,
            index,
            candidates,
            lines: RowLines::default(),
            format: None,
            most_numbers: MostNumbers::default().0,
            numbers: 0,
            is_whole: true,
            keeps: Keeps::Nothing,
            problems: Problems::default(),
        }
    }

    pub(crate) fn place(&self, row: usize) -> Place {
        self.lines.get(row).map_or(Place::Row(row as u64 + 1), Place::Line)
    }

    /// The columns that are features: the list of the selection, or the numeric ones, in file order.
    pub(crate) fn number_names(&self, selection: &Selection) -> Vec<String> {
        let numeric = |column: &&Column| {
            let named = selection.others.contains(&column.name) || selection.ordered.as_ref() == Some(&column.name);
            matches!(column.values, Some(Values::Numbers(_))) && !named
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

    /// A numeric column of the selection, where it is kept.
    pub(crate) fn numbers(&self, name: &str) -> Result<&[f64], DataError> {
        match self.column(name)? {
            Values::Numbers(values) => Ok(values),
            Values::Text(values) => Err(DataError::NotNumeric {
                file: self.file.clone(),
                place: self.place(0),
                column: name.into(),
                content: shorten(values.get(0).unwrap_or_default()),
            }),
        }
    }

    /// Hands out the numeric columns `names` one after the other, with their places among them. Those that are not kept
    /// are read again, some at a time.
    pub(crate) fn for_each_column(
        &self,
        names: &[String],
        mut each: impl FnMut(usize, &[f64]) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let at_once = self.columns_at_once(names.len());
        for (group, names) in names.chunks(at_once).enumerate() {
            let part = if self.is_whole { None } else { Some(self.read_again(names)?) };
            for (at, name) in names.iter().enumerate() {
                each(group * at_once + at, part.as_ref().unwrap_or(self).numbers(name)?)?;
            }
        }
        Ok(())
    }

    /// As many as take half the memory of the finished series, or as few bytes as are kept anyway.
    fn columns_at_once(&self, columns: usize) -> usize {
        match self.is_whole {
            true => columns.max(1),
            false => (self.most_numbers / self.rows.max(1)).max(columns / 4).max(1),
        }
    }

    fn read_again(&self, names: &[String]) -> Result<Table, DataError> {
        let most_numbers = MostNumbers(usize::MAX);
        let (numbers, keeps) = (Some(names.to_vec()), self.keeps);
        let selection = Selection { numbers, most_numbers, keeps, ..Selection::default() };
        let table = super::table(&self.file, self.format, &selection)?;
        match table.rows == self.rows {
            true => Ok(table),
            false => Err(DataError::Unreadable {
                file: self.file.clone(),
                source: std::io::Error::other("it changed while it was read"),
            }),
        }
    }

    /// From now on numbers are counted and checked only, but for those that must be kept.
    fn let_go(&mut self) {
        self.is_whole = false;
        for column in self.columns.iter_mut().filter(|column| column.store == Keeping::WhileFew) {
            column.store = Keeping::Never;
            if let Some(Values::Numbers(values)) = &mut column.values {
                *values = Vec::new();
            }
        }
    }

    /// Rows that lack a value in a column of the selection, in order.
    pub(crate) fn gaps(&self, name: &str) -> &[u32] {
        self.index.get(name).map_or(&[], |&at| &self.columns[at].gaps)
    }

    /// Columns that nobody named and that hold no numbers.
    pub(crate) fn left_out(&self) -> Vec<String> {
        let is_left_out = |column: &&Column| column.role == Role::Ignored || column.values.is_none();
        self.columns.iter().filter(is_left_out).map(|column| column.name.clone()).collect()
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
        let length = |column: &Column| if column.values.is_some() { column.count } else { self.rows };
        let wanted = self.columns.iter().filter(|column| column.role != Role::Ignored);
        wanted.map(|column| (column.name.as_str(), length(column))).find(|(_, rows)| *rows != self.rows)
    }

    /// Takes the cell of `column` in the row at `place`. What is wrong with it is remembered: all is told at the end.
    pub(crate) fn push(&mut self, column: usize, place: Place, cell: Cell<'_>) -> Result<(), DataError> {
        let cell = self.columns[column].meant(cell);
        if self.columns[column].is_of_words(&cell) {
            self.drop_candidate(column);
        }
        self.numbers += usize::from(self.columns[column].store == Keeping::WhileFew);
        if self.is_whole && self.numbers > self.most_numbers {
            self.let_go();
        }
        let Err(fault) = self.columns[column].push(cell) else { return Ok(()) };
        if self.keeps == Keeps::Faults && !matches!(fault, Fault::Backwards) {
            self.columns[column].push_gap();
            return Ok(());
        }
        self.columns[column].push_nothing();
        let (file, column) = (self.file.clone(), self.columns[column].name.clone());
        self.problems.note(match fault {
            Fault::NotFinite(value) => DataError::NotFinite { file, place, column, value },
            Fault::NotNumeric(content) if has_decimal_comma(&content) => {
                DataError::DecimalComma { file, place, column, content }
            }
            Fault::NotNumeric(content) if content.trim().parse::<f64>().is_ok() => {
                DataError::QuotedNumber { file, place, column, content }
            }
            Fault::NotNumeric(content) => DataError::NotNumeric { file, place, column, content },
            Fault::Backwards => DataError::Unsorted { file, place, column },
        })
    }

    pub(crate) fn end_row(&mut self, line: Option<u64>) {
        self.rows += 1;
        line.into_iter().for_each(|line| self.lines.push(line));
    }

    /// What is wrong with rows is told; columns that were demanded but never had a value are errors, undemanded ones are
    /// dropped.
    pub(crate) fn finish(mut self) -> Result<Table, DataError> {
        let mut problems = std::mem::take(&mut self.problems);
        let missing = |row: u32, column: &Column| DataError::MissingValue {
            file: self.file.clone(),
            place: self.place(row as usize),
            column: column.name.clone(),
        };
        let demanded = |column: &&Column| matches!(column.role, Role::Number | Role::Other | Role::Ordered);
        let is_used =
            |column: &&Column| demanded(column) || (column.role == Role::Candidate && column.values.is_some());
        if self.keeps == Keeps::Nothing {
            for column in self.columns.iter().filter(is_used) {
                column.gaps.iter().try_for_each(|&row| problems.note(missing(row, column)))?;
            }
        } else if let Some(column) = self.columns.iter().filter(demanded).find(|c| c.values.is_none() && c.missing > 0)
        {
            problems.note(missing(0, column))?;
        }
        problems.none_of(&self.file)?;
        Ok(self)
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
    ordered: Option<&'a str>,
}

impl<'a> Roles<'a> {
    fn new(selection: &'a Selection) -> Self {
        let set = |names: &'a Vec<String>| names.iter().map(String::as_str).collect();
        let ordered = selection.ordered.as_deref();
        Roles { numbers: selection.numbers.as_ref().map(set), others: set(&selection.others), ordered }
    }

    fn of(&self, name: &str) -> Role {
        match &self.numbers {
            Some(numbers) if numbers.contains(name) => Role::Number,
            _ if self.others.contains(name) => Role::Other,
            _ if self.ordered == Some(name) => Role::Ordered,
            None => Role::Candidate,
            Some(_) => Role::Ignored,
        }
    }
}

/// Why a column refuses a cell.
enum Fault {
    NotFinite(f64),
    NotNumeric(String),
    /// Less than the value before it.
    Backwards,
}

impl Column {
    fn new(role: Role, name: String, selection: &Selection) -> Column {
        let is_ordered = selection.ordered.as_ref() == Some(&name);
        let wanted = selection.others.contains(&name) || selection.kept.contains(&name);
        let store = match role {
            _ if wanted => Keeping::Always,
            Role::Number | Role::Candidate => Keeping::WhileFew,
            Role::Other | Role::Ordered | Role::Ignored => Keeping::Never,
        };
        Column { name, role, values: None, store, count: 0, before: None, is_ordered, missing: 0, gaps: Vec::new() }
    }

    /// Whether a cell that comes first shows that nobody counts with the column: a word. A number with a decimal comma is
    /// no word: a column of prices must not be left out in silence.
    fn is_of_words(&self, cell: &Cell<'_>) -> bool {
        self.values.is_none()
            && match cell {
                Cell::Number(_) | Cell::Missing => false,
                Cell::Text(text) => !has_decimal_comma(text),
                _ => true,
            }
    }

    /// The cell without what only stands for nothing. Among words, `none` is a word.
    fn meant<'a>(&self, cell: Cell<'a>) -> Cell<'a> {
        let is_number = match &self.values {
            Some(Values::Numbers(_)) => true,
            Some(Values::Text(_)) => false,
            None => matches!(self.role, Role::Number | Role::Candidate),
        };
        match &cell {
            Cell::Number(value) if value.is_nan() => Cell::Missing,
            Cell::Text(text) if is_number && stands_for_nothing(text) => Cell::Missing,
            Cell::Text(text) if text.trim().is_empty() => Cell::Missing,
            _ => cell,
        }
    }

    /// The first value decides whether a column holds numbers or text.
    fn push(&mut self, cell: Cell<'_>) -> Result<(), Fault> {
        match (cell, &self.values) {
            _ if self.role == Role::Ignored => Ok(()),
            (Cell::Number(value), _) if !value.is_finite() => Err(Fault::NotFinite(value)),
            (Cell::Missing, _) => {
                self.push_gap();
                Ok(())
            }
            (Cell::Text(text), Some(Values::Numbers(_))) => Err(Fault::NotNumeric(shorten(&text))),
            (Cell::Text(text), None) if matches!(self.role, Role::Number | Role::Candidate) => {
                Err(Fault::NotNumeric(shorten(&text)))
            }
            (Cell::Text(text), _) => self.add_text(&text),
            // Among words, `7` is a word too.
            (Cell::Number(value), Some(Values::Text(_))) => self.add_text(&value.to_string()),
            (Cell::Number(value), _) => self.add_number(value),
            // What is neither number nor text is quoted as a text that stands for it.
            (Cell::List(_), _) => self.push(Cell::Text("[…]".into())),
            (Cell::Exact(value), _) => self.push(value.as_f64().map_or(Cell::Missing, Cell::Number)),
            (Cell::Other(_), _) => self.push(Cell::Text("{…}".into())),
        }
    }

    fn add_number(&mut self, value: f64) -> Result<(), Fault> {
        self.follow(|| Moment::Number(value))?;
        let before = self.rows_before();
        let values = self.values.get_or_insert_with(|| Values::Numbers(vec![f64::NAN; before]));
        if let (Values::Numbers(values), true) = (values, self.store != Keeping::Never) {
            values.push(value);
        }
        Ok(())
    }

    fn add_text(&mut self, text: &str) -> Result<(), Fault> {
        self.follow(|| Moment::Text(text.into()))?;
        let before = self.rows_before();
        let values = self.values.get_or_insert_with(|| {
            let mut words = WordColumn::default();
            (0..before).for_each(|_| words.push(""));
            Values::Text(words)
        });
        if let (Values::Text(values), true) = (values, self.store != Keeping::Never) {
            values.push(text);
        }
        Ok(())
    }

    /// Rows without a value before the first one, which are kept with it.
    fn rows_before(&mut self) -> usize {
        if self.values.is_some() {
            return 0;
        }
        self.count += self.missing as usize;
        if self.store == Keeping::Never { 0 } else { self.missing as usize }
    }

    /// A row without a value keeps its place.
    fn push_nothing(&mut self) {
        let is_stored = self.store != Keeping::Never;
        match &mut self.values {
            _ if self.role == Role::Ignored => return,
            None => return self.missing += 1,
            Some(Values::Numbers(values)) if is_stored => values.push(f64::NAN),
            Some(Values::Text(values)) if is_stored => values.push(""),
            Some(_) => {}
        }
        self.count += 1;
    }

    /// The same, and that there is none is remembered.
    fn push_gap(&mut self) {
        self.push_nothing();
        let rows = if self.values.is_some() { self.count } else { self.missing as usize };
        if self.role != Role::Ignored {
            self.gaps.push(rows as u32 - 1);
        }
    }

    /// Counts a value, which must not lie before the one before it where values are ordered.
    fn follow(&mut self, moment: impl FnOnce() -> Moment) -> Result<(), Fault> {
        self.count += 1;
        if self.is_ordered {
            let moment = moment();
            if self.before.as_ref().is_some_and(|before| moment < *before) {
                return Err(Fault::Backwards);
            }
            self.before = Some(moment);
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
        let selection = Selection { numbers: numbers.map(names), others: names(others), ..Selection::default() };
        crate::formats::table(&path, None, &selection)
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
