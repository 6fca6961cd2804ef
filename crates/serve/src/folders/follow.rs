//! Runs that somebody watches: one look at a file serves all who watch it. A client keeps nothing here but its place in
//! the file, so one that reads slowly holds no memory.

use super::{FileId, Lines, Place, RunId};
use axum::body::Bytes;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// How often a watched file is looked at by up to so many listeners. Twice as many wait twice as long, but no one longer than
/// ten times: each look is a write for each of them.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const LISTENERS: usize = 250;
const LONGEST: usize = 10;
/// The end of the file that is kept for all. Who is further behind reads pieces; the latest of those are kept, because
/// those who come together read the same ones.
const KEPT_BYTES: usize = 64 << 10;
const KEPT_PIECES: usize = 32;

/// The end of a run's events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail {
    /// Which file they are of, once it was read.
    file: Option<FileId>,
    /// Where the kept bytes start.
    start: u64,
    bytes: Arc<Vec<u8>>,
    /// How often the file was replaced.
    generation: u64,
    /// What came last.
    news: Arc<News>,
}

/// Lines that came at once: most listeners wait for just these, and get the same bytes.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) lines: Lines,
    told: OnceLock<Bytes>,
}

impl News {
    /// As they are told to a client, made by the first who tells them.
    pub(crate) fn told(&self, tell: impl FnOnce(&Lines) -> Bytes) -> Bytes {
        self.told.get_or_init(|| tell(&self.lines)).clone()
    }

    fn start(&self) -> u64 {
        self.lines.next - self.lines.bytes.len() as u64
    }
}

impl Tail {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// A file that is watched as long as somebody holds this.
pub(crate) struct Watched {
    path: PathBuf,
    tail: watch::Receiver<Tail>,
    /// Generation and start of pieces that cannot change: more than them had been written when they were read.
    pieces: Mutex<Pieces>,
}

/// Generation, start, and what was read there.
type Pieces = VecDeque<(u64, u64, Arc<News>)>;

/// All files that are watched now.
#[derive(Default)]
pub(crate) struct Tails(Mutex<HashMap<RunId, Weak<Watched>>>);

impl Tails {
    pub(crate) fn watch(&self, id: &RunId, folder: &Path) -> Arc<Watched> {
        let mut tails = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tails.retain(|_, watched| watched.strong_count() > 0);
        if let Some(watched) = tails.get(id).and_then(Weak::upgrade) {
            return watched;
        }
        let (sender, tail) = watch::channel(Tail::default());
        let watched = Arc::new(Watched { path: folder.join("events.jsonl"), tail, pieces: Mutex::default() });
        tails.insert(id.clone(), Arc::downgrade(&watched));
        tokio::spawn(look(watched.path.clone(), sender));
        watched
    }
}

/// Reads what is appended until nobody listens.
async fn look(path: PathBuf, sender: watch::Sender<Tail>) {
    let at = std::fs::metadata(&path).map_or(0, |there| there.len()).saturating_sub(KEPT_BYTES as u64);
    let mut place = Place { at, file: None };
    // The first line may be cut.
    let mut aligned = at == 0;
    let mut is_first = true;
    while !sender.is_closed() {
        if !std::mem::take(&mut is_first) {
            tokio::time::sleep(look_every(sender.receiver_count())).await;
        }
        if std::fs::metadata(&path).is_ok_and(|there| place.is_end_of(&there)) {
            continue;
        }
        let Ok(mut lines) = Lines::read(&path, place) else { continue };
        if lines.replaced {
            (place, aligned) = (Place::default(), true);
            sender.send_modify(|tail| *tail = Tail { generation: tail.generation + 1, ..Tail::default() });
            continue;
        }
        if !aligned && let Some(first) = lines.bytes.iter().position(|&byte| byte == b'\n') {
            lines.bytes.drain(..=first);
            aligned = true;
        }
        place = lines.place();
        if !lines.bytes.is_empty() {
            sender.send_modify(|tail| *tail = appended(tail, lines));
        }
    }
}

fn look_every(listeners: usize) -> Duration {
    LOOK_EVERY * listeners.div_ceil(LISTENERS).clamp(1, LONGEST) as u32
}

fn appended(tail: &Tail, lines: Lines) -> Tail {
    let start = lines.next - lines.bytes.len() as u64;
    let mut bytes = if tail.end() == start { tail.bytes.to_vec() } else { Vec::new() };
    bytes.extend_from_slice(&lines.bytes);
    let mut kept = lines.next - bytes.len() as u64;
    if bytes.len() > KEPT_BYTES {
        let cut = bytes.len() - KEPT_BYTES;
        let whole = bytes[cut..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |at| cut + at + 1);
        bytes.drain(..whole);
        kept += whole as u64;
    }
    let (file, news) = (lines.file, Arc::new(News { lines, told: OnceLock::new() }));
    Tail { file, start: kept, bytes: Arc::new(bytes), generation: tail.generation, news }
}

/// One client's place in a watched file.
pub(crate) struct Reader {
    watched: Arc<Watched>,
    tail: watch::Receiver<Tail>,
    generation: u64,
    at: u64,
    /// What was read so far is of this file: the watcher may come to look when another one is there already.
    file: Option<FileId>,
    /// It knows that the file is another one before the watcher does, and waits for it: till then what is kept for all is
    /// of the old one.
    ahead: bool,
}

/// What a client gets next.
pub(crate) enum Next {
    Lines(Lines),
    News(Arc<News>),
    /// The file is another one: what was seen of it does not count any more.
    StartOver,
}

impl Watched {
    fn piece(&self, generation: u64, at: u64, file: Option<FileId>) -> Option<Arc<News>> {
        let pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        found(&pieces, generation, at, file)
    }

