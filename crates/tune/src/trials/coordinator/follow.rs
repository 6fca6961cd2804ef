//! Follows running trials: their evaluations become reports, and a trial that falls behind is asked to leave.

use std::collections::BTreeMap;

use plimsoll::search::Objective;
use plimsoll_runs::{Event, Scores};

use super::{Coordinator, LOOK, Running, RunningTrial, Watcher};
use crate::error::{Error, Result};
use crate::trial::Trial;

/// Steps after which the time of one more is known.
const SETTLED: usize = 20;

/// What a trial's events have told so far. What a resumed run does again replaces what it had done.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Evaluations by the step they stand at.
    evaluations: BTreeMap<usize, Scores>,
    /// Milliseconds by step, of updates and of evaluations.
    step_ms: BTreeMap<usize, f64>,
    evaluation_ms: BTreeMap<usize, f64>,
    pub measured_peak_bytes: u64,
    /// By the plan of the run itself, which has seen its data.
    pub planned_peak_bytes: u64,
    /// Reports that the storage has already.
    reported: usize,
}

impl Seen {
    /// With what the storage knows of earlier lives of the trial.
    pub(super) fn of(trial: &Trial) -> Seen {
        Seen { reported: trial.last_step().map_or(0, |step| step.max(0) as usize), ..Seen::default() }
    }

    pub(super) fn seconds(&self) -> f64 {
        // A sum of nothing is -0.
        (0.0 + self.step_ms.values().sum::<f64>() + self.evaluation_ms.values().sum::<f64>()) * 1e-3
    }
}

/// The value of an objective in an evaluation.
pub(super) fn score(objective: Objective, scores: &Scores) -> Option<f64> {
    match objective {
        Objective::Loss => Some(scores.loss),
        Objective::Accuracy => scores.accuracy,
        Objective::F1 => scores.f1,
        Objective::Pearson => scores.pearson,
        Objective::Spearman => scores.spearman,
        Objective::Seconds | Objective::Bytes => None,
    }
}

impl Running {
    /// Seconds that the trial takes in all, and those that are left; none while its steps are still its first, which are
    /// slower than those to come.
    pub(super) fn times(&self) -> Option<(f64, f64)> {
        let left = self.remaining.filter(|_| self.seen.step_ms.len() >= SETTLED.min(self.steps))?;
        let left = left + self.ready.length.map_or(0.0, |length| length.closing);
        Some((self.began.elapsed().as_secs_f64() + left, left))
    }

    pub(super) fn shown(&self) -> RunningTrial {
        RunningTrial {
            number: self.ready.asked.number,
            step: self.step,
            steps: self.steps,
            bytes: self.ready.bytes.max(self.seen.planned_peak_bytes),
            seconds_left: self.remaining.or(self.ready.length.map(|length| length.seconds)),
            last_value: self.seen.evaluations.values().next_back().map(|scores| scores.loss),
        }
    }

    /// Takes in what happened; the evaluations that are new.
    fn hear(&mut self, events: &[Event]) -> Vec<(usize, Scores)> {
        let before = self.seen.evaluations.len();
        for event in events {
            match event {
                Event::Started(started) => self.steps = started.steps,
                Event::Resumed { step, .. } if *step > self.resumed_from => {
                    // It got on since its last start: what kills it now and then does not stop it.
                    (self.resumed_from, self.restarts) = (*step, 0);
                }
                Event::Step(step) => {
                    self.step = step.step;
                    self.remaining = Some(step.remaining_s);
                    self.seen.step_ms.insert(step.step, step.ms);
                    self.seen.measured_peak_bytes = self.seen.measured_peak_bytes.max(step.measured_peak_bytes);
                    self.seen.planned_peak_bytes = step.planned_peak_bytes;
                }
                Event::Evaluation(evaluation) => {
                    self.seen.evaluations.insert(evaluation.step, evaluation.scores);
                    self.seen.evaluation_ms.insert(evaluation.step, evaluation.ms);
                }
                Event::Finished(finished) => {
                    self.seen.measured_peak_bytes = self.seen.measured_peak_bytes.max(finished.measured_peak_bytes);
                    self.seen.planned_peak_bytes = finished.planned_peak_bytes;
                }
                _ => {}
            }
        }
        let all = self.seen.evaluations.values().enumerate();
        let from = before.max(self.seen.reported);
        all.skip(from).map(|(index, scores)| (index + 1, *scores)).collect()
    }
}

