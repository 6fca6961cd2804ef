//! Rows of a JSONL, CSV or Parquet file, with the cells of the columns asked for.

use crate::{DataError, Place, guarded};
use ::csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};
use parquet::{
    file::reader::{FileReader, SerializedFileReader},
    record::{Field, reader::RowIter},
    schema::types::Type,
};
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    sync::Arc,
};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Missing,
    Text(String),
    Number(f64),
    List(Vec<Cell>),
    Other(&'static str),
}

impl Cell {
    pub fn kind(&self) -> &'static str {
        match self {
            Cell::Missing => "nothing",
            Cell::Text(_) => "a text",
            Cell::Number(_) => "a number",
            Cell::List(_) => "a list",
            Cell::Other(kind) => kind,
        }
    }
}

/// A row as the file has it. JSON is parsed by the worker that takes it.
#[derive(Debug)]
pub(crate) struct Row {
    pub place: Place,
    /// Where it lies in the file; 0 where rows have no place of their own.
    pub offset: u64,
    pub bytes: u32,
    pub content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    Json(Vec<u8>),
    Cells(Vec<Cell>),
    Broken(DataError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Jsonl,
    Csv,
    Parquet,
}

impl Format {
    pub fn of(file: &Path) -> Result<Self, DataError> {
        let extension = file.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        match extension.as_deref() {
            Some("jsonl" | "ndjson") => Ok(Format::Jsonl),
            Some("csv") => Ok(Format::Csv),
            Some("parquet" | "pq") => Ok(Format::Parquet),
            _ => Err(DataError::UnknownFormat { file: file.into(), wanted: "texts" }),
        }
    }
}

/// The rows of a file, in order. An error of a single row is that row's content; others end the reading.
pub(super) struct RowReader {
    file: PathBuf,
    columns: Vec<String>,
    source: Source,
}

enum Source {
    Jsonl { reader: BufReader<File>, line: u64, offset: u64 },
    Csv { reader: Box<Reader<File>>, wanted: Vec<usize>, record: ByteRecord },
    Parquet { rows: Box<RowIter<'static>>, wanted: Vec<String>, row: u64 },
}

impl RowReader {
    pub fn open(file: &Path, columns: &[String]) -> Result<Self, DataError> {
        let opened = File::open(file).map_err(|source| DataError::Unreadable { file: file.into(), source })?;
        let source = match Format::of(file)? {
            Format::Jsonl => Source::Jsonl { reader: BufReader::with_capacity(1 << 18, opened), line: 0, offset: 0 },
            Format::Csv => open_csv(file, opened, columns)?,
            Format::Parquet => guarded(|| open_parquet(file, opened, columns))
                .unwrap_or_else(|cause| Err(DataError::Parquet { file: file.into(), cause }))?,
        };
        Ok(RowReader { file: file.into(), columns: columns.to_vec(), source })
    }

    /// Positions of the columns in a CSV file; none in others.
    pub fn positions(&self) -> Vec<usize> {
        if let Source::Csv { wanted, .. } = &self.source { wanted.clone() } else { Vec::new() }
    }