    /// The piece that is kept: this one, or what somebody else read in the same moment.
    fn keep(&self, generation: u64, at: u64, piece: News) -> Arc<News> {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = found(&pieces, generation, at, piece.lines.file) {
            return kept;
        }
        let piece = Arc::new(piece);
        pieces.push_back((generation, at, piece.clone()));
        if pieces.len() > KEPT_PIECES {
            pieces.pop_front();
        }
        piece
    }

    pub(crate) fn reader(self: &Arc<Watched>, from: Place) -> Reader {
        let mut tail = self.tail.clone();
        let generation = tail.borrow_and_update().generation;
        tail.mark_changed();
        Reader { watched: self.clone(), tail, generation, at: from.at, file: from.file, ahead: false }
    }
}

/// The piece of a place in a file, or in whichever there is.
fn found(pieces: &Pieces, generation: u64, at: u64, file: Option<FileId>) -> Option<Arc<News>> {
    let is_it = |(of, start, piece): &&(u64, u64, Arc<News>)| {
        (*of, *start) == (generation, at) && (file.is_none() || piece.lines.file == file)
    };
    pieces.iter().find(is_it).map(|(.., piece)| piece.clone())
}

impl Reader {
    /// Waits for lines behind the client's place; `None` when the watcher is gone.
    pub(crate) async fn next(&mut self) -> Option<Next> {
        loop {
            if self.ahead {
                self.tail.changed().await.ok()?;
                self.ahead = false;
            }
            let tail = self.tail.borrow_and_update().clone();
            if tail.generation != self.generation {
                self.generation = tail.generation;
                let (has_begun, start_over) = (self.at > 0, self.start_over());
                if has_begun {
                    return Some(start_over);
                }
            }
            if let Some(next) = self.step(&tail).await {
                return Some(next);
            }
            self.tail.changed().await.ok()?;
        }
    }

    fn start_over(&mut self) -> Next {
        (self.at, self.file) = (0, None);
        Next::StartOver
    }

    /// Goes to the end of what was read.
    fn pass(&mut self, lines: &Lines) {
        (self.at, self.file) = (lines.next, lines.file.or(self.file));
    }

