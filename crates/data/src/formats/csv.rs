//! Values between separators, one row per line, below a line of names. Quoted values may hold separators and line ends.

use super::{BYTE_ORDER_MARK, Cell, Columns, Content, FileFormat, Reread, Row, RowReader};
use crate::{DataError, Place};
use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use plimsoll_base::formats::Format;
use std::{
    borrow::Cow,
    fs::File,
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Values between these bytes.
pub(super) struct Separated(pub u8);
pub(super) const FORMAT: Separated = Separated(b',');

impl FileFormat for Separated {
    fn open(&self, file: &Path, opened: File) -> Result<Box<dyn RowReader>, DataError> {
        separated(self.0, file, opened)
    }

    /// Many programs write their own separator into files called `.csv`: one that names are separated by, where no comma
    /// separates any.
    fn recognizes(&self, said: Format, head: &[u8]) -> bool {
        said == Format::Csv && separates(self.0, head) && !separates(FORMAT.0, head)
    }

    #[cfg(test)]
    fn write(&self, names: &[&str], rows: &[Vec<Cell<'_>>]) -> Vec<u8> {
        tests::write(self.0.into(), names, rows)
    }
}

/// Whether `separator` stands between names in the first line that is not blank.
fn separates(separator: u8, head: &[u8]) -> bool {
    let start = head.iter().position(|byte| !b"\r\n".contains(byte)).unwrap_or(head.len());
    let mut quoted = false;
    for &byte in &head[start..] {
        match byte {
            b'"' => quoted = !quoted,
            b'\r' | b'\n' if !quoted => return false,
            _ if byte == separator && !quoted => return true,
            _ => {}
        }
    }
    false
}

/// Reads values separated by `separator`.
pub(super) fn separated(separator: u8, file: &Path, opened: File) -> Result<Box<dyn RowReader>, DataError> {
    let input = BufReader::with_capacity(1 << 16, opened);
    let mut records = Records::new(Arc::new(Dialect { file: file.into(), separator }), input);
    let unreadable = |source| DataError::Unreadable { file: file.into(), source };
    records.pass_byte_order_mark().map_err(unreadable)?;
    records.advance().map_err(unreadable)?;
    let named: Vec<usize> = (0..records.record.len()).collect();
    let name = |cell: Cell<'_>| if let Cell::Text(name) = cell { name.trim().to_string() } else { String::new() };
    let cells = records.dialect.cells(&records.record, &named, records.start)?;
    let names: Vec<String> = cells.into_iter().map(name).collect();
    if names.iter().all(String::is_empty) {
        return Err(DataError::Empty { file: file.into(), what: "header line" });
    }
    Ok(Box::new(Table { records, names, wanted: Arc::new([]) }))
}

/// What has to be known to read a record again.
struct Dialect {
    file: PathBuf,
    separator: u8,
}

impl Dialect {
    fn parser(&self) -> Reader {
        ReaderBuilder::new().delimiter(self.separator).build()
    }

    /// The cells `wanted` of a record that lies at `spot`; cells that are not UTF-8 are looked for in the file itself,
    /// because the record has lost its quotes.
    fn cells<'a>(&self, record: &'a Record, wanted: &[usize], spot: Spot) -> Result<Vec<Cell<'a>>, DataError> {
        let cell = |&at: &usize| match record.field(at) {
            [] => Ok(Cell::Missing),
            bytes => match str::from_utf8(bytes) {
                Ok(text) => Ok(Cell::Text(Cow::Borrowed(text))),
                Err(_) => Err(self.bad_utf8(spot)),
            },
        };
        wanted.iter().map(cell).collect()
    }

    fn bad_utf8(&self, spot: Spot) -> DataError {
        let mut raw = Vec::new();
        let read = File::open(&self.file).and_then(|mut file| {
            file.seek(SeekFrom::Start(spot.offset))?;
            file.take(spot.bytes).read_to_end(&mut raw)
        });
        let before = match (read, str::from_utf8(&raw)) {
            (Ok(_), Err(error)) => &raw[..error.valid_up_to()],
            // The file was repaired meanwhile.
            _ => &[],
        };
        let line = spot.line + newlines(before);
        DataError::BadUtf8 { file: self.file.clone(), byte: spot.offset + before.len() as u64, line }
    }
}

