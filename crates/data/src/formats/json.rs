//! A JSON array of objects, one row each; the first names the columns. Elements are cut out of the file one by one, so
//! that an array may be larger than memory.

#[cfg(test)]
use super::Cell;
use super::{BYTE_ORDER_MARK, Columns, Content, FileFormat, Reread, Row, RowReader, jsonl, object};
use crate::{DataError, Place};
use plimsoll_base::formats::Format;
use std::{
    borrow::Cow,
    fs::File,
    io::{self, BufRead, BufReader, Seek},
    path::{Path, PathBuf},
};

pub(super) struct Json;
pub(super) const FORMAT: Json = Json;

impl FileFormat for Json {
    fn open(&self, file: &Path, opened: File) -> Result<Box<dyn RowReader>, DataError> {
        let unreadable = |source| DataError::Unreadable { file: file.into(), source };
        let mut elements = Elements::new(file, opened);
        // Files called `.json` often hold an object per line.
        if elements.peek().map_err(unreadable)? == Some(b'{') {
            let mut opened = elements.reader.into_inner();
            opened.rewind().map_err(unreadable)?;
            return jsonl::FORMAT.open(file, opened);
        }
        elements.ahead = elements.advance()?;
        // A first element that is no object is that row's fault, and said when it is read.
        elements.names = object::keys(&elements.buffer).unwrap_or_default();
        Ok(Box::new(elements))
    }

    /// An array of objects among files of an object per line.
    fn recognizes(&self, said: Format, head: &[u8]) -> bool {
        let mut bytes = head.iter().filter(|byte| !byte.is_ascii_whitespace());
        said == Format::Jsonl && bytes.next() == Some(&b'[') && bytes.next() == Some(&b'{')
    }

    #[cfg(test)]
    fn write(&self, names: &[&str], rows: &[Vec<Cell<'_>>]) -> Vec<u8> {
        let objects: Vec<String> = rows.iter().map(|row| object::tests::write(names, row)).collect();
        format!(" [\n  {}\n]\n", objects.join(",\n  ")).into_bytes()
    }
}

/// The elements of an array, one at a time.
struct Elements {
    file: PathBuf,
    reader: BufReader<File>,
    /// The current element.
    buffer: Vec<u8>,
    row: u64,
    /// Of the next byte.
    offset: u64,
    /// Where the current element begins.
    start: u64,
    /// The current element was read but not handed out.
    ahead: bool,
    ended: bool,
    names: Vec<String>,
}

impl Elements {
    fn new(file: &Path, opened: File) -> Self {
        Elements {
            file: file.into(),
            reader: BufReader::with_capacity(1 << 18, opened),
            buffer: Vec::new(),
            row: 0,
            offset: 0,
            start: 0,
            ahead: false,
            ended: false,
            names: Vec::new(),
        }
    }

    /// Goes to the next element; `false` at the end of the array.
    fn advance(&mut self) -> Result<bool, DataError> {
        let (first, before) = (self.row == 0, if self.row == 0 { b'[' } else { b',' });
        if self.ended {
            return Ok(false);
        }
        if !first && self.pass(b']')? {
            return self.end();
        }
        if !self.pass(before)? {
            return Err(self.expected(before));
        }
        if first && self.pass(b']')? {
            return self.end();
        }
        self.row += 1;
        let cut = self.cut().map_err(|source| DataError::Unreadable { file: self.file.clone(), source })?;
        if !cut {
            return Err(self.malformed("the array does not end".into()));
        }
        Ok(true)
    }

    /// Takes the bytes of one element; `false` where the file ends inside it.
    fn cut(&mut self) -> io::Result<bool> {
        self.peek()?;
        self.start = self.offset;
        self.buffer.clear();
        let mut scan = Scan::default();
        loop {
            let input = self.reader.fill_buf()?;
            if input.is_empty() {
                return Ok(false);
            }
            let end = input.iter().position(|&byte| scan.ends_before(byte));
            let taken = end.unwrap_or(input.len());
            self.buffer.extend_from_slice(&input[..taken]);
            self.reader.consume(taken);
            self.offset += taken as u64;
            if end.is_some() {
                return Ok(true);
            }
        }
    }

