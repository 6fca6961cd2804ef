//! Text files: whole, or as JSON lines, with bad UTF-8 placed.

use super::DataError;
use serde::de::DeserializeOwned;
use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

const BYTE_ORDER_MARK: &str = "\u{feff}";

/// The whole file as text, without a byte-order mark.
pub(super) fn read(file: &Path) -> Result<String, DataError> {
    let bytes = std::fs::read(file).map_err(|source| DataError::Unreadable { file: file.into(), source })?;
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() as u64;
        DataError::BadUtf8 { file: file.into(), byte: at as u64, line }
    })?;
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(text)
}

/// Reads one JSON value per line; blank lines are skipped but counted.
pub(super) struct JsonLines {
    file: PathBuf,
    reader: BufReader<File>,
    buffer: Vec<u8>,
    line: u64,
    /// Where the current line begins.
    byte: u64,
}

impl JsonLines {
    pub fn open(file: &Path) -> Result<Self, DataError> {
        let opened = File::open(file).map_err(|source| DataError::Unreadable { file: file.into(), source })?;
        Ok(JsonLines { file: file.into(), reader: BufReader::new(opened), buffer: Vec::new(), line: 0, byte: 0 })
    }

    /// The next value and its line; `None` at the end of the file.
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Option<(u64, T)>, DataError> {
        while self.read_line()? {
            let text = str::from_utf8(&self.buffer).map_err(|error| DataError::BadUtf8 {
                file: self.file.clone(),
                byte: self.byte + error.valid_up_to() as u64,
                line: self.line,
            })?;
            let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text).trim();
            if !text.is_empty() {
                let value = serde_json::from_str(text).map_err(|error| self.malformed(&error))?;
                return Ok(Some((self.line, value)));
            }
        }
        Ok(None)
    }

    fn read_line(&mut self) -> Result<bool, DataError> {
        self.byte += self.buffer.len() as u64;
        self.buffer.clear();
        let read = self.reader.read_until(b'\n', &mut self.buffer);
        self.line += 1;
        Ok(read.map_err(|source| DataError::Unreadable { file: self.file.clone(), source })? > 0)
    }

    /// The message without serde's own line number, which is always 1 here.
    fn malformed(&self, error: &serde_json::Error) -> DataError {
        let place = super::Place::Line(self.line);
        let cause = error.to_string().replace(" at line 1 column ", " at column ");
        DataError::Malformed { file: self.file.clone(), place, cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::file;

    #[test]
    fn bad_utf8_has_byte_and_line() {
        let (_folder, path) = file("a.txt", b"one\ntwo\nth\xc3ree");
        assert!(matches!(read(&path), Err(DataError::BadUtf8 { byte: 10, line: 3, .. })));
        let (_folder, path) = file("a.jsonl", b"{}\n\n{\"a\": \"\xff\"}\n");
        let mut lines = JsonLines::open(&path).unwrap();
        assert_eq!(lines.next::<serde_json::Value>().unwrap().unwrap().0, 1);
        let error = lines.next::<serde_json::Value>().unwrap_err();
        assert!(matches!(error, DataError::BadUtf8 { byte: 11, line: 3, .. }), "{error}");
    }

    #[test]
    fn a_byte_order_mark_is_not_text() {
        let (_folder, path) = file("a.txt", "\u{feff}hello");
        assert_eq!(read(&path).unwrap(), "hello");
    }
}
