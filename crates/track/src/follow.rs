//! Reads a run's events behind it and hands them to every sink, each in a thread of its own.

use crate::cursor::{self, Cursor};
use crate::error::TrackError;
use crate::mlflow::Tracker;
use crate::notify::Messenger;
use crate::settings::Settings;
use crate::sink::{Sink, Trouble};
use crate::tail::{Piece, Tail};
use crate::tensorboard::TensorBoard;
use plimsoll_runs::{Event, read_events};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at the log.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A request takes at most this long while the run goes on.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Waits between tries: from the first, doubled up to the last.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub struct FollowOptions {
    /// How long delivering may go on after the run has ended.
    pub grace: Duration,
    /// How long to wait for another follower to leave: that of a run that was killed a moment ago may still be at it.
    pub patience: Duration,
}

/// Whether the run is still going on. Shared between whoever knows and all sinks.
#[derive(Clone, Default)]
pub struct Watch(Arc<(Mutex<Option<Instant>>, Condvar)>);

impl Watch {
    pub fn new() -> Watch {
        Watch::default()
    }

    /// The run's process has ended.
    pub fn end(&self) {
        self.lock().get_or_insert_with(Instant::now);
        self.0.1.notify_all();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        // An instant is whole at every moment.
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> Option<Instant> {
        *self.lock()
    }

    /// Sleeps; the end of the run ends it early.
    fn sleep(&self, time: Duration) {
        let ended = self.lock();
        if ended.is_none() {
            drop(self.0.1.wait_timeout_while(ended, time, |ended| ended.is_none()));
        } else {
            drop(ended);
            thread::sleep(time);
        }
    }
}

/// What a sink has of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// `mlflow`, `tensorboard`, `discord-1`, …
    pub sink: String,
    /// Bytes of events that it has not been told.
    pub left_bytes: u64,
    /// Why; empty where all is well.
    pub trouble: String,
}

impl Delivery {
    /// Whether there is something that it was not told.
    pub fn is_behind(&self) -> bool {
        self.left_bytes > 0 || !self.trouble.is_empty()
    }

    /// Why it is behind, in words.
    pub fn reason(&self) -> &str {
        if self.trouble.is_empty() { "it did not answer in time" } else { &self.trouble }
    }
}

/// Delivers a run's events until the run has ended and everything is out, or `grace` is over. What is left stays in the
/// log, and the next call goes on with it.
///
/// # Errors
/// Where nothing can be delivered at all: another follower is at it, or a setting is wrong. A sink's own trouble is in
/// its [`Delivery`].
pub fn follow(
    run: &Path,
    settings: &Settings,
    watch: &Watch,
    options: FollowOptions,
) -> Result<Vec<Delivery>, TrackError> {
    let folder = cursor::folder(run);
    fs::create_dir_all(&folder).map_err(TrackError::io(&folder))?;
    let _lock = lock_within(&folder, options.patience)?;
    let sinks = sinks(run, settings)?;
    let names: Vec<String> = sinks.iter().map(|sink| sink.name()).collect();
    let threads: Vec<_> = sinks
        .into_iter()
        .map(|sink| {
            let follower = Follower::new(sink, run, watch.clone(), options);
            thread::spawn(move || follower.run())
        })
        .collect();
    // A sink that panicked has its cursor on disk like any other.
    threads.into_iter().for_each(|thread| drop(thread.join()));
    Ok(deliveries(run).into_iter().filter(|delivery| names.contains(&delivery.sink)).collect())
}

fn lock_within(folder: &Path, patience: Duration) -> Result<File, TrackError> {
    let began = Instant::now();
    loop {
        match lock(folder) {
            Err(TrackError::Busy { .. }) if began.elapsed() < patience => thread::sleep(LOOK_EVERY),
            locked => return locked,
        }
    }
}

