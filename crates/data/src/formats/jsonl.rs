//! One JSON object per line; the first names the columns. Blank lines are passed over.

#[cfg(test)]
use super::Cell;
use super::{BYTE_ORDER_MARK, Columns, Content, FileFormat, Reread, Row, RowReader, object};
use crate::{DataError, Place};
use std::{
    borrow::Cow,
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

pub(super) struct Jsonl;
pub(super) const FORMAT: Jsonl = Jsonl;

impl FileFormat for Jsonl {
    fn open(&self, file: &Path, opened: File) -> Result<Box<dyn RowReader>, DataError> {
        let reader = BufReader::with_capacity(1 << 18, opened);
        let mut lines = Lines {
            file: file.into(),
            reader,
            buffer: Vec::new(),
            line: 0,
            offset: 0,
            ahead: false,
            names: Vec::new(),
        };
        lines.ahead = lines.advance()?;
        // A first line that is no object is that row's fault, and said when it is read.
        lines.names = object::keys(&lines.buffer).unwrap_or_default();
        Ok(Box::new(lines))
    }

    #[cfg(test)]
    fn write(&self, names: &[&str], rows: &[Vec<Cell<'_>>]) -> Vec<u8> {
        rows.iter().map(|row| object::tests::write(names, row) + "\n").collect::<String>().into_bytes()
    }
}

struct Lines {
    file: PathBuf,
    reader: BufReader<File>,
    /// The current line.
    buffer: Vec<u8>,
    line: u64,
    /// Where the current line begins.
    offset: u64,
    /// The current line was read but not handed out.
    ahead: bool,
    names: Vec<String>,
}

impl Lines {
    /// Goes to the next line that is not blank.
    fn advance(&mut self) -> Result<bool, DataError> {
        loop {
            self.offset += self.buffer.len() as u64;
            self.buffer.clear();
            let read = self.reader.read_until(b'\n', &mut self.buffer);
            if read.map_err(|source| DataError::Unreadable { file: self.file.clone(), source })? == 0 {
                return Ok(false);
            }
            if self.line == 0 && self.buffer.starts_with(BYTE_ORDER_MARK) {
                self.buffer.drain(..BYTE_ORDER_MARK.len());
                self.offset = BYTE_ORDER_MARK.len() as u64;
            }
            self.line += 1;
            if !self.buffer.iter().all(u8::is_ascii_whitespace) {
                return Ok(true);
            }
        }
    }
}

impl RowReader for Lines {
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
            place: Place::Line(self.line),
            offset: self.offset,
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
    use super::*;
    use crate::formats::table::{Selection, tests::read};

    #[test]
    fn keys_give_columns_in_file_order() {
        let content = "{\"z\": 1, \"a\": 2.5, \"y\": \"up\"}\n\n{\"y\": \"down\", \"a\": 3, \"z\": true}\n";
        let table = read("a.jsonl", content, None, &["y"]).unwrap();
        assert_eq!(table.number_names(&Selection { others: vec!["y".into()], ..Selection::default() }), ["z", "a"]);
        assert_eq!(table.numbers("z").unwrap(), [1.0, 1.0]);
        assert_eq!(table.numbers("a").unwrap(), [2.5, 3.0]);
        assert_eq!(table.place(1), Place::Line(3), "blank lines count as lines, not as rows");
    }

    #[test]
    fn bad_lines_are_named() {
        let message = |content: &str| {
            let text = read("a.jsonl", content, None, &["y"]).unwrap_err().to_string();
            text[text.find("a.jsonl").unwrap()..].to_string()
        };
        assert!(message("{\"x\":1,\"y\":0}\n{\"x\":1,\"y\":\n").starts_with("a.jsonl: line 2: "));
        assert!(message("{\"x\":NaN,\"y\":0}\n").starts_with("a.jsonl: line 1: "));
        assert!(message("[1,2]\n").contains("line 1: invalid type: sequence, expected an object"));
        assert_eq!(message("{\"x\":1,\"y\":0}\n{\"y\":1}\n"), "a.jsonl: line 2, column `x`: the value is missing");
        assert_eq!(
            message("{\"x\":1,\"y\":0}\n{\"x\":\"far\",\"y\":1}\n"),
            "a.jsonl: line 2, column `x`: `far` is not a number"
        );
        assert_eq!(message("\n\n"), "a.jsonl: holds no rows");
    }

    #[test]
    fn bad_utf8_is_placed() {
        let content = b"{\"a\":1}\n\n{\"a\": \"\xff\"}\n";
        let error = read("a.jsonl", content, None, &["a"]).unwrap_err();
        assert!(matches!(error, DataError::BadUtf8 { byte: 16, line: 3, .. }), "{error}");
    }
}
