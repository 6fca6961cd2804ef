//! What a message says.

use super::Occasion;
use super::occasions::Seen;
use plimsoll_runs::{
    DeviceEvent, End, Evaluation, Event, Failed, Finished, Started, StepEvent, format_bytes, format_seconds,
};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Message {
    pub(super) occasion: Occasion,
    pub(super) title: String,
    pub(super) body: String,
    /// When it happened, in seconds since 1970.
    pub(super) time: f64,
}

/// Services cut long messages, some in the middle of a character.
const LONGEST: usize = 1500;

impl Message {
    pub(super) fn test(time: f64) -> Message {
        let body = "This is a test. Runs will tell here how they are doing.".into();
        Message { occasion: Occasion::Progress, title: "plimsoll".into(), body, time }
    }

    pub(super) fn about(occasion: Occasion, run: &str, event: &Event, seen: &Seen, time: f64) -> Message {
        let (what, body) = match event {
            Event::Started(started) => ("started", of_start(started)),
            Event::Evaluation(evaluation) => ("best so far", of_best(evaluation, seen)),
            Event::Finished(finished) => (how_it_ended(finished), of_end(finished)),
            Event::Failed(failed) => ("failed", of_failure(failed)),
            Event::Device(device) => ("the disk is nearly full", of_disk(device)),
            _ => ("goes on", of_progress(seen)),
        };
        Message { occasion, title: clean(&format!("{run}: {what}")), body: clean(&body), time }
    }

    pub(super) fn killed(run: &str, seen: &Seen, time: f64) -> Message {
        let body = format!("its process ended without a word: it was killed. Last seen: {}", of_progress(seen));
        Message { occasion: Occasion::Failed, title: clean(&format!("{run}: failed")), body: clean(&body), time }
    }

    /// Whether it is bad news, for services that colour or rank them.
    pub(super) fn kind(&self) -> &'static str {
        match self.occasion {
            Occasion::Failed => "failure",
            Occasion::Disk => "warning",
            Occasion::Finished | Occasion::Best => "success",
            Occasion::Started | Occasion::Progress => "info",
        }
    }
}

/// Words from data cannot break a line or move a terminal's cursor.
fn clean(text: &str) -> String {
    text.chars().filter(|c| *c == '\n' || !c.is_control()).take(LONGEST).collect()
}

fn of_start(started: &Started) -> String {
    let precision = started.precision.as_deref().map_or(String::new(), |name| format!(", {name}"));
    let epochs = started.epochs.map_or(String::new(), |epochs| format!(" in {epochs} epochs"));
    format!(
        "on {}{precision}: {} steps{epochs} over {} samples\neffective batch {} = {} × {}\nplanned peak {} of {} budget",
        started.device,
        started.steps,
        started.train_samples,
        started.effective_batch,
        started.micro_batch,
        started.accumulation,
        format_bytes(started.planned_peak_bytes),
        format_bytes(started.budget_bytes)
    )
}

fn of_progress(seen: &Seen) -> String {
    let speed = |step: &StepEvent| seen.pace.samples_per_s().unwrap_or(step.samples_per_s);
    let step = seen.step.as_ref().map(|step| of_step(step, speed(step), seen.started.as_ref()));
    let memory = seen.device.as_ref().and_then(memory);
    let lines: Vec<String> = [step, memory].into_iter().flatten().collect();
    if lines.is_empty() { "no step yet".into() } else { lines.join("\n") }
}

fn of_step(step: &StepEvent, samples_per_s: f64, started: Option<&Started>) -> String {
    let of = |count: Option<usize>| count.map_or(String::new(), |count| format!("/{count}"));
    let data = step.data_samples_per_s.map_or(String::new(), |speed| format!(", data {speed:.0} samples/s"));
    format!(
        "epoch {}{}, step {}{}: loss {:.4}\ntraining {:.1} samples/s{data}, {} left, no out-of-memory errors",
        step.epoch + 1,
        of(started.and_then(|started| started.epochs)),
        step.step,
        of(started.map(|started| started.steps)),
        step.loss,
        samples_per_s,
        format_seconds(step.remaining_s)
    )
}

fn memory(device: &DeviceEvent) -> Option<String> {
    let (used, total) = (device.used_bytes?, device.total_bytes.filter(|total| *total > 0)?);
    let percent = 100.0 * used as f64 / total as f64;
    Some(format!("memory {} / {} ({percent:.0} %)", format_bytes(used), format_bytes(total)))
}

fn of_best(evaluation: &Evaluation, seen: &Seen) -> String {
    let epochs = seen.started.as_ref().and_then(|started| started.epochs);
    let of = epochs.map_or(String::new(), |epochs| format!("/{epochs}"));
    format!("{} at step {} (epoch {}{of})", evaluation.scores, evaluation.step, evaluation.epoch + 1)
}

fn how_it_ended(finished: &Finished) -> &'static str {
    match finished.end {
        End::Completed => "finished",
        End::Stopped => "finished early: evaluations stopped getting better",
        End::Interrupted => "interrupted, with a checkpoint",
    }
}

fn of_end(finished: &Finished) -> String {
    let best = finished.best.map_or(String::new(), |best| format!("\nbest: {} at step {}", best.scores, best.step));
    format!(
        "{} steps in {}, {:.1} samples/s{best}\nplanned peak {}, measured {}; no out-of-memory errors",
        finished.steps,
        format_seconds(finished.seconds),
        finished.samples_per_s,
        format_bytes(finished.planned_peak_bytes),
        format_bytes(finished.measured_peak_bytes)
    )
}

fn of_failure(failed: &Failed) -> String {
    let memory = if failed.oom { "\nmemory was what lacked" } else { "" };
    format!("at step {}: {}{memory}", failed.step, failed.reason)
}

fn of_disk(device: &DeviceEvent) -> String {
    let free = device.disk_free_bytes.map_or("little".into(), format_bytes);
    format!("{free} left where the run's folder is: the next checkpoint may not fit")
}
