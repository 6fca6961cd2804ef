//! How a run ended, and why: by its own word, by the end of its process, by the last words in its log. Each may be of an
//! earlier attempt at the same run, and then says nothing about this one.

use crate::folders::{RunId, Summary, Times, read_some, unix_seconds};
use crate::jobs::{Job, JobState};
use crate::state::State as Server;
use std::path::Path;

/// What is known about a run that is at rest.
pub(super) struct Ending<'a> {
    id: &'a RunId,
    /// The last attempt, where it was this server's.
    job: Option<&'a Job>,
    summary: &'a Summary,
    times: Times,
}

const ENDED_NOW: &str = "it was ended at once, as asked: what came after its last checkpoint is lost";
/// Of a log, the end is read.
const LAST_BYTES: u64 = 4096;

impl<'a> Ending<'a> {
    /// A run that told something after its job had ended was taken up by somebody else: that job says nothing about it.
    pub(super) fn of(id: &'a RunId, job: Option<&'a Job>, summary: &'a Summary, times: Times) -> Ending<'a> {
        let is_over = |job: &&Job| job.ended.is_some_and(|ended| ended < times.updated);
        Ending { id, job: job.filter(|job| !is_over(job)), summary, times }
    }

    /// finished, interrupted or failed
    pub(super) fn name(&self) -> &'static str {
        match self.summary.end.as_deref() {
            _ if self.failed_silently() => "failed",
            Some("completed" | "stopped") => "finished",
            Some("interrupted") => "interrupted",
            None if self.was_ended() => "interrupted",
            _ => "failed",
        }
    }

    /// Why it did not come to its end.
    pub(super) fn reason(&self, state: &Server) -> Option<String> {
        match self.name() {
            "failed" => Some(self.failure(state)),
            "interrupted" if self.summary.end.is_none() => Some(ENDED_NOW.into()),
            _ => None,
        }
    }

    fn failure(&self, state: &Server) -> String {
        let own = self.summary.failure.clone().filter(|_| self.summary.end.is_some() && !self.failed_silently());
        own.or_else(|| self.last_error(state)).unwrap_or_else(|| end_of_process(self.job.map(|job| job.state)))
    }

    /// The process began, failed, and wrote no event: what the events say is of an attempt before it.
    fn failed_silently(&self) -> bool {
        let failed = match self.job.map(|job| job.state) {
            Some(JobState::Ended { code, signal }) => signal.is_some() || code.is_some_and(|code| code != 0),
            _ => false,
        };
        let silent = self.job.and_then(|job| job.began).is_some_and(|began| self.times.updated < began);
        silent && failed && !self.was_ended()
    }

    /// A stop was asked for, and the process left without another word.
    fn was_ended(&self) -> bool {
        self.job.is_some_and(|job| job.stopping)
    }

    /// The error that this attempt left in its log, unless the run was taken up by somebody else since.
    fn last_error(&self, state: &Server) -> Option<String> {
        let job = self.job.filter(|job| job.began.is_some())?;
        let path = state.queue.log(self.id);
        let there = std::fs::metadata(&path).ok()?;
        let written = there.modified().map_or(0, unix_seconds);
        let from = there.len().saturating_sub(LAST_BYTES).max(job.log_from);
        if written < self.times.updated {
            return None;
        }
        error_in(&String::from_utf8_lossy(&read_log(&path, from)?))
    }
}

/// What the end of a process says, where nothing else does.
fn end_of_process(state: Option<JobState>) -> String {
    match state {
        Some(JobState::Ended { signal: Some(libc::SIGKILL), .. }) => {
            "its process was killed (signal 9): by somebody, or by the system where the machine had no memory left"
                .into()
        }
        Some(JobState::Ended { signal: Some(signal), .. }) => format!("its process was ended by signal {signal}"),
        Some(JobState::Ended { code: Some(code), .. }) => {
            format!("its process ended with exit code {code} and said nothing")
        }
        _ => "its process ended without a word: it was killed, or the machine was switched off".into(),
    }
}

fn read_log(path: &Path, from: u64) -> Option<Vec<u8>> {
    read_some(path, from, LAST_BYTES).ok()
}

/// The last line that names an error, with the hints behind it.
fn error_in(log: &str) -> Option<String> {
    let starts = log.match_indices("error:").map(|(at, _)| at);
    let at = starts.filter(|&at| at == 0 || log[..at].ends_with('\n')).last()?;
    Some(log[at..].trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[test]
    fn the_page_knows_every_reason_that_the_server_gives() {
        let patterns: BTreeMap<String, String> = serde_json::from_str(include_str!("../../page/said.json")).unwrap();
        let ended = |code, signal| Some(JobState::Ended { code, signal });
        let ends = [ended(None, Some(libc::SIGKILL)), ended(None, Some(1)), ended(Some(101), None), None];
        let told = ends.map(|end| (end, end_of_process(end)));
        for (end, reason) in told.into_iter().chain([(None, ENDED_NOW.into())]) {
            let blank =
                |number: Option<i32>| number.map_or(reason.clone(), |n| reason.replace(&n.to_string(), "{count}"));
            let with_blank = match end {
                Some(JobState::Ended { code, signal }) => blank(code.or(signal)),
                _ => reason.clone(),
            };
            assert!(patterns.values().any(|pattern| *pattern == reason || *pattern == with_blank), "{reason}");
        }
    }

    #[test]
    fn the_last_error_is_a_line_of_its_own() {
        let log = "error: the first\n  hint: x\nstep 3: loss 0.1 error: no\nerror: the second\n  hint: y\n";
        assert_eq!(error_in(log).as_deref(), Some("error: the second\n  hint: y"));
        assert_eq!(error_in("step 3: loss 0.1\nwarning: error: no\n"), None);
    }

    fn job(ended: u64) -> Job {
        let job = json!({"id": "a", "state": {"ended": {"code": 1, "signal": null}}, "arguments": [], "device": "cpu",
            "bytes": 1, "seconds": null, "asked": 1, "began": 2, "ended": ended, "stopping": true});
        serde_json::from_value(job).unwrap()
    }

    #[test]
    fn an_attempt_of_somebody_else_is_not_told_as_the_end_of_the_one_before() {
        let (id, summary) = (RunId::parse("a").unwrap(), Summary::default());
        let job = job(100);
        let ending = |updated: u64| Ending::of(&id, Some(&job), &summary, Times { created: 1, updated });
        assert_eq!((ending(100).name(), ending(99).name()), ("interrupted", "interrupted"));
        let later = ending(101);
        assert_eq!(later.name(), "failed", "nobody asked this attempt to stop");
        let said = end_of_process(later.job.map(|job| job.state));
        assert!(said.contains("without a word"), "{said}");
    }
}
