//! Whole lines of a file that somebody else appends to.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Read at one time at most.
const MOST_BYTES: u64 = 1 << 20;

/// Opens a file of a run; links are not followed, and pipes do not block.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a plain file")),
    }
}

/// Some bytes from a place on, and how long the file is.
pub(crate) fn read_some(path: &Path, from: u64, most: u64) -> io::Result<(Vec<u8>, u64)> {
    let mut file = open(path)?;
    let length = file.metadata()?.len();
    let mut bytes = Vec::new();
    if from < length {
        file.seek(SeekFrom::Start(from))?;
        file.take(most).read_to_end(&mut bytes)?;
    }
    Ok((bytes, length))
}

/// Whole lines from a place on.
pub(crate) struct Lines {
    /// Where the next read starts: behind the last whole line.
    pub next: u64,
    /// Whole lines, each with its end.
    pub bytes: Vec<u8>,
    /// The file has become shorter than the place: it is another one.
    pub replaced: bool,
    /// There is more to read at once.
    pub more: bool,
}

impl Lines {
    /// A file that is not there has no lines.
    pub(crate) fn read(path: &Path, from: u64) -> io::Result<Lines> {
        let (mut bytes, length) = match read_some(path, from, MOST_BYTES) {
            Ok(read) => read,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => (Vec::new(), 0),
            Err(cause) => return Err(cause),
        };
        let full = bytes.len() as u64 == MOST_BYTES;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        // A line that is longer than a read is no event: it is skipped piece by piece.
        let skipped = if full && whole == 0 { bytes.len() as u64 } else { 0 };
        bytes.truncate(whole);
        Ok(Lines { next: from + whole as u64 + skipped, bytes, replaced: length < from, more: full })
    }

    /// Each line without its end, and the place behind it.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let mut at = self.next - self.bytes.len() as u64;
        self.bytes.split_inclusive(|&byte| byte == b'\n').map(move |line| {
            at += line.len() as u64;
            (line.strip_suffix(b"\n").unwrap_or(line), at)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_come_whole_and_once_however_they_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        assert!(Lines::read(&path, 0).unwrap().bytes.is_empty());
        let (mut file, mut at, mut seen) = (File::create(&path).unwrap(), 0, Vec::new());
        for part in ["one\ntw", "o\n", "thr", "ee", "\n\nfive\n"] {
            file.write_all(part.as_bytes()).unwrap();
            let lines = Lines::read(&path, at).unwrap();
            seen.extend(lines.each().map(|(line, end)| (String::from_utf8_lossy(line).into_owned(), end)));
            at = lines.next;
        }
        let words: Vec<&str> = seen.iter().map(|(line, _)| line.as_str()).collect();
        assert_eq!(words, ["one", "two", "three", "", "five"]);
        // Every place is one to go on from.
        for (index, (_, end)) in seen.iter().enumerate() {
            assert_eq!(Lines::read(&path, *end).unwrap().each().count(), 4 - index);
        }
        file.set_len(2).unwrap();
        assert!(Lines::read(&path, at).unwrap().replaced);
    }

    #[test]
    fn a_line_without_end_is_passed_over_and_links_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let endless = vec![b'x'; MOST_BYTES as usize + 10];
        std::fs::write(&path, [&endless[..], b"\nok\n"].concat()).unwrap();
        let first = Lines::read(&path, 0).unwrap();
        assert!(first.bytes.is_empty() && first.more);
        let second = Lines::read(&path, first.next).unwrap();
        assert_eq!(second.each().last().unwrap().0, b"ok");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(Lines::read(&link, 0).is_err());
    }
}
