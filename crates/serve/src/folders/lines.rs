//! Whole lines of a file that somebody else appends to.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Read at one time at most.
const MOST_BYTES: u64 = 1 << 20;
/// The same for each of many clients: one that never reads holds this much.
const PIECE_BYTES: u64 = 64 << 10;

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
#[derive(Debug, Default)]
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
        Lines::read_at_most(path, from, MOST_BYTES)
    }

    /// The same in small pieces; a line that is larger than one comes whole.
    pub(crate) fn read_piece(path: &Path, from: u64) -> io::Result<Lines> {
        let piece = Lines::read_at_most(path, from, PIECE_BYTES)?;
        if piece.bytes.is_empty() && piece.more { Lines::read(path, from) } else { Ok(piece) }
    }

    fn read_at_most(path: &Path, from: u64, most: u64) -> io::Result<Lines> {
        let (mut bytes, length) = match read_some(path, from, most) {
            Ok(read) => read,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => (Vec::new(), 0),
            Err(cause) => return Err(cause),
        };
        let full = bytes.len() as u64 == most;
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
    fn many_clients_get_small_pieces_and_large_lines_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let large = vec![b'y'; 3 * PIECE_BYTES as usize];
        std::fs::write(&path, [&b"short\n".repeat(20_000)[..], &large, b"\nend\n"].concat()).unwrap();
        let (mut at, mut seen) = (0, Vec::new());
        loop {
            let piece = Lines::read_piece(&path, at).unwrap();
            assert!(piece.bytes.len() as u64 <= PIECE_BYTES || piece.each().next().unwrap().0 == large);
            seen.extend(piece.each().map(|(line, _)| line.len()));
            at = piece.next;
            if piece.bytes.is_empty() {
                break;
            }
        }
        assert_eq!((seen.len(), seen[20_000], seen[20_001]), (20_002, large.len(), 3));
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
