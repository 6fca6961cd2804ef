//! The events of a run put together: where it stands now. What was seen once is kept up by one event at a time.

use plimsoll_runs::{DeviceEvent, End, Evaluation, Event, Failed, Finished, Started, StepEvent, Timed, read_timed};
use std::io;
use std::path::Path;

/// How a run stands, as far as its events tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunState {
    /// No event yet.
    #[default]
    Waiting,
    /// It has started and not said that it ended. Whether its process lives is not in the events.
    Running,
    Completed,
    /// Evaluations stopped getting better.
    Stopped,
    Interrupted,
    Failed,
}

impl RunState {
    pub(crate) const ALL: [RunState; 6] = [
        RunState::Waiting,
        RunState::Running,
        RunState::Completed,
        RunState::Stopped,
        RunState::Interrupted,
        RunState::Failed,
    ];

    pub fn name(self) -> &'static str {
        match self {
            RunState::Waiting => "waiting",
            RunState::Running => "running",
            RunState::Completed => "completed",
            RunState::Stopped => "stopped",
            RunState::Interrupted => "interrupted",
            RunState::Failed => "failed",
        }
    }
}

/// Upper ends of the steps' durations, in seconds; what is longer than the last is counted beside them.
pub(crate) const DURATIONS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

/// The last of everything, and sums over all steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFacts {
    pub state: RunState,
    pub started: Option<Started>,
    pub step: Option<StepEvent>,
    pub evaluation: Option<Evaluation>,
    pub device: Option<DeviceEvent>,
    pub finished: Option<Finished>,
    pub failed: Option<Failed>,
    /// Seconds since 1970.
    pub last_checkpoint: Option<f64>,
    pub last_event: Option<f64>,
    pub samples: f64,
    pub tokens: Option<f64>,
    pub stall_s: f64,
    /// How many steps took at most so long, each counted once; the last entry is those that took longer.
    pub(crate) durations: [u64; DURATIONS.len() + 1],
    pub(crate) duration_s: f64,
}

impl RunFacts {
    /// From a run's folder.
    pub fn read(run: &Path) -> io::Result<RunFacts> {
        let mut facts = RunFacts::default();
        read_timed(&run.join("events.jsonl"))?.iter().for_each(|timed| facts.add(timed));
        Ok(facts)
    }

    pub fn add(&mut self, timed: &Timed) {
        self.last_event = timed.time.or(self.last_event);
        match &timed.event {
            Event::Started(started) => {
                (self.state, self.finished, self.failed) = (RunState::Running, None, None);
                self.started = Some(started.clone());
            }
            Event::Step(step) => self.add_step(step),
            Event::Evaluation(evaluation) => self.evaluation = Some(evaluation.clone()),
            Event::Device(device) => self.device = Some(device.clone()),
            Event::Checkpoint { .. } => self.last_checkpoint = timed.time.or(self.last_checkpoint),
            Event::Finished(finished) => self.finish(finished),
            Event::Failed(failed) => {
                self.state = RunState::Failed;
                self.failed = Some(failed.clone());
            }
            Event::Resumed { .. } | Event::Epoch { .. } | Event::Sample { .. } | Event::Note { .. } => {}
        }
    }

    fn add_step(&mut self, step: &StepEvent) {
        let seconds = step.ms / 1e3;
        self.samples += step.samples_per_s * seconds;
        if let Some(speed) = step.tokens_per_s {
            self.tokens = Some(self.tokens.unwrap_or(0.0) + speed * seconds);
        }
        self.stall_s += step.stall_ms / 1e3;
        self.duration_s += seconds;
        let bucket = DURATIONS.iter().position(|&end| seconds <= end).unwrap_or(DURATIONS.len());
        self.durations[bucket] += 1;
        self.step = Some(step.clone());
    }

    /// As it stands for who knows whether its process lives: one that went without a word has failed.
    pub fn judged(mut self, is_alive: bool) -> RunFacts {
        if !is_alive && matches!(self.state, RunState::Waiting | RunState::Running) {
            self.state = RunState::Failed;
        }
        self
    }

    fn finish(&mut self, finished: &Finished) {
        self.state = match finished.end {
            End::Completed => RunState::Completed,
            End::Stopped => RunState::Stopped,
            End::Interrupted => RunState::Interrupted,
        };
        self.finished = Some(finished.clone());
    }

    /// When it is expected to end, in seconds since 1970, while it runs.
    pub(crate) fn expected_end(&self) -> Option<f64> {
        let is_running = self.state == RunState::Running;
        let (step, time) = (self.step.as_ref()?, self.last_event?);
        is_running.then_some(time + step.remaining_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::step;

    #[test]
    fn a_run_whose_process_is_gone_does_not_run_and_one_that_ended_keeps_its_end() {
        let facts = RunFacts { state: RunState::Running, ..RunFacts::default() };
        assert_eq!(facts.clone().judged(true).state, RunState::Running);
        assert_eq!(facts.judged(false).state, RunState::Failed);
        assert_eq!(RunFacts::default().judged(false).state, RunState::Failed);
        let ended = RunFacts { state: RunState::Completed, ..RunFacts::default() };
        assert_eq!(ended.judged(false).state, RunState::Completed);
        let mut expecting = RunFacts { state: RunState::Running, ..RunFacts::default() };
        expecting.add(&step(1, 5.0));
        assert_eq!(expecting.expected_end(), Some(6.0));
        assert_eq!(expecting.judged(false).expected_end(), None);
    }
}
