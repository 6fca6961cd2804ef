//! Whole lines of a file that somebody else appends to.

use plimsoll_runs::open_inside;
use serde::Deserialize;
use std::fmt;
use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Read at one time at most.
const MOST_BYTES: u64 = 1 << 20;
/// The same for each of many clients: one that never reads holds this much.
const PIECE_BYTES: u64 = 64 << 10;

/// Some bytes from a place on.
pub(crate) fn read_some(path: &Path, from: u64, most: u64) -> io::Result<Vec<u8>> {
    read_part(path, from, most).map(|(bytes, _)| bytes)
}

/// The same, and what is known about the file that they are of.
fn read_part(path: &Path, from: u64, most: u64) -> io::Result<(Vec<u8>, Metadata)> {
    let mut file = open_inside(path)?;
    let there = file.metadata()?;
    let mut bytes = Vec::new();
    if from < there.len() {
        file.seek(SeekFrom::Start(from))?;
        file.take(most).read_to_end(&mut bytes)?;
    }
    Ok((bytes, there))
}

/// Which file it is, whatever its name. File systems give the number of one that was removed to the next that is made:
/// where they know it, when it was made tells the two apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId(u64);

impl FileId {
    pub(crate) fn of(there: &Metadata) -> FileId {
        let mut digest = DefaultHasher::new();
        (there.dev(), there.ino(), there.created().ok()).hash(&mut digest);
        FileId(digest.finish())
    }
}

/// How far a file was read, and which one it was. In words, as clients keep it: `7040-1f0b6c5d2e9a4388`, or a number by
/// itself, which is a place in whichever file there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Place {
    pub at: u64,
    /// Unknown before the first look.
    pub file: Option<FileId>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file {
            Some(FileId(id)) => write!(f, "{}-{id:016x}", self.at),
            None => write!(f, "{}", self.at),
        }
    }
}

impl TryFrom<String> for Place {
    type Error = &'static str;

    fn try_from(words: String) -> Result<Place, &'static str> {
        let (at, file) = words.split_once('-').map_or((&*words, None), |(at, file)| (at, Some(file)));
        let file = file.map(|file| u64::from_str_radix(file, 16).map(FileId)).transpose();
        let place = at.parse().ok().zip(file.ok()).map(|(at, file)| Place { at, file });
        place.ok_or("a place is 0, or the id of an earlier event")
    }
}

impl Place {
    /// Whether nothing was written to the file, and no other stands in its stead.
    pub(crate) fn is_end_of(&self, there: &Metadata) -> bool {
        there.len() == self.at && self.file == Some(FileId::of(there))
    }

    /// Whether the file behind the name is another one now, or has become shorter: both hold another run's events.
    fn is_lost(&self, there: Option<&Metadata>) -> bool {
        let is_another = self.file.is_some() && self.file != there.map(FileId::of);
        is_another || there.map_or(0, Metadata::len) < self.at
    }
}

/// Whole lines from a place on.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Where the next read starts: behind the last whole line.
    pub next: u64,
    /// What they were read from; none where there is no file.
    pub file: Option<FileId>,
    /// Whole lines, each with its end.
    pub bytes: Vec<u8>,
    /// The place is one of another file than the one that is there.
    pub replaced: bool,
    /// There is more to read at once.
    pub more: bool,
}

impl Lines {
    /// A file that is not there has no lines.
    pub(crate) fn read(path: &Path, from: Place) -> io::Result<Lines> {
        Lines::read_at_most(path, from, MOST_BYTES)
    }

    /// The same in small pieces; a line that is larger than one comes whole.
    pub(crate) fn read_piece(path: &Path, from: Place) -> io::Result<Lines> {
        let piece = Lines::read_at_most(path, from, PIECE_BYTES)?;
        if piece.bytes.is_empty() && piece.more { Lines::read(path, from) } else { Ok(piece) }
    }

    fn read_at_most(path: &Path, from: Place, most: u64) -> io::Result<Lines> {
        let (mut bytes, there) = match read_part(path, from.at, most) {
            Ok((bytes, there)) => (bytes, Some(there)),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => (Vec::new(), None),
            Err(cause) => return Err(cause),
        };
        let full = bytes.len() as u64 == most;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        // A line that is longer than a read is no event: it is skipped piece by piece.
        let skipped = if full && whole == 0 { bytes.len() as u64 } else { 0 };
        bytes.truncate(whole);
        let (replaced, file) = (from.is_lost(there.as_ref()), there.as_ref().map(FileId::of));
        Ok(Lines { next: from.at + whole as u64 + skipped, file, bytes, replaced, more: full })
    }