    /// The next byte that is no space.
    fn peek(&mut self) -> io::Result<Option<u8>> {
        loop {
            let input = self.reader.fill_buf()?;
            let mark = if self.offset == 0 && input.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
            let blank = mark + input[mark..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let (found, ended) = (input.get(blank).copied(), input.is_empty());
            self.reader.consume(blank);
            self.offset += blank as u64;
            if found.is_some() || ended {
                return Ok(found);
            }
        }
    }

    /// Passes over `byte` if it comes next.
    fn pass(&mut self, byte: u8) -> Result<bool, DataError> {
        let next = self.peek().map_err(|source| DataError::Unreadable { file: self.file.clone(), source })?;
        if next == Some(byte) {
            self.reader.consume(1);
            self.offset += 1;
        }
        Ok(next == Some(byte))
    }

    fn end(&mut self) -> Result<bool, DataError> {
        self.ended = true;
        match self.peek() {
            Ok(None) => Ok(false),
            Ok(Some(_)) => Err(self.malformed("something follows the end of the array".into())),
            Err(source) => Err(DataError::Unreadable { file: self.file.clone(), source }),
        }
    }

    fn expected(&self, byte: u8) -> DataError {
        self.malformed(format!("`{}` is expected: an array of objects, [{{…}}, {{…}}]", byte as char))
    }

    fn malformed(&self, cause: String) -> DataError {
        let (file, place) = (self.file.clone(), Place::Row(self.row.max(1)));
        DataError::Malformed { file, place, cause, hint: object::HINT }
    }
}

/// Finds the end of an element without parsing it.
#[derive(Default)]
struct Scan {
    depth: usize,
    quoted: bool,
    escaped: bool,
}

impl Scan {
    /// Whether the element ends before `byte`.
    fn ends_before(&mut self, byte: u8) -> bool {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.quoted => self.escaped = true,
            b'"' => self.quoted = !self.quoted,
            _ if self.quoted => {}
            b',' | b']' if self.depth == 0 => return true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        false
    }
}

impl RowReader for Elements {
    fn names(&self) -> &[String] {
        &self.names
    }

    /// Whoever takes the cells of an object says which.
    fn select(&mut self, _columns: &Columns) -> Result<(), DataError> {
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Row<'_>>, DataError> {
        if !std::mem::take(&mut self.ahead) && !self.advance()? {
            return Ok(None);
        }
        Ok(Some(Row {
            place: Place::Row(self.row),
            offset: self.start,
            bytes: u32::try_from(self.buffer.len()).unwrap_or(u32::MAX),
            content: Content::Json(Cow::Borrowed(&self.buffer)),
        }))
    }

    fn reread(&self) -> Option<Reread> {
        Some(Box::new(|bytes| Content::Json(Cow::Owned(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::table::tests::{mutated, read};

    #[test]
    fn arrays_are_read_on_one_line_or_many_and_under_either_name() {
        let lines = "\u{feff}[\n {\"x\": 1, \"y\": \"a, ] } \\\" [\"},\n\n {\"y\": \"b\", \"x\": 2}\n]\n";
        for name in ["a.json", "a.jsonl"] {
            for content in [lines.to_string(), lines.replace('\n', "")] {
                let table = read(name, content, None, &["y"]).unwrap();
                assert_eq!(table.numbers("x").unwrap(), [1.0, 2.0], "{name}");
            }
        }
        let table = read("a.json", "{\"x\": 1}\n{\"x\": 2}\n", None, &[]).unwrap();
        assert_eq!(table.numbers("x").unwrap(), [1.0, 2.0], "an object per line");
    }

    #[test]
    fn what_is_no_array_of_objects_is_refused_by_row() {
        let message = |content: &str| {
            let text = read("a.json", content, None, &["y"]).unwrap_err().to_string();
            text[text.find("a.json: ").unwrap() + 8..].to_string()
        };
        assert_eq!(message("[]"), "holds no rows");
        assert!(message("").starts_with("row 1: `[` is expected"));
        assert!(message("7").starts_with("row 1: `[` is expected"));
        assert!(message("[7]").starts_with("row 1: invalid type"));
        assert!(message("[{\"y\": 1} {\"y\": 2}]").starts_with("row 1: trailing characters"));
        assert_eq!(message("[{\"y\": 1}, {\"y\": 2"), "row 2: the array does not end");
        assert_eq!(message("[{\"y\": 1}"), "row 1: the array does not end");
        assert_eq!(message("[{\"y\": 1}] 2"), "row 1: something follows the end of the array");
        assert!(message("[{\"y\": 1},]").starts_with("row 2: "));
        assert_eq!(message("[{\"y\": 1, \"x\": 2}, {\"y\": 1}]"), "row 2, column `x`: the value is missing");
    }

    /// Damage of every kind gives an error or a table, never a panic or a hang.
    #[test]
    fn damaged_files_do_not_panic() {
        let whole = "[{\"x\": 1, \"y\": \"a\"}, {\"x\": 2, \"y\": \"b\\\\\"}, {\"x\": 3, \"y\": \"[c]\"}]";
        for seed in 0..2000 {
            if let Ok(table) = read("a.json", mutated(whole, seed), None, &["y"]) {
                assert!(table.rows <= 3);
            }
        }
    }
}
