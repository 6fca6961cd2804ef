//! Files of every format, read in one way: as rows of cells with their places, or as columns.
//!
//! ```text
//! file ─► format (as said; else by extension and by how the file begins) ─► reader ─► rows ─► texts, captions, corpus
//!                                                                          └───► table ─► series
//! ```
//! A format is a file here that implements [`FileFormat`], and a line in `plimsoll_base::formats`.

mod csv;
mod json;
mod jsonl;
mod lines;
pub(crate) mod looks;
mod object;
mod parquet;
mod row;
mod semicolon;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod text;
mod tsv;
mod words;

use crate::{
    DataError,
    formats::table::{Selection, Table},
};
use plimsoll_base::{
    for_each_format,
    formats::{Format, Holds},
    names::Named,
};
use std::{fs::File, io::Read, path::Path};

pub(crate) use row::{Cell, Columns, Content, Row};

/// How files of one format are read.
trait FileFormat: Sync {
    /// Looks at the beginning of the file, where its columns are named.
    fn open(&self, file: &Path, opened: File) -> Result<Box<dyn RowReader>, DataError>;

    /// Whether a file that goes as `said` and begins like this is really one of this format.
    fn recognizes(&self, _said: Format, _head: &[u8]) -> bool {
        false
    }

    /// Rows as a file of this format has them, for tests that compare formats.
    #[cfg(test)]
    fn write(&self, names: &[&str], rows: &[Vec<Cell<'_>>]) -> Vec<u8>;

    /// The columns of the file; for formats that store columns there are shorter ways than by rows.
    fn table(&self, file: &Path, opened: File, selection: &Selection) -> Result<Table, DataError> {
        Table::of_rows(file, &mut *self.open(file, opened)?, selection)
    }
}

/// The rows of a file, in order. An error of a single row is that row's content; others end the reading.
pub(crate) trait RowReader: Send {
    /// All columns, in file order; none where the file does not say: one text, or a first row that cannot be read.
    fn names(&self) -> &[String];

    /// Whether cells have types. Where not, `7` may be a number or a word, and spaces around it mean nothing.
    fn typed(&self) -> bool {
        true
    }

    /// From the next row on, cells are those of `columns`. The first call chooses, later ones may only narrow.
    fn select(&mut self, columns: &Columns) -> Result<(), DataError>;

    fn next(&mut self) -> Result<Option<Row<'_>>, DataError>;

    /// Makes a row's content of its own bytes, read again later; `None` where rows are packed together.
    fn reread(&self) -> Option<Reread> {
        None
    }
}

/// From the bytes of one row to its content.
pub(crate) type Reread = Box<dyn Fn(Vec<u8>) -> Content<'static> + Send + Sync>;

impl dyn RowReader {
    /// The next row, to be worked on elsewhere.
    pub(crate) fn next_owned(&mut self) -> Result<Option<Row<'static>>, DataError> {
        Ok(self.next()?.map(Row::into_owned))
    }
}

impl std::fmt::Debug for dyn RowReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rows of {:?}", self.names())
    }
}

/// What is to be read from a file.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    what: &'static str,
    holds: &'static [Holds],
}

impl Wanted {
    pub(crate) const SERIES: Self = Self { what: "a series", holds: &[Holds::Rows] };
    pub(crate) const TEXTS: Self = Self { what: "texts", holds: &[Holds::Rows] };
    pub(crate) const CAPTIONS: Self = Self { what: "captions", holds: &[Holds::Rows] };
    pub(crate) const CORPUS: Self = Self { what: "a corpus", holds: &[Holds::Rows, Holds::Document] };
}

/// Opens `file`, of which the format may be said, and chooses `columns`.
pub(crate) fn open(
    file: &Path,
    said: Option<Format>,
    wanted: Wanted,
    columns: &Columns,
) -> Result<Box<dyn RowReader>, DataError> {
    let (format, opened) = find(file, said, wanted)?;
    let mut reader = format.open(file, opened)?;
    let names = Columns::new(reader.names().iter().cloned());
    match columns.names().iter().find(|column| names.find(column, 0).is_none()) {
        Some(column) if names.len() > 0 => Err(DataError::missing_column(file, column, reader.names())),
        _ => {
            reader.select(columns)?;
            Ok(reader)
        }
    }
}

/// Whether a file that is one text holds any.
pub(crate) fn check_document(file: &Path, said: Option<Format>) -> Result<(), DataError> {
    let (_, opened) = find(file, said, Wanted::CORPUS)?;
    match head(file, &opened)?.is_empty() {
        true => Err(DataError::Empty { file: file.into(), what: "text" }),
        false => Ok(()),
    }
}

