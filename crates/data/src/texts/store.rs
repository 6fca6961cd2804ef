//! Where the tokens of texts are: all in memory, or still in the file.

use super::rows::{Cell, Format, RowReader, parse_csv, parse_json};
use crate::{DataError, Place};
use std::{
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
    pub fn push(&mut self, ids: &[u32]) {
        self.ids.extend_from_slice(ids);
        self.ends.push(self.ids.len());
    }

    pub fn get(&self, text: usize) -> &[u32] {
        let start = if text == 0 { 0 } else { self.ends[text - 1] };
        &self.ids[start..self.ends[text]]
    }

    pub fn shrink(&mut self) {
        self.ids.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    pub fn resident_bytes(&self) -> usize {
        4 * self.ids.len() + size_of::<usize>() * self.ends.len()
    }
}

/// Rows that stay in their file; only their places are kept.
#[derive(Debug)]
pub(super) struct Stream {
    path: PathBuf,
    file: File,
    format: Format,
    columns: Vec<String>,
    /// Positions of the columns in a CSV file.
    wanted: Vec<usize>,
    offsets: Vec<u64>,
    bytes: Vec<u32>,
}

impl Stream {
    /// Whether rows of this file can be read one by one, and are too many to be tokenized before training.
    pub fn suits(path: &Path, most_bytes: u64) -> Result<bool, DataError> {
        let large = std::fs::metadata(path).is_ok_and(|m| m.len() > most_bytes);
        // Parquet packs rows: its texts are tokenized while it is read, and only tokens are kept.
        Ok(large && Format::of(path)? != Format::Parquet)
    }

    pub fn open(path: &Path, columns: &[String]) -> Result<Self, DataError> {
        let file = File::open(path).map_err(|source| DataError::Unreadable { file: path.into(), source })?;
        Ok(Stream {
            path: path.into(),
            file,
            format: Format::of(path)?,
            wanted: RowReader::open(path, columns)?.positions(),
            columns: columns.to_vec(),
            offsets: Vec::new(),
            bytes: Vec::new(),
        })
    }

    pub fn push(&mut self, offset: u64, bytes: u32) {
        self.offsets.push(offset);
        self.bytes.push(bytes);
    }

    /// Bytes of a row: about how long its texts are.
    pub fn size(&self, row: usize) -> usize {
        self.bytes[row] as usize
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a row; several threads may.
    pub fn cells(&self, row: usize) -> Result<(Place, Vec<Cell>), DataError> {
        let mut bytes = vec![0; self.bytes[row] as usize];
        let read = self.file.read_exact_at(&mut bytes, self.offsets[row]);
        read.map_err(|source| DataError::Unreadable { file: self.path.clone(), source })?;
        let place = Place::Row(row as u64 + 1);
        let content = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
        let cells = match self.format {
            Format::Jsonl => parse_json(&self.path, place, content, &self.columns),
            _ => parse_csv(&self.path, place, content, &self.wanted),
        };
        Ok((place, cells?))
    }

    pub fn resident_bytes(&self) -> usize {
        self.offsets.len() * (size_of::<u64>() + size_of::<u32>())
    }
}
