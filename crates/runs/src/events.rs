//! The one stream of events of a run. The progress bar, the report and everything else that shows a run only read it.

use crate::{Best, Scores};
use plimsoll_base::files::{open_to_append, open_to_read};
use serde::{Deserialize, Deserializer, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Something that happened in a run: a line of its `events.jsonl`.
///
/// ```
/// # use plimsoll_runs::Event;
/// let line = r#"{"time":1763546400.5,"event":"evaluation","step":375,"epoch":0,
///                "loss":0.24,"accuracy":0.93,"samples":5941,"ms":3400.0,"best":true}"#;
/// let Event::Evaluation(evaluation) = serde_json::from_str(line)? else { panic!("it is one") };
/// assert_eq!((evaluation.step, evaluation.scores.accuracy), (375, Some(0.93)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A run begins (or, after a crash, goes on).
    Started(Started),
    /// A run goes on from a checkpoint.
    Resumed {
        /// Updates that are done.
        step: usize,
        /// Its plan did not fit any more and another was made: bits differ from here on.
        replanned: bool,
    },
    /// The next pass over the training data begins.
    Epoch {
        /// Counted from 0, as in every event.
        epoch: usize,
        /// Of the whole run.
        epochs: usize,
        /// Updates that are done.
        step: usize,
    },
    /// An update is done.
    Step(StepEvent),
    /// The model was evaluated.
    Evaluation(Evaluation),
    /// A checkpoint was written.
    Checkpoint {
        /// Updates that are done.
        step: usize,
        /// Its folder.
        path: String,
        /// What it takes on the disk.
        bytes: u64,
        /// It is the best so far.
        best: bool,
    },
    /// Text the model wrote.
    Sample {
        /// Updates that are done.
        step: usize,
        /// Counted from 0.
        epoch: usize,
        /// What it went on from.
        prompt: String,
        /// What it wrote.
        text: String,
    },
    /// How device and machine do: at the start, after each epoch, and from time to time.
    Device(DeviceEvent),
    /// Anything else that is worth saying.
    Note {
        /// In words.
        text: String,
    },
    /// The run ended as it should.
    Finished(Finished),
    /// The run ended in an error. A process that is killed leaves without it.
    Failed(Failed),
}

/// An event and when it was written: a line of events.jsonl.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// Seconds since 1970 (UTC). Logs of the first versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<f64>,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

impl Timed {
    pub(crate) fn now(event: Event) -> Timed {
        Timed { time: Some(unix_seconds(SystemTime::now())), event }
    }
}

/// To the millisecond: more says nothing, and makes lines long.
fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_millis() as f64 / 1e3)
}

/// What a run is about to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// Of the program.
    pub version: String,
    /// The recipe's name.
    pub recipe: String,
    /// Of everything in it that decides the plan or what is learned.
    pub recipe_hash: String,
    /// Where it trains.
    pub device: String,
    /// What it may take of the device.
    pub budget_bytes: u64,
    /// What it is going to take at most.
    pub planned_peak_bytes: u64,
    /// Numbers that are trained.
    pub parameters: usize,
    /// Samples to an update.
    pub effective_batch: usize,
    /// Samples in memory at a time.
    pub micro_batch: usize,
    /// Micro-batches to an update.
    pub accumulation: usize,
    /// What the step computes in, recomputes and how it attends; absent in logs of the first versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<String>,
    /// What it computes again instead of keeping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recompute: Option<String>,
    /// Absent where the model has no attention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<String>,
    /// The architecture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Passes over the training data, the last one perhaps not whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs: Option<usize>,
    /// Updates of the whole run.
    pub steps: usize,
    /// Updates of an epoch.
    pub steps_per_epoch: usize,
    /// Samples to learn from.
    pub train_samples: usize,
    /// Samples held out.
    pub validation_samples: usize,
    /// What the best possible model would reach, where the data's source knows it.
    pub best_accuracy: Option<f64>,
    /// The same of the loss.
    pub best_loss: Option<f64>,
}

