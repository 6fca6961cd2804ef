//! Which events are worth a message.

use super::messages::Message;
use super::settings::ProgressEvery;
use plimsoll_runs::{DeviceEvent, Event, Started, StepEvent, Timed};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Occasion {
    Started,
    Progress,
    Best,
    Finished,
    Failed,
    Disk,
}

impl Occasion {
    pub const ALL: [Occasion; 6] =
        [Occasion::Started, Occasion::Progress, Occasion::Best, Occasion::Finished, Occasion::Failed, Occasion::Disk];

    pub fn name(self) -> &'static str {
        match self {
            Occasion::Started => "started",
            Occasion::Progress => "progress",
            Occasion::Best => "best",
            Occasion::Finished => "finished",
            Occasion::Failed => "failed",
            Occasion::Disk => "disk",
        }
    }
}

/// Best scores come no closer than this: at the start of a run nearly every one is the best.
const BEST_GAP_S: f64 = 60.0;
/// Less than this, or than two of the largest checkpoint, is nearly full.
const LEAST_DISK_BYTES: u64 = 1 << 30;

/// What was seen of a run so far, as far as messages need it.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) started: Option<Started>,
    pub(super) device: Option<DeviceEvent>,
    pub(super) step: Option<StepEvent>,
    /// Since the last word about speed: one batch may be short, and the last of an epoch is.
    #[serde(default)]
    pub(super) pace: Pace,
    last_progress: Option<f64>,
    epochs_done: usize,
    last_best: Option<f64>,
    largest_checkpoint: u64,
    disk_was_low: bool,
    has_ended: bool,
}

/// Samples and the time they took.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Pace {
    samples: f64,
    seconds: f64,
}

impl Pace {
    fn add(&mut self, step: &StepEvent) {
        let seconds = step.ms / 1e3;
        self.samples += step.samples_per_s * seconds;
        self.seconds += seconds;
    }

    /// None before the first step, and where clocks stood still.
    pub(super) fn samples_per_s(&self) -> Option<f64> {
        let speed = self.samples / self.seconds;
        speed.is_finite().then_some(speed)
    }
}

#[derive(Clone)]
pub(super) struct Herald {
    run: String,
    occasions: Vec<Occasion>,
    every: ProgressEvery,
    seen: Seen,
}

impl Herald {
    pub(super) fn new(run: String, occasions: Vec<Occasion>, every: ProgressEvery) -> Herald {
        Herald { run, occasions, every, seen: Seen::default() }
    }

    pub(super) fn state(&self) -> Value {
        json!({ "seen": self.seen })
    }

    pub(super) fn restore(&mut self, state: &Value) {
        self.seen = serde_json::from_value(state["seen"].clone()).unwrap_or_default();
    }

    /// The message that an event is worth, if any.
    pub(super) fn message(&mut self, timed: &Timed) -> Option<Message> {
        let time = timed.time.unwrap_or(0.0);
        let due = self.see(&timed.event, time)?;
        let message =
            self.occasions.contains(&due).then(|| Message::about(due, &self.run, &timed.event, &self.seen, time));
        if due == Occasion::Progress {
            self.seen.pace = Pace::default();
        }
        message
    }

    fn see(&mut self, event: &Event, time: f64) -> Option<Occasion> {
        match event {
            Event::Started(started) => {
                self.seen.has_ended = false;
                self.seen.last_progress = Some(time);
                self.seen.started = Some(started.clone());
                Some(Occasion::Started)
            }
            Event::Step(step) => {
                self.seen.step = Some(step.clone());
                self.seen.pace.add(step);
                self.is_hourly(time).then_some(Occasion::Progress)
            }
            Event::Epoch { epoch, .. } => self.is_epochly(*epoch).then_some(Occasion::Progress),
            Event::Evaluation(evaluation) => (evaluation.best && self.is_best_due(time)).then_some(Occasion::Best),
            Event::Checkpoint { bytes, .. } => {
                self.seen.largest_checkpoint = self.seen.largest_checkpoint.max(*bytes);
                None
            }
            Event::Device(device) => {
                self.seen.device = Some(device.clone());
                self.is_disk_low(device).then_some(Occasion::Disk)
            }
            Event::Finished(_) => self.end(Occasion::Finished),
            Event::Failed(_) => self.end(Occasion::Failed),
            Event::Resumed { .. } | Event::Sample { .. } | Event::Note { .. } => None,
        }
    }

    fn end(&mut self, occasion: Occasion) -> Option<Occasion> {
        self.seen.has_ended = true;
        Some(occasion)
    }

    fn is_hourly(&mut self, time: f64) -> bool {
        let ProgressEvery::Seconds(seconds) = self.every else { return false };
        let due = self.seen.last_progress.is_none_or(|last| time - last >= seconds);
        if due {
            self.seen.last_progress = Some(time);
        }
        due
    }

    /// After every n-th epoch; that the next one begins says that it is over. The last one's message is the run's.
    fn is_epochly(&mut self, begins: usize) -> bool {
        let ProgressEvery::Epochs(n) = self.every else { return false };
        let due = begins > self.seen.epochs_done && begins.is_multiple_of(n.max(1));
        self.seen.epochs_done = self.seen.epochs_done.max(begins);
        due
    }

