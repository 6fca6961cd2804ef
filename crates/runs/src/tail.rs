//! Follows the events of a run that is under way, from whichever process.

use crate::Event;
use crate::events::open_events;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Reads what was added since the last look.
#[derive(Debug)]
pub struct EventTail {
    path: PathBuf,
    /// Where the next unread line begins.
    offset: u64,
}

impl EventTail {
    /// From the first event on; the file need not be there yet.
    pub fn new(path: &Path) -> EventTail {
        EventTail { path: path.into(), offset: 0 }
    }

    /// The events of whole new lines; those of another version are passed over.
    pub fn next_events(&mut self) -> io::Result<Vec<Event>> {
        let mut file = match open_events(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        // A torn last line that was cut off makes the file shorter, never behind a whole line.
        file.seek(SeekFrom::Start(self.offset))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        self.offset += whole as u64;
        Ok(text[..whole].split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    #[test]
    fn events_are_read_once_and_half_a_line_waits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let mut tail = EventTail::new(&path);
        assert!(tail.next_events().unwrap().is_empty());
        let line = |text: &str| serde_json::to_string(&Event::Note { text: text.into() }).unwrap() + "\n";
        let mut file = File::create(&path).unwrap();
        let (first, second) = (line("one"), line("two"));
        file.write_all((first + &second[..9]).as_bytes()).unwrap();
        assert_eq!(tail.next_events().unwrap(), [Event::Note { text: "one".into() }]);
        assert!(tail.next_events().unwrap().is_empty());
        file.write_all(&second.as_bytes()[9..]).unwrap();
        assert_eq!(tail.next_events().unwrap(), [Event::Note { text: "two".into() }]);
    }
}
