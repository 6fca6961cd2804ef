//! Rows and their cells, whatever file they come from.

use super::object;
use crate::{DataError, Place};
use serde_json::Value;
use std::{borrow::Cow, collections::HashMap, path::Path};

/// A cell. Formats without types (CSV) know texts only, and nothing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell<'a> {
    Missing,
    Text(Cow<'a, str>),
    Number(f64),
    List(Vec<Cell<'a>>),
    /// A number to its last digit, of a column that is only carried along.
    Exact(Value),
    Other(&'static str),
}

impl Cell<'_> {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Cell::Missing => "nothing",
            Cell::Text(_) => "a text",
            Cell::Number(_) => "a number",
            Cell::List(_) => "a list",
            Cell::Exact(_) => "a value",
            Cell::Other(kind) => kind,
        }
    }

    pub(crate) fn into_owned(self) -> Cell<'static> {
        match self {
            Cell::Missing => Cell::Missing,
            Cell::Text(text) => Cell::Text(Cow::Owned(text.into_owned())),
            Cell::Number(number) => Cell::Number(number),
            Cell::List(items) => Cell::List(items.into_iter().map(Cell::into_owned).collect()),
            Cell::Exact(value) => Cell::Exact(value),
            Cell::Other(kind) => Cell::Other(kind),
        }
    }
}

/// A row as the file has it, and where.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub place: Place,
    /// Where it lies in the file; 0 where rows have no place of their own.
    pub offset: u64,
    pub bytes: u32,
    pub content: Content<'a>,
}

#[derive(Debug)]
pub(crate) enum Content<'a> {
    /// An object, parsed by the worker that takes it.
    Json(Cow<'a, [u8]>),
    /// Those of the columns selected, in their order.
    Cells(Vec<Cell<'a>>),
    /// An error of this row alone.
    Broken(DataError),
}

impl Row<'_> {
    /// Takes the cells of `columns`, those that the reader was asked for.
    pub(crate) fn cells(&mut self, file: &Path, columns: &Columns) -> Result<Vec<Cell<'_>>, DataError> {
        match &mut self.content {
            Content::Cells(cells) => Ok(std::mem::take(cells)),
            Content::Json(bytes) => object::cells(bytes, columns)
                .map_err(|error| object::explain(file, self.place, self.offset, bytes, &error)),
            broken @ Content::Broken(_) => match std::mem::replace(broken, Content::Cells(Vec::new())) {
                Content::Broken(error) => Err(error),
                _ => Ok(Vec::new()),
            },
        }
    }

    /// The row by itself, to be sent elsewhere while its reader goes on.
    pub(crate) fn into_owned(self) -> Row<'static> {
        let content = match self.content {
            Content::Json(bytes) => Content::Json(Cow::Owned(bytes.into_owned())),
            Content::Cells(cells) => Content::Cells(cells.into_iter().map(Cell::into_owned).collect()),
            Content::Broken(error) => Content::Broken(error),
        };
        Row { place: self.place, offset: self.offset, bytes: self.bytes, content }
    }
}

/// Names of columns, found without looking at each.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    names: Vec<String>,
    index: HashMap<String, usize>,
    /// Places that ask for a column again: (where it is asked for first, where again).
    repeated: Vec<(usize, usize)>,
    /// A column whose numbers keep every digit.
    exact: Option<usize>,
}

impl Columns {
    pub(crate) fn new(names: impl IntoIterator<Item = String>) -> Self {
        let names: Vec<String> = names.into_iter().collect();
        let (mut index, mut repeated) = (HashMap::with_capacity(names.len()), Vec::new());
        for (at, name) in names.iter().enumerate() {
            match index.get(name) {
                Some(&first) => repeated.push((first, at)),
                None => {
                    index.insert(name.clone(), at);
                }
            }
        }
        Columns { names, index, repeated, exact: None }
    }

    /// The same, with the numbers of the last column to their last digit.
    pub(crate) fn with_exact_last(self) -> Self {
        let last = self.names.len().checked_sub(1);
        // A column that is asked for twice has one kind of cells.
        let exact = last.filter(|last| self.repeated.iter().all(|(_, again)| again != last));
        Columns { exact, ..self }
    }

    /// Whether the numbers of a column keep every digit.
    pub(super) fn is_exact(&self, column: usize) -> bool {
        self.exact == Some(column)
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// The first place of a name; `likely` is looked at first, because rows usually have the same order.
    pub(crate) fn find(&self, name: &str, likely: usize) -> Option<usize> {
        match self.names.get(likely) {
            Some(found) if found == name => {
                self.repeated.is_empty().then_some(likely).or_else(|| self.index.get(name).copied())
            }
            _ => self.index.get(name).copied(),
        }
    }

    /// Copies cells to the other places of their columns.
    pub(crate) fn repeat(&self, cells: &mut [Cell<'_>]) {
        for &(first, again) in &self.repeated {
            cells[again] = cells[first].clone();
        }
    }
}