/// Where a record lies in the file.
#[derive(Clone, Copy)]
struct Spot {
    line: u64,
    offset: u64,
    bytes: u64,
}

/// The values of one record, without quotes, one after the other.
#[derive(Default)]
struct Record {
    values: Vec<u8>,
    /// Where each value ends.
    ends: Vec<usize>,
    count: usize,
}

impl Record {
    fn len(&self) -> usize {
        self.count
    }

    /// Empty behind the last.
    fn field(&self, at: usize) -> &[u8] {
        if at >= self.count {
            return &[];
        }
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.values[start..self.ends[at]]
    }
}

/// Records with the place where each begins.
struct Records<R> {
    dialect: Arc<Dialect>,
    input: R,
    parser: Reader,
    record: Record,
    /// Of the next byte.
    line: u64,
    offset: u64,
    /// Where the current record begins.
    start: Spot,
}

impl<R: BufRead> Records<R> {
    fn new(dialect: Arc<Dialect>, input: R) -> Self {
        let parser = dialect.parser();
        let start = Spot { line: 1, offset: 0, bytes: 0 };
        Records { dialect, input, parser, record: Record::default(), line: 1, offset: 0, start }
    }

    fn pass_byte_order_mark(&mut self) -> std::io::Result<()> {
        if self.input.fill_buf()?.starts_with(BYTE_ORDER_MARK) {
            self.input.consume(BYTE_ORDER_MARK.len());
            self.offset += BYTE_ORDER_MARK.len() as u64;
        }
        Ok(())
    }

