//! What becomes of a trial when its training ends.

use std::sync::Arc;

use plimsoll::format_seconds;
use plimsoll::search::Objective;
use plimsoll_runs::{Finished, holder};

use super::follow::score;
use super::next::{Unfit, first_line};
use super::{Coordinator, HOPELESS, LOOKED_AHEAD, Running, Watcher};
use crate::attributes as name;
use crate::error::{Error, Result};
use crate::json::Json;
use crate::rng::Rng;
use crate::study::{Asked, Outcome};
use crate::trial::{State, Trial};
use crate::trials::child::{Ending, Training};

/// How a system says that a disk is full.
const FULL: [&str; 2] = ["No space left on device", "Disk quota exceeded"];
/// A training that died is started again so often.
const RESTARTS: usize = 1;

impl Coordinator {
    pub(super) fn end(&mut self, running: Running, ending: Ending, watcher: &mut dyn Watcher) -> Result<()> {
        let number = running.ready.asked.number;
        match ending {
            Ending::Finished(finished) => self.complete(&running, &finished, watcher),
            Ending::Interrupted if running.pausing => self.lay_aside(&running, watcher),
            Ending::Interrupted => {
                // Somebody else stopped it: it goes on, as a kill would.
                self.again(running, "it was interrupted".into(), watcher)
            }
            Ending::Diverged(words) => {
                watcher.line(&format!("trial {number}: {words}"));
                self.attribute(&running, name::DIVERGED, Json::Text(words))?;
                self.note_measures(&running)?;
                self.tell(&running, &Outcome::Pruned)
            }
            Ending::DoesNotFit(words) => {
                watcher.line(&format!("trial {number}: did not fit after all: {words}"));
                self.attribute(&running, name::OOM, Json::Bool(true))?;
                self.attribute(&running, name::PRUNED_BECAUSE, Json::Text(words))?;
                self.study.set_constraint(running.ready.asked.id, "memory", f64::EPSILON)?;
                self.tell(&running, &Outcome::Pruned)
            }
            // Whoever is about to lose the trial had started it at the same moment.
            Ending::Refused(words) if holder(&running.ready.task.out).is_some() => self.again(running, words, watcher),
            Ending::Refused(words) => {
                self.refusals.push(words.clone());
                self.fail(&running, words, watcher)?;
                self.stop_if_hopeless()
            }
            Ending::Died(words) => self.again(running, words, watcher),
        }
    }

    /// When the study is left, a trial that was only asked to leave stays as it is: the next session goes on with it.
    pub(super) fn end_on_leaving(&mut self, running: Running, ending: Ending, watcher: &mut dyn Watcher) -> Result<()> {
        match ending {
            Ending::Interrupted if !running.pausing => Ok(()),
            Ending::Died(_) => Ok(()),
            other => self.end(running, other, watcher),
        }
    }

    fn complete(&mut self, running: &Running, finished: &Finished, watcher: &mut dyn Watcher) -> Result<()> {
        let number = running.ready.asked.number;
        self.note_measures(running)?;
        let values: Option<Vec<f64>> = self.objectives.iter().map(|o| value(*o, running, finished)).collect();
        let Some(values) = values.filter(|values| values.iter().all(|value| !value.is_nan())) else {
            let names: Vec<&str> = self.objectives.iter().map(|o| plimsoll::Named::name(*o)).collect();
            let words = format!("its evaluations do not say {}", names.join(" and "));
            return self.fail(running, words, watcher);
        };
        self.succeeded = true;
        self.tell(running, &Outcome::Complete(values.clone()))?;
        let shown: Vec<String> = self.objectives.iter().zip(&values).map(|(o, value)| o.shown(*value)).collect();
        let best = self.study.best()?.iter().any(|trial| trial.number == number);
        let best = if best { ", best so far" } else { "" };
        let seconds = format_seconds(running.seen.seconds());
        watcher.line(&format!("trial {number}: {} in {seconds}{best}", shown.join(", ")));
        self.sweep()
    }

    /// Pruned, in the eyes of others; its checkpoint stays and it may go on.
    fn lay_aside(&mut self, running: &Running, watcher: &mut dyn Watcher) -> Result<()> {
        let asked = &running.ready.asked;
        self.note_measures(running)?;
        let trial = self.trial(asked.id)?;
        let value = trial.intermediate.last_key_value().map(|(step, value)| format!("{value:.5} after {step}"));
        let words = format!("{} evaluations: not among the best there", value.unwrap_or_default());
        self.attribute(running, name::PRUNED_BECAUSE, Json::from(words.as_str()))?;
        self.study.pause(asked.id)?;
        self.forecast.measure(running.began.elapsed().as_secs_f64());
        watcher.line(&format!("trial {}: laid aside, {words}", asked.number));
        Ok(())
    }

    /// Starts a training again that died, from its last checkpoint; one that dies again has failed.
    fn again(&mut self, running: Running, words: String, watcher: &mut dyn Watcher) -> Result<()> {
        let number = running.ready.asked.number;
        // No trial is to blame for a disk without room: it stays begun, and the same command goes on with it.
        if FULL.iter().any(|full| words.contains(full)) {
            watcher.line("make room on the disk; the same command goes on");
            let cause = std::io::Error::other(first_line(&words).to_string());
            return Err(Error::File { path: running.ready.task.out.clone(), cause });
        }
        if running.restarts >= RESTARTS {
            return self.fail(&running, words, watcher);
        }
        watcher.line(&format!("trial {number}: {}; starting it again", first_line(&words)));
        let training = Training::start(&running.ready.task)?;
        self.room.take(running.ready.asked.id, running.ready.bytes);
        self.running.push(Running { training, restarts: running.restarts + 1, pausing: false, ..running });
        Ok(())
    }

