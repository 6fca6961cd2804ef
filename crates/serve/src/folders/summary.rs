//! A run in one row: what its events have said so far.

use plimsoll_runs::{End, Event};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// What a run has told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct Summary {
    /// The recipe's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipe: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<usize>,
    /// Updates of the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_per_epoch: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_batch: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_batch: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accumulation: Option<usize>,
    /// The last update.
    pub step: usize,
    pub epoch: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Over the last updates, the older the less: a single batch may be small or odd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smoothed_loss: Option<f64>,
    #[serde(skip)]
    mean: Mean,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_s: Option<f64>,
    /// Seconds until the end, by the run's own word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_s: Option<f64>,
    /// The last evaluation, with what the task has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub evaluation: Option<Value>,
    /// The best one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub best: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned_peak_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_peak_bytes: Option<u64>,
    /// How it ended: completed, stopped, interrupted, failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// How long it trained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// What it said last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Why it failed, by its own word.
    #[serde(skip)]
    pub failure: Option<String>,
}

/// When a run was made and last heard of, in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct Times {
    pub created: u64,
    pub updated: u64,
}

impl Summary {
    /// Hears a line of events; what is not understood is passed over.
    pub(crate) fn hear(&mut self, line: &[u8]) {
        if let Ok(event) = serde_json::from_slice::<Event>(line) {
            self.take(event, line);
        }
    }

    fn take(&mut self, event: Event, line: &[u8]) {
        match event {
            Event::Started(started) => self.start(started),
            Event::Resumed { step, .. } => (self.step, self.end) = (step, None),
            Event::Step(step) => {
                (self.step, self.epoch, self.end) = (step.step, step.epoch, None);
                self.loss = finite(step.loss);
                self.smoothed_loss = self.loss.map(|loss| self.mean.hear(loss)).or(self.smoothed_loss);
                self.samples_per_s = finite(step.samples_per_s);
                self.remaining_s = finite(step.remaining_s);
                self.planned_peak_bytes = Some(step.planned_peak_bytes);
                self.measured_peak_bytes = Some(step.measured_peak_bytes);
            }
            Event::Evaluation(evaluation) => {
                self.evaluation = serde_json::from_slice(line).ok();
                if evaluation.best {
                    self.best.clone_from(&self.evaluation);
                }
            }
            Event::Finished(finished) => {
                self.end = Some(end_name(finished.end).into());
                self.seconds = finite(finished.seconds);
                self.samples_per_s = finite(finished.samples_per_s);
                self.measured_peak_bytes = Some(finished.measured_peak_bytes);
                (self.step, self.remaining_s) = (finished.steps, None);
            }
            Event::Failed(failed) => {
                (self.step, self.end) = (failed.step, Some("failed".into()));
                self.failure = Some(failed.reason);
            }
            Event::Note { text } => self.note = Some(text.chars().take(400).collect()),
            _ => {}
        }
    }

    /// Whether there is nothing left of it to do. One that was told to stop after some steps completed those.
    pub(crate) fn is_done(&self) -> bool {
        self.end.as_deref() == Some("completed") && self.steps.is_none_or(|all| self.step >= all)
    }

    fn start(&mut self, started: plimsoll_runs::Started) {
        self.recipe = Some(started.recipe);
        self.device = Some(started.device);
        self.parameters = Some(started.parameters);
        (self.steps, self.steps_per_epoch) = (Some(started.steps), Some(started.steps_per_epoch));
        self.effective_batch = Some(started.effective_batch);
        (self.micro_batch, self.accumulation) = (Some(started.micro_batch), Some(started.accumulation));
        self.budget_bytes = Some(started.budget_bytes);
        self.planned_peak_bytes = Some(started.planned_peak_bytes);
        self.end = None;
    }
}

/// A running mean that starts at once and forgets slowly.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn hear(&mut self, value: f64) -> f64 {
        const KEPT: f64 = 0.95;
        self.sum = KEPT * self.sum + (1.0 - KEPT) * value;
        self.weight = KEPT * self.weight + (1.0 - KEPT);
        self.sum / self.weight
    }
}

fn finite(number: f64) -> Option<f64> {
    number.is_finite().then_some(number)
}

fn end_name(end: End) -> &'static str {
    match end {
        End::Completed => "completed",
        End::Stopped => "stopped",
        End::Interrupted => "interrupted",
    }
}