    fn is_best_due(&mut self, time: f64) -> bool {
        let due = self.seen.last_best.is_none_or(|last| time - last >= BEST_GAP_S);
        if due {
            self.seen.last_best = Some(time);
        }
        due
    }

    /// Once, until there is room again.
    fn is_disk_low(&mut self, device: &DeviceEvent) -> bool {
        let Some(free) = device.disk_free_bytes else { return false };
        let low = free < LEAST_DISK_BYTES.max(2 * self.seen.largest_checkpoint);
        let was_low = std::mem::replace(&mut self.seen.disk_was_low, low);
        low && !was_low
    }

    /// The process is gone and the log does not say how the run ended.
    pub(super) fn abandoned(&mut self, time: f64) -> Option<Message> {
        let is_news = self.seen.started.is_some() && !self.seen.has_ended && self.occasions.contains(&Occasion::Failed);
        self.seen.has_ended = true;
        is_news.then(|| Message::killed(&self.run, &self.seen, time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::step;

    fn herald(every: ProgressEvery) -> Herald {
        Herald::new("r".into(), Occasion::ALL.to_vec(), every)
    }

    fn at(time: f64, event: Event) -> Timed {
        Timed { time: Some(time), event }
    }

    #[test]
    fn progress_comes_every_n_epochs_or_by_the_clock() {
        let mut by_epoch = herald(ProgressEvery::Epochs(2));
        let epochs = |herald: &mut Herald| -> Vec<usize> {
            let begins = |epoch| at(epoch as f64, Event::Epoch { epoch, epochs: 7, step: 0 });
            (0..7).filter(|&epoch| herald.message(&begins(epoch)).is_some()).collect()
        };
        assert_eq!(epochs(&mut by_epoch), [2, 4, 6]);
        assert_eq!(epochs(&mut by_epoch), [0; 0], "a resumed run does not say it again");
        let mut by_clock = herald(ProgressEvery::Seconds(100.0));
        let said = (0..1000).filter(|&n| by_clock.message(&step(n, n as f64)).is_some()).count();
        assert_eq!(said, 10);
        let mut silent = herald(ProgressEvery::Never);
        assert!(epochs(&mut silent).is_empty() && silent.message(&step(1, 1e9)).is_none());
    }

    #[test]
    fn the_speed_of_a_message_is_that_of_all_steps_since_the_last_one() {
        let mut herald = herald(ProgressEvery::Epochs(1));
        let paced = |number, samples_per_s, ms| {
            let mut timed = step(number, number as f64);
            let Event::Step(step) = &mut timed.event else { panic!("no step") };
            (step.samples_per_s, step.ms) = (samples_per_s, ms);
            timed
        };
        let ends = |epoch| at(50.0, Event::Epoch { epoch, epochs: 3, step: 0 });
        (1..=9).for_each(|n| _ = herald.message(&paced(n, 100.0, 1000.0)));
        // The last batch has one sample, and takes hardly less time for it.
        herald.message(&paced(10, 1.0, 1000.0));
        let restored = |herald: &Herald| {
            let mut again = super::Herald::new("r".into(), Occasion::ALL.to_vec(), ProgressEvery::Epochs(1));
            again.restore(&herald.state());
            again
        };
        let body = restored(&herald).message(&ends(1)).unwrap().body;
        assert!(body.contains("training 90.1 samples/s"), "{body}");
        herald.message(&ends(1));
        herald.message(&paced(11, 40.0, 500.0));
        let body = herald.message(&ends(2)).unwrap().body;
        assert!(body.contains("training 40.0 samples/s"), "{body}");
    }

    #[test]
    fn a_disk_that_is_nearly_full_is_said_once_until_there_is_room_again() {
        let mut herald = herald(ProgressEvery::Never);
        let free = |bytes| at(1.0, Event::Device(DeviceEvent { disk_free_bytes: Some(bytes), ..Default::default() }));
        let said: Vec<bool> =
            [9 << 30, 1, 2, 9 << 30, 3].into_iter().map(|bytes| herald.message(&free(bytes)).is_some()).collect();
        assert_eq!(said, [false, true, false, false, true]);
        // A checkpoint of 40 GiB needs more than a gigabyte.
        herald.message(&at(1.0, Event::Checkpoint { step: 1, path: String::new(), bytes: 40 << 30, best: false }));
        herald.message(&free(u64::MAX));
        assert!(herald.message(&free(60 << 30)).is_some());
    }

    #[test]
    fn a_run_that_was_killed_is_told_once_and_one_that_ended_is_not() {
        let mut herald = herald(ProgressEvery::Never);
        assert!(herald.abandoned(1.0).is_none(), "it never started");
        let failed = Event::Failed(plimsoll_runs::Failed { step: 1, reason: "x".into(), oom: false });
        assert!(herald.message(&at(1.0, failed)).is_some());
        assert!(herald.abandoned(2.0).is_none());
    }
}
