//! Event files that TensorBoard reads: scalars, and texts that a model wrote.

mod proto;
mod record;

use crate::metrics::{Thinning, metrics_of};
use crate::sink::{Sink, Trouble};
use plimsoll_runs::{Event, Timed};
use proto::{text_event, version_event};
use record::write_record;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) struct TensorBoard {
    folder: PathBuf,
    thinning: Thinning,
    /// Made with the first event: a run without events leaves no file.
    file: Option<BufWriter<File>>,
}

impl TensorBoard {
    pub(crate) fn new(folder: PathBuf, every: Option<usize>) -> TensorBoard {
        TensorBoard { folder, thinning: Thinning::new(every), file: None }
    }

    /// One file per follower: readers put those of a folder together.
    fn open(&mut self) -> io::Result<&mut BufWriter<File>> {
        if self.file.is_none() {
            fs::create_dir_all(&self.folder)?;
            let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let mut file = BufWriter::new(self.create(seconds.as_secs())?);
            write_record(&mut file, &version_event(seconds.as_secs_f64()))?;
            self.file = Some(file);
        }
        self.file.as_mut().ok_or_else(|| io::Error::other("no file"))
    }

    /// A name that nothing has: two followers in one second do not write into one file.
    fn create(&self, seconds: u64) -> io::Result<File> {
        for n in 0..1000 {
            let name = format!("events.out.tfevents.{seconds:010}.{}.{}.{n}", host(), std::process::id());
            match File::create_new(self.folder.join(name)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn write(&mut self, timed: &Timed) -> io::Result<()> {
        let records = records_of(timed);
        let file = self.open()?;
        records.iter().try_for_each(|record| write_record(file, record))
    }
}

/// Everything that TensorBoard shows of an event.
fn records_of(timed: &Timed) -> Vec<Vec<u8>> {
    let mut records: Vec<Vec<u8>> = metrics_of(timed).iter().map(proto::scalar_event).collect();
    let time = timed.time.unwrap_or(0.0);
    match &timed.event {
        Event::Sample { step, prompt, text, .. } => {
            records.push(text_event(time, *step, "sample", &format!("{prompt}{text}")));
        }
        Event::Started(started) => {
            let lines = serde_json::to_string_pretty(started).unwrap_or_default();
            records.push(text_event(time, 0, "run", &format!("```\n{lines}\n```")));
        }
        Event::Failed(failed) => records.push(text_event(time, failed.step, "failed", &failed.reason)),
        _ => {}
    }
    records
}

/// Part of a file's name.
fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let clean: String = name.trim().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(64).collect();
    if clean.is_empty() { "localhost".into() } else { clean }
}

/// A disk that is full may have room later.
fn later(error: &io::Error) -> Trouble {
    Trouble::Later { cause: format!("cannot write event files: {error}"), after: None }
}

impl Sink for TensorBoard {
    fn name(&self) -> String {
        "tensorboard".into()
    }

    fn restore(&mut self, _: &Value) {}

    fn deliver(&mut self, events: &[Timed]) -> Result<(), Trouble> {
        for timed in events {
            if self.thinning.passes(timed) {
                self.write(timed).map_err(|error| later(&error))?;
            }
        }
        self.file.as_mut().map_or(Ok(()), |file| file.flush()).map_err(|error| later(&error))
    }

    fn abandoned(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    fn state(&self) -> Value {
        Value::Null
    }

    fn set_timeout(&mut self, _: Duration) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::step;

    #[test]
    fn two_followers_write_two_files_and_a_run_without_events_none() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("logs/run");
        let follower = || TensorBoard::new(folder.clone(), None);
        follower().deliver(&[]).unwrap();
        assert!(!folder.exists());
        follower().deliver(&[step(1, 1.0)]).unwrap();
        follower().deliver(&[step(2, 2.0)]).unwrap();
        assert_eq!(fs::read_dir(folder).unwrap().count(), 2);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_trouble_and_no_panic() {
        let mut sink = TensorBoard::new("/dev/null/x".into(), None);
        assert!(matches!(sink.deliver(&[step(1, 1.0)]), Err(Trouble::Later { .. })));
    }
}