/// The file, where it is one text and not rows of them.
pub(crate) fn document(file: &Path, said: Option<Format>) -> Result<Option<File>, DataError> {
    let is_text = said.or_else(|| Format::of(file)).is_none_or(|format| format == Format::Text);
    if !is_text {
        return Ok(None);
    }
    let (_, opened) = find(file, said, Wanted::CORPUS)?;
    Ok(Some(opened))
}

/// The names of a table's columns, in file order; none where its first row cannot be read.
pub fn column_names(file: &Path, said: Option<Format>) -> Result<Vec<String>, DataError> {
    let (format, opened) = find(file, said, Wanted::TEXTS)?;
    Ok(format.open(file, opened)?.names().to_vec())
}

/// Reads the columns of `file`, of which the format may be said.
pub(crate) fn table(file: &Path, said: Option<Format>, selection: &Selection) -> Result<Table, DataError> {
    let (reader, opened) = find(file, said, Wanted::SERIES)?;
    let mut table = reader.table(file, opened, selection)?;
    table.format = said;
    if table.rows == 0 {
        return Err(DataError::Empty { file: file.into(), what: "rows" });
    }
    Ok(table)
}

macro_rules! readers {
    ($($(#[$meta:meta])* $variant:ident = $name:literal, [$($extension:literal),*], $holds:ident, $($reader:ident)?;)+) => {
        /// What reads a format; images in folders are listed, not read.
        fn reader(format: Format) -> Option<&'static dyn FileFormat> {
            let readers: &[&'static dyn FileFormat] = match format {
                $(Format::$variant => &[$(&$reader::FORMAT)?]),+
            };
            readers.first().copied()
        }
    };
}
for_each_format!(readers);

/// Bytes at the beginning of a file by which formats are told apart.
const HEAD: u64 = 1 << 16;

fn find(file: &Path, said: Option<Format>, wanted: Wanted) -> Result<(&'static dyn FileFormat, File), DataError> {
    let unknown = || DataError::UnknownFormat { file: file.into(), wanted: wanted.what, formats: names(wanted) };
    let known = said.or_else(|| Format::of(file));
    // A text needs no extension.
    let known = known.or(wanted.holds.contains(&Holds::Document).then_some(Format::Text)).ok_or_else(unknown)?;
    let usual = reader(known).filter(|_| wanted.holds.contains(&known.holds())).ok_or_else(unknown)?;
    let opened = open_file(file)?;
    let head = head(file, &opened)?;
    if known != Format::Parquet && is_utf16(&head) {
        return Err(DataError::Utf16 { file: file.into() });
    }
    // What only an extension says may be otherwise; what the user says is not.
    let disguised =
        || Format::ALL.iter().filter_map(|&other| reader(other)).find(|other| other.recognizes(known, &head));
    let reader = if said.is_none() { disguised() } else { None };
    Ok((reader.unwrap_or(usual), opened))
}

/// Whether a text begins as UTF-16 does: with its byte-order mark, or with every other byte zero.
fn is_utf16(head: &[u8]) -> bool {
    let pairs = &head[..head.len().min(64) / 2 * 2];
    let zeros = |at: usize| pairs.len() >= 4 && pairs.iter().skip(at).step_by(2).all(|&byte| byte == 0);
    head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") || zeros(0) != zeros(1)
}

/// The formats that can be read, with their extensions.
fn names(wanted: Wanted) -> String {
    let with_extensions = |format: Format| match format.extensions() {
        [] => format.to_string(),
        extensions => format!("{format} (.{})", extensions.join(", .")),
    };
    Format::holding(wanted.holds).map(with_extensions).collect::<Vec<_>>().join(", ")
}

/// A pipe would wait for a writer for ever, and rows are read again.
fn open_file(file: &Path) -> Result<File, DataError> {
    let unreadable = |source| DataError::Unreadable { file: file.into(), source };
    if !std::fs::metadata(file).map_err(unreadable)?.is_file() {
        return Err(unreadable(std::io::Error::other("it is not a regular file")));
    }
    File::open(file).map_err(unreadable)
}

/// How the file begins, without a byte-order mark. The file is at its start again.
fn head(file: &Path, mut opened: &File) -> Result<Vec<u8>, DataError> {
    use std::io::Seek;
    let mut head = Vec::new();
    let read = opened.take(HEAD).read_to_end(&mut head).and_then(|_| opened.rewind());
    read.map_err(|source| DataError::Unreadable { file: file.into(), source })?;
    if head.starts_with(BYTE_ORDER_MARK) {
        head.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(head)
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