/// An update.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepEvent {
    /// Its number, from 1.
    pub step: usize,
    /// Counted from 0.
    pub epoch: usize,
    /// Not a number, null in JSON, where the step overflowed.
    #[serde(deserialize_with = "number_or_null")]
    pub loss: f64,
    /// Of all gradients together; likewise.
    #[serde(deserialize_with = "number_or_null")]
    pub norm: f64,
    /// What the loss is multiplied by after this step, where its gradients are f16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// The gradients were too large for f16 and nothing was updated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    /// The learning rate.
    pub lr: f64,
    /// Milliseconds that it took.
    pub ms: f64,
    /// Samples per second while it was under way.
    pub samples_per_s: f64,
    /// Real tokens, without padding; absent where samples have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_s: Option<f64>,
    /// What the loader delivers when nothing holds it up, in samples per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_samples_per_s: Option<f64>,
    /// Milliseconds this step waited for the loader.
    pub stall_ms: f64,
    /// Seconds to the end of the run.
    pub remaining_s: f64,
    /// What the plan announced.
    pub planned_peak_bytes: u64,
    /// What was taken so far.
    pub measured_peak_bytes: u64,
}

/// JSON has no NaN and no infinities: they are written as null.
fn number_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// How good a model is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Updates that were done.
    pub step: usize,
    /// Counted from 0.
    pub epoch: usize,
    /// The loss and what the task is judged by.
    #[serde(flatten)]
    pub scores: Scores,
    /// Over so many samples.
    pub samples: usize,
    /// Milliseconds that it took.
    pub ms: f64,
    /// Better than every one before.
    pub best: bool,
}

/// Device and machine at one moment. What could not be asked is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceEvent {
    /// Updates that were done.
    pub step: usize,
    /// Counted from 0.
    #[serde(default)]
    pub epoch: usize,
    /// Of the device that trains: a GPU's memory, or the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// Of it, what anybody holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Of it, all there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Of the machine, or of the container's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_used_bytes: Option<u64>,
    /// The same of all there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_total_bytes: Option<u64>,
    /// What this process holds of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_bytes: Option<u64>,
    /// Left on the disk of the run's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_free_bytes: Option<u64>,
    /// Percent of the last moments in which the GPU was at work.
    pub utilization: Option<u32>,
    /// What the GPU draws.
    pub watts: Option<f64>,
    /// How warm it is.
    pub celsius: Option<u32>,
}

/// Why a run broke off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// Updates that were done.
    pub step: usize,
    /// In words.
    pub reason: String,
    /// Memory was what lacked.
    pub oom: bool,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// All epochs or steps are done.
    Completed,
    /// Evaluations stopped getting better.
    Stopped,
    /// Asked to leave; a checkpoint was written.
    Interrupted,
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// Why it ended.
    pub end: End,
    /// Updates that were done.
    pub steps: usize,
    /// Epochs that were done.
    pub epochs: usize,
    /// The last evaluation.
    #[serde(rename = "final")]
    pub last: Option<Scores>,
    /// The best evaluation.
    pub best: Option<Best>,
    /// What the plan announced.
    pub planned_peak_bytes: u64,
    /// What was taken, at most.
    pub measured_peak_bytes: u64,
    /// Host memory beside the arena.
    pub host_peak_bytes: u64,
    /// Samples per second over all of it.
    pub samples_per_s: f64,
    /// How long it took.
    pub seconds: f64,
}

/// events.jsonl, one event per line, flushed line by line.
pub struct EventLog {
    file: File,
}

impl EventLog {
    /// Opens a log to append to. A last line torn by a crash is cut off. A link is not followed.
    pub fn open(path: &Path) -> io::Result<EventLog> {
        let mut file = open_to_append(path)?;
        let whole = whole_lines_bytes(&mut file)?;
        file.set_len(whole)?;
        Ok(EventLog { file })
    }

    /// Appends an event, with the time of day.
    pub fn write(&mut self, event: Event) -> io::Result<Event> {
        let timed = Timed::now(event);
        let mut line = serde_json::to_vec(&timed).map_err(io::Error::other)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        Ok(timed.event)
    }
}