impl Coordinator {
    /// One look at every running trial.
    pub(super) fn follow_all(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        let mut at = 0;
        while at < self.running.len() {
            if !self.follow(at, watcher)? {
                at += 1;
            }
        }
        Ok(())
    }

    /// True if the trial has left the list.
    fn follow(&mut self, at: usize, watcher: &mut dyn Watcher) -> Result<bool> {
        let events = self.running[at].training.events();
        let fresh = self.running[at].hear(&events);
        let Running { ready, seen, .. } = &self.running[at];
        self.room.learn(ready.asked.id, ready.bytes, seen.planned_peak_bytes);
        if self.report(at, &fresh, watcher)? {
            return Ok(true);
        }
        let Some((events, ending)) = self.running[at].training.ended() else { return Ok(false) };
        let fresh = self.running[at].hear(&events);
        if self.report(at, &fresh, watcher)? {
            return Ok(true);
        }
        let running = self.running.remove(at);
        self.room.give_back(running.ready.asked.id);
        self.end(running, ending, watcher)?;
        Ok(true)
    }

    /// True if the trial is another worker's by now, and was dropped.
    fn report(&mut self, at: usize, fresh: &[(usize, Scores)], watcher: &mut dyn Watcher) -> Result<bool> {
        let objective = self.objectives[0];
        for (index, scores) in fresh {
            let Some(value) = score(objective, scores) else { continue };
            let id = self.running[at].ready.asked.id;
            let told = self.study.report(id, *index as i64, value).and_then(|()| self.study.should_prune(id));
            match told {
                Ok(prune) => {
                    self.running[at].seen.reported = *index;
                    let judged = self.objectives.len() == 1 && self.to_the_end != Some(id);
                    if prune && judged && !self.running[at].pausing {
                        self.running[at].pausing = true;
                        self.running[at].training.interrupt();
                    }
                }
                Err(Error::TrialEnded(_) | Error::TrialTakenOver(_)) => {
                    let running = self.running.remove(at);
                    watcher.line(&format!("trial {}: another worker has it now", running.ready.asked.number));
                    self.room.give_back(id);
                    return Ok(true);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Asks every trial to write a checkpoint and leave, and waits for that; what it still told is kept.
    pub(super) fn leave(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        if !self.running.is_empty() {
            watcher.line(&format!("{} trials write a checkpoint and leave", self.running.len()));
        }
        self.running.iter().for_each(|running| running.training.interrupt());
        while !self.running.is_empty() {
            let mut at = 0;
            while at < self.running.len() {
                let events = self.running[at].training.events();
                let mut fresh = self.running[at].hear(&events);
                let ended = self.running[at].training.ended();
                if let Some((events, _)) = &ended {
                    fresh.extend(self.running[at].hear(events));
                }
                if self.report(at, &fresh, watcher)? {
                    continue;
                }
                match ended {
                    None => at += 1,
                    Some((_, ending)) => {
                        let running = self.running.remove(at);
                        self.room.give_back(running.ready.asked.id);
                        self.end_on_leaving(running, ending, watcher)?;
                    }
                }
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The end of a session that failed: checkpoints are written, nothing is told.
    pub(super) fn interrupt_all(&mut self) {
        self.running.iter().for_each(|running| running.training.interrupt());
        let began = std::time::Instant::now();
        while !self.running.is_empty() && began.elapsed() < std::time::Duration::from_secs(60) {
            self.running.retain_mut(|running| running.training.ended().is_none());
            std::thread::sleep(LOOK);
        }
        // What does not leave is ended with its handle.
        self.running.clear();
    }
}