    /// Where the next read goes on, in the same file.
    pub(crate) fn place(&self) -> Place {
        Place { at: self.next, file: self.file }
    }

    /// Each line without its end, and the place behind it.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&[u8], Place)> {
        let mut place = Place { at: self.next - self.bytes.len() as u64, file: self.file };
        self.bytes.split_inclusive(|&byte| byte == b'\n').map(move |line| {
            place.at += line.len() as u64;
            (line.strip_suffix(b"\n").unwrap_or(line), place)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    fn at(at: u64) -> Place {
        Place { at, file: None }
    }

    #[test]
    fn lines_come_whole_and_once_however_they_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        assert!(Lines::read(&path, at(0)).unwrap().bytes.is_empty());
        let (mut file, mut place, mut seen) = (File::create(&path).unwrap(), Place::default(), Vec::new());
        for part in ["one\ntw", "o\n", "thr", "ee", "\n\nfive\n"] {
            file.write_all(part.as_bytes()).unwrap();
            let lines = Lines::read(&path, place).unwrap();
            seen.extend(lines.each().map(|(line, end)| (String::from_utf8_lossy(line).into_owned(), end)));
            place = lines.place();
        }
        let words: Vec<&str> = seen.iter().map(|(line, _)| line.as_str()).collect();
        assert_eq!(words, ["one", "two", "three", "", "five"]);
        // Every place is one to go on from.
        for (index, (_, end)) in seen.iter().enumerate() {
            assert_eq!(Lines::read(&path, *end).unwrap().each().count(), 4 - index);
        }
        file.set_len(2).unwrap();
        assert!(Lines::read(&path, place).unwrap().replaced);
    }

    #[test]
    fn a_place_is_itself_again_after_it_was_said() {
        let file = FileId::of(&std::fs::metadata(".").unwrap());
        for place in [at(0), at(7), Place { at: u64::MAX, file: Some(file) }] {
            assert_eq!(Place::try_from(place.to_string()), Ok(place));
        }
        for words in ["", "-", "7-", "x", "7-x", "7-1-2", "-7", "7.5", &"9".repeat(30)] {
            assert!(Place::try_from(words.to_string()).is_err(), "{words}");
        }
    }

    #[test]
    fn many_clients_get_small_pieces_and_large_lines_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let large = vec![b'y'; 3 * PIECE_BYTES as usize];
        std::fs::write(&path, [&b"short\n".repeat(20_000)[..], &large, b"\nend\n"].concat()).unwrap();
        let (mut place, mut seen) = (Place::default(), Vec::new());
        loop {
            let piece = Lines::read_piece(&path, place).unwrap();
            assert!(piece.bytes.len() as u64 <= PIECE_BYTES || piece.each().next().unwrap().0 == large);
            seen.extend(piece.each().map(|(line, _)| line.len()));
            place = piece.place();
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
        let first = Lines::read(&path, at(0)).unwrap();
        assert!(first.bytes.is_empty() && first.more);
        let second = Lines::read(&path, first.place()).unwrap();
        assert_eq!(second.each().last().unwrap().0, b"ok");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(Lines::read(&link, at(0)).is_err());
    }

    #[test]
    fn a_file_of_the_same_name_is_another_however_long_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        std::fs::write(&path, "one\ntwo\n").unwrap();
        let read = Lines::read(&path, Place::default()).unwrap();
        assert!(!Lines::read(&path, read.place()).unwrap().replaced);
        std::fs::remove_file(&path).unwrap();
        assert!(Lines::read(&path, read.place()).unwrap().replaced, "it is gone");
        // The clock of a file system may stand still for some milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::write(&path, "another one\nand another\nand more of them\n").unwrap();
        assert!(Lines::read(&path, read.place()).unwrap().replaced, "it is longer, and not the same");
        assert!(!read.place().is_end_of(&std::fs::metadata(&path).unwrap()));
    }
}
