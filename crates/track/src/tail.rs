//! events.jsonl read from where one was, line by line, while it is being written.

use plimsoll_runs::{Timed, open_events};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The most that is read at a time: a sink that was away for long catches up in pieces.
const MOST_LINES: usize = 500;
/// A line longer than this is no event; it is passed over.
const LONGEST_LINE: u64 = 4 << 20;

pub(crate) struct Tail {
    path: PathBuf,
    /// Bytes that are delivered.
    offset: u64,
}

/// Events and where the log goes on behind them.
#[derive(Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) events: Vec<Timed>,
    pub(crate) end: u64,
}

impl Tail {
    pub(crate) fn new(path: &Path, offset: u64) -> Tail {
        Tail { path: path.to_path_buf(), offset }
    }

    /// The next whole lines. A log that is not there yet is empty; one that became shorter is another run's, and read from
    /// its beginning.
    pub(crate) fn read(&mut self) -> io::Result<Piece> {
        let file = match open_events(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Piece { events: vec![], end: 0 }),
            Err(error) => return Err(error),
        };
        if file.metadata()?.len() < self.offset {
            self.offset = 0;
        }
        lines(file, self.offset)
    }

    pub(crate) fn advance(&mut self, end: u64) {
        self.offset = end;
    }
}

fn lines(mut file: File, offset: u64) -> io::Result<Piece> {
    file.seek(SeekFrom::Start(offset))?;
    let mut reader = BufReader::new(file);
    let mut piece = Piece { events: Vec::new(), end: offset };
    let mut line = Vec::new();
    while piece.events.len() < MOST_LINES {
        line.clear();
        let read = io::Read::take(&mut reader, LONGEST_LINE).read_until(b'\n', &mut line)? as u64;
        // A line without an end is still being written, unless it is too long to be one.
        if read == 0 || (line.last() != Some(&b'\n') && read < LONGEST_LINE) {
            break;
        }
        piece.end += read;
        piece.events.extend(serde_json::from_slice(&line).ok());
    }
    Ok(piece)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn note(text: &str) -> String {
        format!("{{\"time\":1.0,\"event\":\"note\",\"text\":\"{text}\"}}\n")
    }

    #[test]
    fn whole_lines_are_read_once_and_torn_ones_when_they_are_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let mut tail = Tail::new(&path, 0);
        assert_eq!(tail.read().unwrap().events, []);
        let (first, second) = (note("a"), note("b"));
        let mut file = File::create(&path).unwrap();
        file.write_all(first.as_bytes()).unwrap();
        file.write_all(&second.as_bytes()[..9]).unwrap();
        let piece = tail.read().unwrap();
        assert_eq!((piece.events.len(), piece.end), (1, first.len() as u64));
        tail.advance(piece.end);
        file.write_all(&second.as_bytes()[9..]).unwrap();
        file.write_all(b"not an event\n").unwrap();
        let piece = tail.read().unwrap();
        assert_eq!(piece.events.len(), 1);
        tail.advance(piece.end);
        assert_eq!(tail.read().unwrap().events, []);
    }

    #[test]
    fn long_logs_come_in_pieces_and_a_shorter_one_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        std::fs::write(&path, note("x").repeat(1201)).unwrap();
        let (mut tail, mut seen) = (Tail::new(&path, 0), 0);
        loop {
            let piece = tail.read().unwrap();
            if piece.events.is_empty() {
                break;
            }
            assert!(piece.events.len() <= MOST_LINES);
            seen += piece.events.len();
            tail.advance(piece.end);
        }
        assert_eq!(seen, 1201);
        std::fs::write(&path, note("new")).unwrap();
        assert_eq!(tail.read().unwrap().events.len(), 1);
    }
}