    /// Goes to the next record; `false` at the end.
    fn advance(&mut self) -> std::io::Result<bool> {
        self.pass_line_ends()?;
        self.start = Spot { line: self.line, offset: self.offset, bytes: 0 };
        self.record.count = 0;
        let mut filled = 0;
        loop {
            // The parser wants some room before it says how much it needs.
            self.record.values.resize(self.record.values.len().max(filled + 1), 0);
            self.record.ends.resize(self.record.ends.len().max(self.record.count + 1), 0);
            let input = self.input.fill_buf()?;
            let (values, ends) = (&mut self.record.values[filled..], &mut self.record.ends[self.record.count..]);
            let (result, read, written, ended) = self.parser.read_record(input, values, ends);
            self.line += newlines(&input[..read]);
            self.offset += read as u64;
            self.input.consume(read);
            (filled, self.record.count) = (filled + written, self.record.count + ended);
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => self.record.values.resize(2 * filled + 64, 0),
                ReadRecordResult::OutputEndsFull => self.record.ends.resize(2 * self.record.count + 8, 0),
                ReadRecordResult::Record => {
                    self.start.bytes = self.offset - self.start.offset;
                    return Ok(true);
                }
                ReadRecordResult::End => return Ok(false),
            }
        }
    }

    /// Passes the rest of a line end (the parser leaves the `\n` of `\r\n`) and blank lines: they belong to no record.
    fn pass_line_ends(&mut self) -> std::io::Result<()> {
        loop {
            let input = self.input.fill_buf()?;
            let blank = input.iter().take_while(|&&byte| byte == b'\n' || byte == b'\r').count();
            if blank == 0 {
                return Ok(());
            }
            self.line += newlines(&input[..blank]);
            self.offset += blank as u64;
            self.input.consume(blank);
        }
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

struct Table {
    records: Records<BufReader<File>>,
    names: Vec<String>,
    /// Positions of the columns selected.
    wanted: Arc<[usize]>,
}

impl RowReader for Table {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn typed(&self) -> bool {
        false
    }

    fn select(&mut self, columns: &Columns) -> Result<(), DataError> {
        let names = Columns::new(self.names.iter().cloned());
        self.wanted = columns.names().iter().enumerate().filter_map(|(at, name)| names.find(name, at)).collect();
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Row<'_>>, DataError> {
        let more = self.records.advance();
        let Records { dialect, record, start, .. } = &self.records;
        let file = || dialect.file.clone();
        if !more.map_err(|source| DataError::Unreadable { file: file(), source })? {
            return Ok(None);
        }
        let (place, expected) = (Place::Line(start.line), self.names.len());
        let content = match record.len() {
            found if found != expected => {
                let (found, expected) = (found as u64, expected as u64);
                Content::Broken(DataError::RaggedRow { file: file(), place, found, expected })
            }
            _ => dialect.cells(record, &self.wanted, *start).map_or_else(Content::Broken, Content::Cells),
        };
        let bytes = u32::try_from(start.bytes).unwrap_or(u32::MAX);
        Ok(Some(Row { place, offset: start.offset, bytes, content }))
    }

    fn reread(&self) -> Option<Reread> {
        let (dialect, wanted) = (Arc::clone(&self.records.dialect), Arc::clone(&self.wanted));
        Some(Box::new(move |bytes| {
            let mut records = Records::new(Arc::clone(&dialect), &*bytes);
            // Bytes in memory are always readable, and were a whole record when they were met.
            let _ = records.advance();
            let cells = dialect.cells(&records.record, &wanted, records.start);
            cells
                .map_or_else(Content::Broken, |cells| Content::Cells(cells.into_iter().map(Cell::into_owned).collect()))
        }))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Wanted, open};
    use super::*;
    use crate::formats::table::{
        Selection, Values,
        tests::{file, read},
    };

    /// As spreadsheets do: lines end in CR LF, values are quoted where they have to be.
    pub(in super::super) fn write(separator: char, names: &[&str], rows: &[Vec<Cell<'_>>]) -> Vec<u8> {
        let quoted = |value: &str| match value.contains([separator, '"', '\r', '\n']) {
            true => format!("\"{}\"", value.replace('"', "\"\"")),
            false => value.to_string(),
        };
        let value = |cell: &Cell<'_>| match cell {
            Cell::Text(text) => quoted(text),
            Cell::Number(number) => number.to_string(),
            _ => String::new(),
        };
        let line = |values: Vec<String>| values.join(&separator.to_string()) + "\r\n";
        let header = line(names.iter().map(|name| quoted(name)).collect());
        let lines = rows.iter().map(|row| line(row.iter().map(value).collect()));
        std::iter::once(header).chain(lines).collect::<String>().into_bytes()
    }

    /// Places of the rows, and the first cell of each.
    fn places(content: &str) -> Vec<(Place, String)> {
        let (_folder, path) = file("a.csv", content);
        let columns = Columns::new(["x".to_string()]);
        let mut reader = open(&path, None, Wanted::TEXTS, &columns).unwrap();
        let mut found = Vec::new();
        while let Some(mut row) = reader.next().unwrap() {
            let place = row.place;
            let cell = row.cells(&path, &columns).map(|cells| format!("{:?}", cells[0]));
            found.push((place, cell.unwrap_or_else(|error| error.to_string())));
        }
        found
    }

    #[test]
    fn lines_are_counted_alike_whatever_ends_them() {
        let content = "x,y\n1,a\n\n\"2\n\",b\n3,c\n\n\n4\n5,e";
        let lines: Vec<u64> = vec![2, 4, 6, 9, 10];
        for ends in ["\n", "\r\n"] {
            let found = places(&content.replace('\n', ends));
            let expected: Vec<Place> = lines.iter().map(|&line| Place::Line(line)).collect();
            assert_eq!(found.iter().map(|(place, _)| *place).collect::<Vec<_>>(), expected, "{ends:?}");
            assert!(found[3].1.ends_with("line 9: 1 cells where the header has 2"), "{}", found[3].1);
        }
        assert_eq!(places("\u{feff}\r\nx\r\n\r\n7\r\n")[0].0, Place::Line(4));
    }

    /// However the input falls into buffers, and however long the values are.
    #[test]
    fn long_rows_and_wide_ones_are_whole() {
        let long = "v".repeat(300_000);
        let names: Vec<String> = (0..3000).map(|column| format!("c{column}")).collect();
        let cells: Vec<String> = (0..3000).map(|column| format!("\"{column}\"\"\"")).collect();
        let wide = format!("x,{}\r\n{long},{}\r\n", names.join(","), cells.join(","));
        let found = places(&wide);
        assert_eq!(found, [(Place::Line(2), format!("Text({long:?})"))]);
    }

    #[test]
    fn numeric_columns_are_found_in_file_order() {
        let table =
            read("a.csv", "\u{feff}t,b,word,a,y\nx, 1.5 ,p,2,up\ny,-3e2,q,4,down\n", None, &["t", "y"]).unwrap();
        let selection = Selection { others: vec!["t".into(), "y".into()], ..Selection::default() };
        assert_eq!(table.number_names(&selection), ["b", "a"]);
        assert_eq!(table.numbers("b").unwrap(), [1.5, -300.0]);
        assert_eq!(*table.column("y").unwrap(), Values::Text(["up", "down"].into_iter().collect()));
        assert_eq!(*table.column("t").unwrap(), Values::Text(["x", "y"].into_iter().collect()));
        assert_eq!(table.rows, 2);
    }

    #[test]
    fn bad_cells_are_named_by_line_and_column() {
        let message = |content: &str, numbers: Option<&[&str]>| {
            let error = read("a.csv", content, numbers, &["y"]).unwrap_err();
            assert!(!error.hint().is_empty());
            let text = error.to_string();
            text[text.find("a.csv").unwrap()..].to_string()
        };
        assert_eq!(message("x,y\n1,0\noops,1\n", None), "a.csv: line 3, column `x`: `oops` is not a number");
        assert_eq!(message("x,y\nNA,0\n", Some(&["x"])), "a.csv: line 2, column `x`: the value is missing");
        assert_eq!(message("x,y\n1,0\nnan,1\n", None), "a.csv: line 3, column `x`: the value is missing");
        assert_eq!(message("x,y\n-inf,0\n", None), "a.csv: line 2, column `x`: -inf is not a finite number");
        assert_eq!(message("x,y\n1,0\n,1\n", None), "a.csv: line 3, column `x`: the value is missing");
        assert_eq!(message("x,y\n,0\n2,1\n", None), "a.csv: line 2, column `x`: the value is missing");
        let both = "a.csv: 2 places cannot be used\n  line 2, column `x`: the value is missing\n  line 3, column `x`: the value is missing";
        assert_eq!(message("x,y\n,0\n,1\n", Some(&["x"])), both);
        assert_eq!(message("x,y\n1,0\n1,2,3\n", None), "a.csv: line 3: 3 cells where the header has 2");
        assert_eq!(message("x,z\n1,0\n", None), "a.csv: no column `y`; columns are `x`, `z`");
        assert_eq!(message("", None), "a.csv: holds no header line");
        assert_eq!(message("x,y\n", None), "a.csv: holds no rows");
    }

    #[test]
    fn bad_utf8_is_placed() {
        let error = read("a.csv", b"x,y\n1,a\n2,\xff\n", None, &["y"]).unwrap_err();
        assert!(matches!(error, DataError::BadUtf8 { byte: 10, line: 3, .. }), "{error}");
        let named = read("a.csv", b"x,gr\xf6\xdfe\n1,2\n", None, &["x"]).unwrap_err();
        assert!(matches!(named, DataError::BadUtf8 { byte: 4, line: 1, .. }), "{named}");
        let quoted = read("a.csv", b"x,y\r\n1,a\r\n2,\"\"\"\n\xff\"\r\n", None, &["y"]).unwrap_err();
        assert!(matches!(quoted, DataError::BadUtf8 { byte: 16, line: 4, .. }), "{quoted}");
    }
}