    pub fn next(&mut self) -> Result<Option<Row>, DataError> {
        match &mut self.source {
            Source::Jsonl { reader, line, offset } => next_line(&self.file, &self.columns, reader, line, offset),
            Source::Csv { reader, wanted, record } => next_record(&self.file, reader, wanted, record),
            Source::Parquet { rows, wanted, row } => next_parquet(&self.file, rows, wanted, row),
        }
    }
}

/// Cells of a JSON line, in the order of `columns`.
pub(super) fn parse_json(file: &Path, place: Place, line: &[u8], columns: &[String]) -> Result<Vec<Cell>, DataError> {
    let malformed = |cause: String| DataError::Malformed { file: file.into(), place, cause };
    let mut cells = vec![Cell::Missing; columns.len()];
    let mut parser = serde_json::Deserializer::from_slice(line);
    let parsed = parser.deserialize_map(Wanted { columns, cells: &mut cells }).and_then(|()| parser.end());
    parsed.map_err(|e| malformed(e.to_string().replace(" at line 1 column ", " at column ")))?;
    Ok(cells)
}

/// Takes the columns asked for and passes over the rest without storing it.
struct Wanted<'a> {
    columns: &'a [String],
    cells: &'a mut [Cell],
}

impl<'de> Visitor<'de> for Wanted<'_> {
    type Value = ();
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object with one value per column")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match self.columns.iter().position(|column| *column == key) {
                Some(at) => self.cells[at] = cell(map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

fn cell(value: serde_json::Value) -> Cell {
    use serde_json::Value;
    match value {
        Value::Null => Cell::Missing,
        Value::Bool(flag) => Cell::Number(f64::from(flag)),
        Value::Number(number) => Cell::Number(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => Cell::Text(text),
        Value::Array(items) => Cell::List(items.into_iter().map(cell).collect()),
        Value::Object(_) => Cell::Other("an object"),
    }
}

fn next_line(
    file: &Path,
    columns: &[String],
    reader: &mut BufReader<File>,
    line: &mut u64,
    offset: &mut u64,
) -> Result<Option<Row>, DataError> {
    loop {
        let mut content = Vec::new();
        let read = reader.read_until(b'\n', &mut content);
        let read = read.map_err(|source| DataError::Unreadable { file: file.into(), source })?;
        if read == 0 {
            return Ok(None);
        }
        let (first, start) = (*line == 0, *offset);
        (*line, *offset) = (*line + 1, *offset + read as u64);
        if first && content.starts_with("\u{feff}".as_bytes()) {
            content.drain(..3);
        }
        if content.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        if first {
            check_columns(file, &content, columns)?;
        }
        let (place, bytes) = (Place::Line(*line), u32::try_from(read).unwrap_or(u32::MAX));
        return Ok(Some(Row { place, offset: start, bytes, content: Content::Json(content) }));
    }
}

/// A column that the first row lacks is taken for misspelt.
fn check_columns(file: &Path, line: &[u8], columns: &[String]) -> Result<(), DataError> {
    let Ok(first) = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(line) else { return Ok(()) };
    match columns.iter().find(|column| !first.contains_key(*column)) {
        Some(column) => Err(missing(file, column, first.keys().cloned().collect())),
        None => Ok(()),
    }
}

fn missing(file: &Path, column: &str, columns: Vec<String>) -> DataError {
    DataError::MissingColumn { file: file.into(), column: column.into(), columns }
}

fn open_csv(file: &Path, opened: File, columns: &[String]) -> Result<Source, DataError> {
    let mut reader = ReaderBuilder::new().has_headers(true).from_reader(opened);
    let header = reader.byte_headers().map_err(|error| explain(file, error))?;
    let names: Vec<String> =
        header.iter().map(|cell| String::from_utf8_lossy(cell).trim_start_matches('\u{feff}').trim().into()).collect();
    let find = |column: &String| {
        let found = names.iter().position(|name| name == column);
        found.ok_or_else(|| missing(file, column, names.clone()))
    };
    let wanted = columns.iter().map(find).collect::<Result<_, _>>()?;
    Ok(Source::Csv { reader: Box::new(reader), wanted, record: ByteRecord::new() })
}

/// Cells of one CSV record without a header.
pub(super) fn parse_csv(file: &Path, place: Place, bytes: &[u8], wanted: &[usize]) -> Result<Vec<Cell>, DataError> {
    let mut reader = ReaderBuilder::new().has_headers(false).from_reader(bytes);
    let mut record = ByteRecord::new();
    reader.read_byte_record(&mut record).map_err(|error| explain(file, error))?;
    csv_cells(file, place, &record, wanted)
}

fn next_record(
    file: &Path,
    reader: &mut Reader<File>,
    wanted: &[usize],
    record: &mut ByteRecord,
) -> Result<Option<Row>, DataError> {
    let (line, offset) = (reader.position().line(), reader.position().byte());
    let read = reader.read_byte_record(record);
    let place = Place::Line(record.position().map_or(line, |at| at.line()));
    let bytes = u32::try_from(reader.position().byte() - offset).unwrap_or(u32::MAX);
    let content = match read {
        Ok(false) => return Ok(None),
        Ok(true) => csv_cells(file, place, record, wanted).map_or_else(Content::Broken, Content::Cells),
        Err(error) => match explain(file, error) {
            fatal @ DataError::Unreadable { .. } => return Err(fatal),
            ragged => Content::Broken(ragged),
        },
    };
    Ok(Some(Row { place, offset, bytes, content }))
}

fn csv_cells(file: &Path, place: Place, record: &ByteRecord, wanted: &[usize]) -> Result<Vec<Cell>, DataError> {
    let cell = |&at: &usize| match record.get(at) {
        None | Some([]) => Ok(Cell::Missing),
        Some(bytes) => {
            let cause = || "a cell that is not UTF-8".to_string();
            let text = str::from_utf8(bytes);
            let text = text.map_err(|_| DataError::Malformed { file: file.into(), place, cause: cause() })?;
            Ok(Cell::Text(text.into()))
        }
    };
    wanted.iter().map(cell).collect()
}

fn explain(file: &Path, error: ::csv::Error) -> DataError {
    let place = Place::Line(error.position().map_or(0, |at| at.line()));
    match error.into_kind() {
        ErrorKind::Io(source) => DataError::Unreadable { file: file.into(), source },
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            DataError::RaggedRow { file: file.into(), place, found: len, expected: expected_len }
        }
        other => DataError::Malformed { file: file.into(), place, cause: format!("{other:?}") },
    }
}

fn open_parquet(file: &Path, opened: File, columns: &[String]) -> Result<Source, DataError> {
    let broken =
        |error: parquet::errors::ParquetError| DataError::Parquet { file: file.into(), cause: error.to_string() };
    let reader = SerializedFileReader::new(opened).map_err(broken)?;
    let schema = reader.metadata().file_metadata().schema();
    let names: Vec<String> = schema.get_fields().iter().map(|field| field.name().to_string()).collect();
    if let Some(column) = columns.iter().find(|column| !names.contains(column)) {
        return Err(missing(file, column, names));
    }
    let fields = schema.get_fields().iter().filter(|field| columns.iter().any(|c| c == field.name()));
    let wanted = Type::group_type_builder(schema.name()).with_fields(fields.map(Arc::clone).collect());
    let projection = wanted.build().map_err(broken)?;
    let rows = RowIter::from_file_into(Box::new(reader)).project(Some(projection)).map_err(broken)?;
    Ok(Source::Parquet { rows: Box::new(rows), wanted: columns.to_vec(), row: 0 })
}

fn next_parquet(
    file: &Path,
    rows: &mut RowIter<'static>,
    wanted: &[String],
    row: &mut u64,
) -> Result<Option<Row>, DataError> {
    let broken = |cause: String| DataError::Parquet { file: file.into(), cause };
    let Some(record) = guarded(|| rows.next()).map_err(broken)? else { return Ok(None) };
    let record = record.map_err(|error| broken(error.to_string()))?;
    *row += 1;
    let find = |column: &String| {
        let found = record.get_column_iter().find(|(name, _)| *name == column);
        found.map_or(Cell::Missing, |(_, field)| parquet_cell(field))
    };
    let cells: Vec<Cell> = wanted.iter().map(find).collect();
    let text = |cell: &Cell| if let Cell::Text(text) = cell { text.len() } else { 0 };
    let bytes = u32::try_from(cells.iter().map(text).sum::<usize>()).unwrap_or(u32::MAX);
    Ok(Some(Row { place: Place::Row(*row), offset: 0, bytes, content: Content::Cells(cells) }))
}

fn parquet_cell(field: &Field) -> Cell {
    match field {
        Field::Null => Cell::Missing,
        Field::Str(text) => Cell::Text(text.clone()),
        Field::Bool(flag) => Cell::Number(f64::from(*flag)),
        Field::Byte(n) => Cell::Number(f64::from(*n)),
        Field::Short(n) => Cell::Number(f64::from(*n)),
        Field::Int(n) => Cell::Number(f64::from(*n)),
        Field::Long(n) => Cell::Number(*n as f64),
        Field::UByte(n) => Cell::Number(f64::from(*n)),
        Field::UShort(n) => Cell::Number(f64::from(*n)),
        Field::UInt(n) => Cell::Number(f64::from(*n)),
        Field::ULong(n) => Cell::Number(*n as f64),
        Field::Float(x) => Cell::Number(f64::from(*x)),
        Field::Double(x) => Cell::Number(*x),
        Field::Bytes(bytes) => bytes.as_utf8().map_or(Cell::Other("bytes"), |text| Cell::Text(text.into())),
        Field::ListInternal(list) => Cell::List(list.elements().iter().map(parquet_cell).collect()),
        _ => Cell::Other("a value of another type"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::file;

    type Cells = (Place, Result<Vec<Cell>, String>);

    fn read(name: &str, content: impl AsRef<[u8]>, columns: &[&str]) -> Result<Vec<Cells>, DataError> {
        let (_folder, path) = file(name, content);
        let columns: Vec<String> = columns.iter().map(|c| c.to_string()).collect();
        let mut reader = RowReader::open(&path, &columns)?;
        let mut rows = Vec::new();
        while let Some(row) = reader.next()? {
            let cells = match row.content {
                Content::Json(line) => parse_json(&path, row.place, &line, &columns).map_err(|e| e.to_string()),
                Content::Cells(cells) => Ok(cells),
                Content::Broken(error) => Err(error.to_string()),
            };
            rows.push((row.place, cells));
        }
        Ok(rows)
    }

    fn text(text: &str) -> Cell {
        Cell::Text(text.into())
    }

    #[test]
    fn lines_give_the_columns_asked_for() {
        let content = "\u{feff}{\"x\": {\"deep\": [1]}, \"label\": 1, \"text\": \"a\\n\\u00e4\"}\n\n{\"text\": \"b\", \"label\": [\"p\", 2]}\n{\"text\"\n";
        let rows = read("a.jsonl", content, &["text", "label"]).unwrap();
        assert_eq!(rows[0], (Place::Line(1), Ok(vec![text("a\nä"), Cell::Number(1.0)])));
        assert_eq!(rows[1], (Place::Line(3), Ok(vec![text("b"), Cell::List(vec![text("p"), Cell::Number(2.0)])])));
        assert!(rows[2].1.as_ref().unwrap_err().contains("line 4: "));
        let error = read("a.jsonl", content, &["txt"]).unwrap_err();
        assert_eq!(error.hint(), "did you mean `text`?");
    }

    #[test]
    fn records_of_csv_keep_numbers_as_text_and_survive_ragged_rows() {
        let rows = read("a.csv", "label,text\n1,\"a, b\nc\"\n2\n,007\n", &["text", "label"]).unwrap();
        assert_eq!(rows[0], (Place::Line(2), Ok(vec![text("a, b\nc"), text("1")])));
        assert!(rows[1].1.as_ref().unwrap_err().contains("1 cells where the header has 2"));
        assert_eq!(rows[2].1, Ok(vec![text("007"), Cell::Missing]));
        assert!(matches!(read("a.csv", "a,b\n", &["text"]), Err(DataError::MissingColumn { .. })));
        assert!(matches!(read("a.xls", "", &["text"]), Err(DataError::UnknownFormat { .. })));
    }
}
