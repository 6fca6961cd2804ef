//! Where the tokens of texts are: all in memory, or still in the file.

use crate::{
    DataError, Place,
    formats::{Cell, Columns, Reread, Row, RowReader},
};
use std::{
    fmt,
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

/// Ids of many texts, one after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens {
    ids: Vec<u32>,
    /// Where each text ends.
    ends: Vec<usize>,
}

impl Tokens {
    pub(super) fn push(&mut self, ids: &[u32]) {
        self.ids.extend_from_slice(ids);
        self.ends.push(self.ids.len());
    }

    pub(super) fn get(&self, text: usize) -> &[u32] {
        let start = if text == 0 { 0 } else { self.ends[text - 1] };
        &self.ids[start..self.ends[text]]
    }

    pub(super) fn shrink(&mut self) {
        self.ids.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    pub(super) fn resident_bytes(&self) -> usize {
        4 * self.ids.len() + size_of::<usize>() * self.ends.len()
    }
}

/// Rows that stay in their file; only their places are kept.
pub(super) struct Stream {
    path: PathBuf,
    file: File,
    columns: Columns,
    reread: Reread,
    offsets: Vec<u64>,
    bytes: Vec<u32>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows of {}", self.offsets.len(), self.path.display())
    }
}

impl Stream {
    /// For a file of more than `most_bytes`, too large to be tokenized before training, if its rows can be read one by
    /// one. Parquet packs rows: its texts are tokenized while it is read, and only tokens are kept.
    pub(super) fn of_large(
        path: &Path,
        most_bytes: u64,
        columns: &Columns,
        open: impl FnOnce() -> Result<Box<dyn RowReader>, DataError>,
    ) -> Result<Option<Self>, DataError> {
        if !std::fs::metadata(path).is_ok_and(|m| m.len() > most_bytes) {
            return Ok(None);
        }
        let Some(reread) = open()?.reread() else { return Ok(None) };
        let file = File::open(path).map_err(|source| DataError::Unreadable { file: path.into(), source })?;
        let (path, columns) = (path.into(), columns.clone());
        Ok(Some(Stream { path, file, columns, reread, offsets: Vec::new(), bytes: Vec::new() }))
    }

    pub(super) fn push(&mut self, offset: u64, bytes: u32) {
        self.offsets.push(offset);
        self.bytes.push(bytes);
    }

    /// Bytes of a row: about how long its texts are.
    pub(super) fn size(&self, row: usize) -> usize {
        self.bytes[row] as usize
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a row; several threads may.
    pub(super) fn cells(&self, row: usize) -> Result<(Place, Vec<Cell<'static>>), DataError> {
        let mut bytes = vec![0; self.bytes[row] as usize];
        let read = self.file.read_exact_at(&mut bytes, self.offsets[row]);
        read.map_err(|source| DataError::Unreadable { file: self.path.clone(), source })?;
        let place = Place::Row(row as u64 + 1);
        let content = (self.reread)(bytes);
        let mut row = Row { place, offset: self.offsets[row], bytes: self.bytes[row], content };
        let cells = row.cells(&self.path, &self.columns)?;
        Ok((place, cells.into_iter().map(Cell::into_owned).collect()))
    }

    pub(super) fn resident_bytes(&self) -> usize {
        self.offsets.len() * (size_of::<u64>() + size_of::<u32>())
    }
}