/// Held as long as the file is open, however the process ends.
fn lock(folder: &Path) -> Result<File, TrackError> {
    let path = folder.join("lock");
    let file = File::create(&path).map_err(TrackError::io(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(TrackError::Busy { path: folder.into() }),
        Err(fs::TryLockError::Error(cause)) => Err(TrackError::Io { path, cause }),
    }
}

fn sinks(run: &Path, settings: &Settings) -> Result<Vec<Box<dyn Sink>>, TrackError> {
    let refused = |tracker: &str| {
        let tracker = tracker.to_string();
        move |cause| TrackError::Refused { tracker, cause }
    };
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    if let Some(folder) = &settings.tensorboard {
        sinks.push(Box::new(TensorBoard::new(folder.clone(), settings.every)));
    }
    if let Some(mlflow) = &settings.mlflow {
        let tracker = Tracker::new(mlflow.clone(), run.into(), settings.every).map_err(refused("mlflow"))?;
        sinks.push(Box::new(tracker));
    }
    if let Some(notify) = &settings.notify {
        let name = run.file_name().map_or("run".into(), |name| name.to_string_lossy().into_owned());
        for number in 0..notify.targets.len() {
            sinks.push(Box::new(Messenger::new(notify, number, name.clone()).map_err(refused("notify"))?));
        }
    }
    Ok(sinks)
}

/// How far every sink has come, from the run's folder alone.
pub fn deliveries(run: &Path) -> Vec<Delivery> {
    let written = fs::metadata(run.join("events.jsonl")).map_or(0, |facts| facts.len());
    let delivery = |(sink, cursor): (String, Cursor)| Delivery {
        sink,
        left_bytes: written.saturating_sub(cursor.offset),
        trouble: cursor.trouble,
    };
    cursor::all(run).into_iter().map(delivery).collect()
}

/// One sink and its place in the log.
struct Follower {
    sink: Box<dyn Sink>,
    name: String,
    run: PathBuf,
    tail: Tail,
    cursor: Cursor,
    watch: Watch,
    options: FollowOptions,
    wait: Duration,
}

/// Whether to go on.
enum Next {
    Again,
    Enough,
}

impl Follower {
    fn new(mut sink: Box<dyn Sink>, run: &Path, watch: Watch, options: FollowOptions) -> Follower {
        let name = sink.name();
        let cursor = Cursor::load(run, &name);
        sink.restore(&cursor.state);
        let tail = Tail::new(&run.join("events.jsonl"), cursor.offset);
        Follower { sink, name, run: run.into(), tail, cursor, watch, options, wait: FIRST_WAIT }
    }

    fn run(mut self) {
        // A sink that never answers is known to be behind all the same.
        self.save();
        while let Next::Again = self.turn() {}
        if self.watch.ended().is_some() && self.cursor.trouble.is_empty() && !says_how_it_ended(&self.run) {
            let told = self.sink.abandoned();
            self.cursor.trouble = told.err().map_or(String::new(), |trouble| trouble.cause().into());
            self.save();
        }
    }

    fn turn(&mut self) -> Next {
        // Asked before the log is read: what is written up to the end is seen.
        let ended = self.watch.ended();
        self.sink.set_timeout(self.time_left(ended).map_or(TIMEOUT, |left| left.clamp(LOOK_EVERY, TIMEOUT)));
        match self.tail.read() {
            Ok(piece) if piece.events.is_empty() && ended.is_some() => Next::Enough,
            Ok(piece) if piece.events.is_empty() => {
                self.watch.sleep(LOOK_EVERY);
                Next::Again
            }
            Ok(piece) => self.deliver(piece),
            Err(error) => self.wait_for_better(format!("cannot read events.jsonl: {error}"), None),
        }
    }

    fn deliver(&mut self, piece: Piece) -> Next {
        match self.sink.deliver(&piece.events) {
            Ok(()) => {
                self.tail.advance(piece.end);
                self.wait = FIRST_WAIT;
                self.cursor = Cursor { offset: piece.end, state: self.sink.state(), trouble: String::new() };
                self.save();
                Next::Again
            }
            Err(Trouble::Later { cause, after }) => self.wait_for_better(cause, after),
            Err(Trouble::Never { cause }) => {
                self.note(cause);
                Next::Enough
            }
        }
    }

    fn time_left(&self, ended: Option<Instant>) -> Option<Duration> {
        ended.map(|at| self.options.grace.saturating_sub(at.elapsed()))
    }

    fn wait_for_better(&mut self, cause: String, after: Option<Duration>) -> Next {
        self.note(cause);
        let wait = after.unwrap_or(self.wait).max(LOOK_EVERY);
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        match self.time_left(self.watch.ended()) {
            Some(left) if left < LOOK_EVERY => return Next::Enough,
            // What is left of the grace is used up to its end.
            Some(left) => self.watch.sleep(wait.min(left)),
            None => self.watch.sleep(wait),
        }
        Next::Again
    }

    fn note(&mut self, cause: String) {
        self.cursor.trouble = cause;
        self.cursor.state = self.sink.state();
        self.save();
    }

    /// A cursor that cannot be written makes the next follower tell some things twice; nothing else.
    fn save(&self) {
        let _ = self.cursor.save(&self.run, &self.name);
    }
}

/// Whether the log's last word on the run is its end.
fn says_how_it_ended(run: &Path) -> bool {
    let events = read_events(&run.join("events.jsonl")).unwrap_or_default();
    let ends = |event: &Event| match event {
        Event::Finished(_) | Event::Failed(_) => Some(true),
        Event::Started(_) | Event::Step(_) => Some(false),
        _ => None,
    };
    // A run without an event has nothing to say.
    events.iter().rev().find_map(ends).unwrap_or(true)
}
