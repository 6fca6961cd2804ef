//! Text files as a whole, with bad UTF-8 placed.

use super::DataError;
use std::io::Read;
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

/// Bytes of a file that are read at a time.
const BLOCK_BYTES: usize = 1 << 20;

/// Hands out a file block by block, as `take` can use it: it is given all text that is there and says how much of it it
/// took; the last time it has to take the rest. However the lines are, no more than that is in memory.
pub(super) fn stream(
    file: &Path,
    mut opened: impl Read,
    mut take: impl FnMut(&str, bool) -> Result<usize, DataError>,
) -> Result<(), DataError> {
    let (mut bytes, mut block) = (Vec::new(), vec![0; BLOCK_BYTES]);
    let mut place = StreamPlace { byte: 0, line: 1 };
    loop {
        let read = opened.read(&mut block).map_err(|source| DataError::Unreadable { file: file.into(), source })?;
        bytes.extend_from_slice(&block[..read]);
        if place.byte == 0 && bytes.starts_with(BYTE_ORDER_MARK.as_bytes()) {
            bytes.drain(..BYTE_ORDER_MARK.len());
            place.byte += BYTE_ORDER_MARK.len();
        }
        let text = place.valid(&bytes, read == 0).map_err(|(byte, line)| DataError::BadUtf8 {
            file: file.into(),
            byte,
            line,
        })?;
        let taken = take(text, read == 0)?.min(text.len());
        place.pass(&bytes[..taken]);
        bytes.drain(..taken);
        if read == 0 {
            return Ok(());
        }
    }
}

/// Where in a file the bytes in hand begin.
struct StreamPlace {
    byte: usize,
    line: u64,
}

impl StreamPlace {
    /// What of `bytes` is text: all but a character whose end may still come. What is not, by byte and line.
    fn valid<'a>(&self, bytes: &'a [u8], is_last: bool) -> Result<&'a str, (u64, u64)> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text),
            Err(error) => {
                let (text, _) = bytes.split_at(error.valid_up_to());
                match error.error_len() {
                    None if !is_last => Ok(std::str::from_utf8(text).unwrap_or_default()),
                    _ => Err(((self.byte + text.len()) as u64, self.line + newlines(text))),
                }
            }
        }
    }

    fn pass(&mut self, bytes: &[u8]) {
        self.byte += bytes.len();
        self.line += newlines(bytes);
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
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

    /// However reads fall, and however much is taken each time.
    #[test]
    fn a_stream_is_the_whole_text() {
        struct Slow<'a>(&'a [u8]);
        impl Read for Slow<'_> {
            fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
                let count = self.0.len().min(7).min(to.len());
                to[..count].copy_from_slice(&self.0[..count]);
                self.0 = &self.0[count..];
                Ok(count)
            }
        }
        let text = "\u{feff}zwölf 文字\n drei €\n".to_string() + &"ab ".repeat(40);
        for keeps in [0, 1, 9] {
            let mut seen = String::new();
            stream(Path::new("a.txt"), Slow(text.as_bytes()), |part, is_last| {
                let end = if is_last { part.len() } else { part.floor_char_boundary(part.len().saturating_sub(keeps)) };
                seen += &part[..end];
                Ok(end)
            })
            .unwrap();
            assert_eq!(seen, text[3..], "{keeps}");
        }
        let bad = b"one\ntwo\nth\xc3ree and more of it";
        let all = |part: &str, _| Ok(part.len());
        let error = stream(Path::new("a.txt"), Slow(bad), all).unwrap_err();
        assert!(matches!(error, DataError::BadUtf8 { byte: 10, line: 3, .. }), "{error}");
        let error = stream(Path::new("a.txt"), Slow(b"cut \xe6\x96"), all).unwrap_err();
        assert!(matches!(error, DataError::BadUtf8 { byte: 4, line: 1, .. }), "{error}");
    }

    #[test]
    fn a_byte_order_mark_is_not_text() {
        let (_folder, path) = file("a.txt", "\u{feff}hello");
        assert_eq!(read(&path).unwrap(), "hello");
    }
}