/// Bytes up to the end of the last complete line.
fn whole_lines_bytes(file: &mut File) -> io::Result<u64> {
    let len = file.seek(SeekFrom::End(0))?;
    let mut end = len;
    let mut block = [0u8; 4096];
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let part = &mut block[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(part)?;
        if let Some(at) = part.iter().rposition(|&byte| byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Opens a log to read it. A run may come from somebody else: a pipe in its place holds nobody up.
pub fn open_events(path: &Path) -> io::Result<File> {
    open_to_read(path)
}

/// The events of a log; lines of another version or torn ones are passed over.
pub fn read_events(path: &Path) -> io::Result<Vec<Event>> {
    Ok(read_timed(path)?.into_iter().map(|timed| timed.event).collect())
}

/// The same, with the time of each.
pub fn read_timed(path: &Path) -> io::Result<Vec<Timed>> {
    let lines = BufReader::new(open_events(path)?).split(b'\n');
    let mut events = Vec::new();
    for line in lines {
        if let Ok(event) = serde_json::from_slice(&line?) {
            events.push(event);
        }
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    #[test]
    fn a_pipe_in_the_place_of_a_log_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(read_timed(&path).unwrap_err().to_string().contains("no plain file"));
        assert!(crate::EventTail::new(&path).next_events().is_err());
    }

    #[test]
    fn a_torn_line_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let note = |text: &str| Event::Note { text: text.into() };
        EventLog::open(&path).unwrap().write(note("one")).unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"event\":\"no").unwrap();
        EventLog::open(&path).unwrap().write(note("two")).unwrap();
        assert_eq!(read_events(&path).unwrap(), [note("one"), note("two")]);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
    }

    #[test]
    fn a_skipped_step_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let step = StepEvent {
            step: 3,
            epoch: 0,
            loss: 0.5,
            norm: f64::INFINITY,
            scale: Some(32768.0),
            skipped: true,
            lr: 1e-3,
            ms: 1.0,
            samples_per_s: 1.0,
            tokens_per_s: None,
            data_samples_per_s: None,
            stall_ms: 0.0,
            remaining_s: 0.0,
            planned_peak_bytes: 1,
            measured_peak_bytes: 1,
        };
        EventLog::open(&path).unwrap().write(Event::Step(step)).unwrap();
        let [Event::Step(read)] = &read_events(&path).unwrap()[..] else { panic!("the step is lost") };
        assert!(read.norm.is_nan() && read.skipped && read.scale == Some(32768.0), "{read:?}");
        // Fields that only loss scaling has are not in other runs' lines.
        let plain = StepEvent { norm: 1.0, scale: None, skipped: false, ..read.clone() };
        let line = serde_json::to_string(&Event::Step(plain.clone())).unwrap();
        assert!(!line.contains("scale") && !line.contains("skipped"), "{line}");
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), Event::Step(plain));
    }

    #[test]
    fn lines_have_a_time_and_those_of_the_first_version_are_read_without_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let old = r#"{"event":"device","step":4,"free_bytes":9,"utilization":50,"watts":null,"celsius":null}"#;
        std::fs::write(&path, format!("{old}\n")).unwrap();
        EventLog::open(&path).unwrap().write(Event::Note { text: "new".into() }).unwrap();
        let [first, second] = &read_timed(&path).unwrap()[..] else { panic!("two lines") };
        let Event::Device(device) = &first.event else { panic!("{first:?}") };
        assert_eq!((first.time, device.free_bytes, device.utilization), (None, Some(9), Some(50)));
        assert_eq!(device.total_bytes, None, "what was not asked is not zero");
        let age = unix_seconds(SystemTime::now()) - second.time.unwrap();
        assert!((0.0..60.0).contains(&age), "{age}");
    }

    #[test]
    fn a_log_of_one_torn_line_becomes_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        std::fs::write(&path, vec![b'x'; 10_000]).unwrap();
        EventLog::open(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    }
}