    fn fail(&mut self, running: &Running, words: String, watcher: &mut dyn Watcher) -> Result<()> {
        watcher.line(&format!("trial {}: failed: {}", running.ready.asked.number, first_line(&words)));
        self.attribute(running, name::FAILURE, Json::Text(words))?;
        self.note_measures(running)?;
        self.tell(running, &Outcome::Failed)
    }

    /// Where nothing ever worked and the cause is always the same, more trials would not help.
    fn stop_if_hopeless(&self) -> Result<()> {
        let alike = self.refusals.windows(2).all(|pair| pair[0] == pair[1]);
        if self.succeeded || self.refusals.len() < HOPELESS || !alike {
            return Ok(());
        }
        let log = self.options.folder.path().join("logs");
        let cause = format!("the first {HOPELESS} trials were refused alike: {}", self.refusals[0]);
        Err(Error::Input(format!("{cause}\nhint: {} holds what each of them said", log.display())))
    }

    /// What planning refuses costs next to nothing, and the sampler learns from it. Only where it refuses whatever else
    /// is drawn, too, would more trials not help.
    pub(super) fn stop_if_unplannable(&mut self, cause: &str) -> Result<()> {
        self.unplannable += 1;
        if self.planned || self.unplannable != HOPELESS {
            return Ok(());
        }
        let mut rng = Rng::new(0);
        for _ in 0..LOOKED_AHEAD {
            if !matches!(self.drawn(&mut rng)?, Err(Unfit::Refused(_))) {
                return Ok(());
            }
        }
        let refused = format!("the first {HOPELESS} trials were refused, as {LOOKED_AHEAD} more would be");
        let cause = format!("{refused}, the last because: {cause}");
        Err(Error::Input(format!("{cause}\nhint: --dry-run plans every combination")))
    }

    fn tell(&mut self, running: &Running, outcome: &Outcome) -> Result<()> {
        self.forecast.measure(running.began.elapsed().as_secs_f64());
        match self.study.tell(running.ready.asked.id, outcome) {
            // Another worker took it for dead and was faster: theirs counts.
            Err(Error::TrialEnded(_) | Error::TrialTakenOver(_)) => Ok(()),
            told => {
                self.ended += 1;
                told
            }
        }
    }

    fn attribute(&mut self, running: &Running, key: &str, value: Json) -> Result<()> {
        match self.study.set_user_attr(running.ready.asked.id, key, value) {
            Err(Error::TrialEnded(_) | Error::TrialTakenOver(_)) => Ok(()),
            other => other,
        }
    }

    fn note_measures(&mut self, running: &Running) -> Result<()> {
        let peak = running.seen.measured_peak_bytes as f64 / 1e9;
        let run = running.ready.task.out.display().to_string();
        if running.seen.planned_peak_bytes > 0 {
            let planned = running.seen.planned_peak_bytes as f64 / 1e9;
            self.attribute(running, name::PEAK_MEMORY_GB, Json::Float(planned))?;
        }
        self.attribute(running, name::MEASURED_PEAK_MEMORY_GB, Json::Float(peak))?;
        self.attribute(running, name::SECONDS, Json::Float(running.seen.seconds()))?;
        self.attribute(running, name::RUN, Json::Text(run))
    }

    /// Trials that train the same as another end as it ends.
    pub(super) fn resolve_followers(&mut self, watcher: &mut dyn Watcher) -> Result<()> {
        if self.followers.is_empty() {
            return Ok(());
        }
        let trials = self.trials()?;
        for (asked, leader) in std::mem::take(&mut self.followers) {
            match trials.iter().find(|trial| trial.number == leader) {
                Some(leader) if leader.state.is_finished() => self.copy_outcome(&asked, leader, watcher)?,
                _ => self.followers.push((asked, leader)),
            }
        }
        Ok(())
    }

    fn copy_outcome(&mut self, asked: &Asked, leader: &Arc<Trial>, watcher: &mut dyn Watcher) -> Result<()> {
        for (step, value) in &leader.intermediate {
            self.study.report(asked.id, *step, *value)?;
        }
        let copied = [name::PEAK_MEMORY_GB, name::MEASURED_PEAK_MEMORY_GB, name::SECONDS, name::RUN];
        for key in copied.into_iter().chain([name::PRUNED_BECAUSE, name::DIVERGED, name::OOM]) {
            if let Some(value) = leader.user_attrs.get(key) {
                self.study.set_user_attr(asked.id, key, value.clone())?;
            }
        }
        let outcome = match (leader.state, &leader.values) {
            (State::Complete, Some(values)) => Outcome::Complete(values.clone()),
            (State::Failed, _) => Outcome::Failed,
            _ => Outcome::Pruned,
        };
        watcher.line(&format!("trial {}: ends as trial {} did", asked.number, leader.number));
        self.ended += 1;
        match self.study.tell(asked.id, &outcome) {
            Err(Error::TrialEnded(_) | Error::TrialTakenOver(_)) => Ok(()),
            told => told,
        }
    }
}

/// The value of an objective at the end: scores are those of the best evaluation, which the model is of.
fn value(objective: Objective, running: &Running, finished: &Finished) -> Option<f64> {
    match objective {
        Objective::Seconds => Some(running.seen.seconds()),
        Objective::Bytes => Some(finished.planned_peak_bytes as f64),
        _ => {
            let scores = finished.best.map(|best| best.scores).or(finished.last)?;
            score(objective, &scores)
        }
    }
}
