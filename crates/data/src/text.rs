//! Text files as a whole, with bad UTF-8 placed.

use super::DataError;
use std::path::Path;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::table::tests::file;

    #[test]
    fn bad_utf8_has_byte_and_line() {
        let (_folder, path) = file("a.txt", b"one\ntwo\nth\xc3ree");
        assert!(matches!(read(&path), Err(DataError::BadUtf8 { byte: 10, line: 3, .. })));
    }

    #[test]
    fn a_byte_order_mark_is_not_text() {
        let (_folder, path) = file("a.txt", "\u{feff}hello");
        assert_eq!(read(&path).unwrap(), "hello");
    }
}