    async fn step(&mut self, tail: &Tail) -> Option<Next> {
        if tail.file.is_some() && self.file.is_some() && self.file != tail.file {
            return Some(self.start_over());
        }
        if self.at == tail.news.start() && tail.news.lines.next == tail.end() && !tail.news.lines.bytes.is_empty() {
            self.pass(&tail.news.lines);
            return Some(Next::News(tail.news.clone()));
        }
        if (tail.start..tail.end()).contains(&self.at) {
            let bytes = tail.bytes[(self.at - tail.start) as usize..].to_vec();
            let lines = Lines { next: tail.end(), file: tail.file, bytes, ..Lines::default() };
            self.pass(&lines);
            return Some(Next::Lines(lines));
        }
        if self.at == tail.end() && !tail.bytes.is_empty() {
            return None;
        }
        self.piece(tail).await
    }

    /// What is further back than the watcher keeps, or was not looked at by it yet.
    async fn piece(&mut self, tail: &Tail) -> Option<Next> {
        let (path, at, file) = (self.watched.path.clone(), self.at, self.file.or(tail.file));
        if let Some(piece) = self.watched.piece(self.generation, at, file) {
            self.pass(&piece.lines);
            return Some(Next::News(piece));
        }
        let place = Place { at, file };
        let lines = tokio::task::spawn_blocking(move || Lines::read_piece(&path, place)).await.ok()?.ok()?;
        if lines.replaced {
            if self.at == 0 {
                return None;
            }
            self.ahead = tail.file.is_some() && tail.file != lines.file;
            return Some(self.start_over());
        }
        let moved = lines.next > self.at;
        if moved && lines.more {
            let piece = self.watched.keep(self.generation, at, News { lines, told: OnceLock::new() });
            self.pass(&piece.lines);
            return Some(Next::News(piece));
        }
        self.pass(&lines);
        moved.then_some(Next::Lines(lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    #[test]
    fn the_more_listen_the_less_often_a_file_is_looked_at() {
        assert_eq!(look_every(1), LOOK_EVERY);
        assert_eq!(look_every(250), LOOK_EVERY);
        assert_eq!(look_every(1000), 4 * LOOK_EVERY);
        assert_eq!(look_every(1_000_000), 10 * LOOK_EVERY);
    }

    #[tokio::test]
    async fn listeners_at_the_same_place_get_the_same_bytes_and_one_behind_gets_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        fs::write(&path, "{\"a\":1}\n").unwrap();
        let watched = Tails::default().watch(&RunId::try_from("run".to_string()).unwrap(), folder.path());
        let mut readers = [watched.reader(Place::default()), watched.reader(Place::default())];
        for reader in &mut readers {
            reader.next().await.unwrap();
        }
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"b\":2}\n").unwrap();
        let mut told = Vec::new();
        for reader in &mut readers {
            let Some(Next::News(news)) = reader.next().await else { panic!("not the news") };
            told.push(news.told(|lines| Bytes::copy_from_slice(&lines.bytes)));
        }
        assert_eq!(told[0].as_ptr(), told[1].as_ptr());
        assert_eq!(&told[0][..], b"{\"b\":2}\n");
        let Some(Next::Lines(all)) = watched.reader(Place::default()).next().await else { panic!("not all") };
        assert_eq!(all.bytes, b"{\"a\":1}\n{\"b\":2}\n");
    }

    #[tokio::test]
    async fn those_who_come_late_share_what_they_read_and_miss_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let history: Vec<u8> = (0..60_000).flat_map(|n| format!("{{\"n\":{n}}}\n").into_bytes()).collect();
        fs::write(&path, &history).unwrap();
        let watched = Tails::default().watch(&RunId::try_from("run".to_string()).unwrap(), folder.path());
        let mut firsts = Vec::new();
        for _ in 0..2 {
            let (mut reader, mut seen) = (watched.reader(Place::default()), Vec::new());
            while seen.len() < history.len() {
                match reader.next().await.unwrap() {
                    Next::Lines(lines) => seen.extend(lines.bytes),
                    Next::News(news) => {
                        if seen.is_empty() {
                            firsts.push(news.clone());
                        }
                        seen.extend_from_slice(&news.lines.bytes);
                    }
                    Next::StartOver => panic!("nothing was replaced"),
                }
            }
            assert_eq!(seen, history);
        }
        assert!(Arc::ptr_eq(&firsts[0], &firsts[1]));
    }

