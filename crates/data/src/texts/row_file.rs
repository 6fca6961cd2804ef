//! Rows of a file, one after the other on the caller's thread, for whoever only looks at it.

use super::rows::{Cell, Content, RowReader, parse_json};
use crate::DataError;
use std::path::{Path, PathBuf};

pub(crate) struct RowFile {
    file: PathBuf,
    columns: Vec<String>,
    rows: RowReader,
}

impl RowFile {
    /// The columns of a file, in its order: what it answers to whoever asks for one that it does not have.
    pub fn names(file: &Path) -> Result<Vec<String>, DataError> {
        let nobodys = ["\0".to_string()];
        match RowReader::open(file, &nobodys).and_then(|mut rows| rows.next()) {
            Err(DataError::MissingColumn { columns, .. }) => Ok(columns),
            Err(error) => Err(error),
            Ok(Some(row)) => match row.content {
                Content::Broken(error) => Err(error),
                Content::Json(line) => {
                    Err(parse_json(file, row.place, &line, &nobodys).err().unwrap_or_else(|| empty(file)))
                }
                Content::Cells(_) => Err(empty(file)),
            },
            Ok(None) => Err(empty(file)),
        }
    }

    pub fn open(file: &Path, columns: &[String]) -> Result<Self, DataError> {
        Ok(Self { file: file.into(), columns: columns.to_vec(), rows: RowReader::open(file, columns)? })
    }

    /// The cells of the next row, in the order of the columns; `None` at the end of the file.
    pub fn next(&mut self) -> Result<Option<Vec<Cell>>, DataError> {
        let Some(row) = self.rows.next()? else { return Ok(None) };
        match row.content {
            Content::Json(line) => parse_json(&self.file, row.place, &line, &self.columns).map(Some),
            Content::Cells(cells) => Ok(Some(cells)),
            Content::Broken(error) => Err(error),
        }
    }
}

fn empty(file: &Path) -> DataError {
    DataError::Empty { file: file.into(), what: "rows" }
}