    #[tokio::test]
    async fn who_read_before_the_watcher_looked_starts_over_with_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        fs::write(&path, "{\"old\":1}\n").unwrap();
        let (sender, tail) = watch::channel(Tail::default());
        let watched = Arc::new(Watched { path: path.clone(), tail, pieces: Mutex::default() });
        let mut reader = watched.reader(Place::default());
        let Some(Next::Lines(old)) = reader.next().await else { panic!("the old file") };
        assert_eq!(old.bytes, b"{\"old\":1}\n");
        fs::remove_file(&path).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        fs::write(&path, "{\"new\":1}\n{\"new\":2}\n").unwrap();
        // The watcher comes to look only now, and knows of no other file.
        tokio::spawn(look(path, sender));
        assert!(matches!(reader.next().await, Some(Next::StartOver)));
        let new = match reader.next().await {
            Some(Next::Lines(lines)) => lines.bytes,
            Some(Next::News(news)) => news.lines.bytes.clone(),
            _ => panic!("the new file"),
        };
        assert_eq!(new, b"{\"new\":1}\n{\"new\":2}\n");
    }
    /// What a client hears until it has heard a line with these words.
    async fn heard(reader: &mut Reader, last: &str) -> (usize, String) {
        let (mut overs, mut text) = (0, String::new());
        while !text.contains(last) {
            match reader.next().await.unwrap() {
                Next::Lines(lines) => text += &String::from_utf8_lossy(&lines.bytes),
                Next::News(news) => text += &String::from_utf8_lossy(&news.lines.bytes),
                Next::StartOver => (overs, text) = (overs + 1, String::new()),
            }
        }
        (overs, text)
    }

    fn history(of: &str, lines: usize) -> String {
        (0..lines).map(|n| format!("{{\"{of}\":{n}}}\n")).collect()
    }

    #[tokio::test]
    async fn who_comes_back_to_another_file_starts_over_however_long_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        fs::write(&path, history("old", 3)).unwrap();
        let (tails, id) = (Tails::default(), RunId::try_from("run".to_string()).unwrap());
        let place = {
            let mut reader = tails.watch(&id, folder.path()).reader(Place::default());
            heard(&mut reader, "{\"old\":2}").await;
            Place { at: reader.at, file: reader.file }
        };
        fs::remove_file(&path).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        fs::write(&path, history("new", 50)).unwrap();
        let back = |place: Place| tails.watch(&id, folder.path()).reader(place);
        let (overs, text) = heard(&mut back(place), "{\"new\":49}").await;
        assert_eq!((overs, text), (1, history("new", 50)));
        let now = Place { at: history("new", 48).len() as u64, file: Some(FileId::of(&fs::metadata(&path).unwrap())) };
        let (overs, text) = heard(&mut back(now), "{\"new\":49}").await;
        assert_eq!((overs, text.lines().count()), (0, 2), "the same file goes on");
    }

    #[tokio::test]
    async fn who_sees_the_other_file_before_the_watcher_is_not_told_the_old_one_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        // More than is kept for all: it is read piece by piece.
        let old = history("old", 30_000);
        fs::write(&path, &old).unwrap();
        let watched = Tails::default().watch(&RunId::try_from("run".to_string()).unwrap(), folder.path());
        heard(&mut watched.reader(Place::default()), "{\"old\":29999}").await;
        let mut reader = watched.reader(Place::default());
        let Some(Next::News(_)) = reader.next().await else { panic!("the first piece of the old file") };
        fs::remove_file(&path).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        fs::write(&path, history("new", 40_000)).unwrap();
        // Pieces of it that somebody else read are still of the old file; then it starts over, and once.
        let mut overs = 0;
        loop {
            match reader.next().await.unwrap() {
                Next::StartOver => overs += 1,
                Next::News(news) if overs == 0 => assert!(news.lines.bytes.starts_with(b"{\"old\"")),
                Next::Lines(lines) if overs == 0 => assert!(lines.bytes.starts_with(b"{\"old\"")),
                Next::News(news) => break assert!(news.lines.bytes.starts_with(b"{\"new\":0}")),
                Next::Lines(lines) => break assert!(lines.bytes.starts_with(b"{\"new\":0}")),
            }
        }
        assert_eq!(overs, 1);
    }
}
