//! MLflow over REST: a run per training, nested under its study's.

mod batch;
mod client;

pub use client::{Client, Status};

use crate::metrics::{Thinning, metrics_of};
use crate::settings::Mlflow;
use crate::sink::{Sink, Trouble};
use plimsoll_runs::{End, Event, Failed, Finished, Started, Timed};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Names and values as a run's parameters.
pub type Params = Vec<(String, String)>;

pub(crate) struct Tracker {
    client: Client,
    settings: Mlflow,
    /// Where recipe.toml is.
    run: PathBuf,
    run_id: Option<String>,
    thinning: Thinning,
}

impl Tracker {
    pub(crate) fn new(settings: Mlflow, run: PathBuf, every: Option<usize>) -> Result<Tracker, String> {
        let (client, run_id) = (Client::new(&settings)?, settings.run_id.clone());
        Ok(Tracker { client, settings, run, run_id, thinning: Thinning::new(every) })
    }

    /// The run to log to: that of a former follower, one that was named, or a new one.
    fn run_id(&mut self, time: f64) -> Result<String, Trouble> {
        if let Some(id) = &self.run_id {
            return Ok(id.clone());
        }
        let name = self.run.file_name().map_or("run".into(), |name| name.to_string_lossy().into_owned());
        let experiment = self.client.experiment()?;
        let id = self.client.create_run(&experiment, &name, self.settings.parent.as_deref(), time)?;
        self.run_id = Some(id.clone());
        Ok(id)
    }

    fn start(&mut self, id: &str, started: &Started) -> Result<(), Trouble> {
        self.client.set_status(id, Status::Running, None)?;
        let mut params = batch::of_recipe(&self.run.join("recipe.toml"));
        params.extend(batch::of_plan(started));
        self.client.log_params(id, &params)
    }

    fn fail(&mut self, id: &str, failed: &Failed, time: f64) -> Result<(), Trouble> {
        if failed.oom {
            self.client.log_params(id, &[("oom_error".into(), "True".into())])?;
        }
        self.client.set_tag(id, "plimsoll.failure", &failed.reason)?;
        self.client.set_status(id, Status::Failed, Some(time))
    }

    fn finish(&mut self, id: &str, finished: &Finished, time: f64) -> Result<(), Trouble> {
        let status = match finished.end {
            End::Completed | End::Stopped => Status::Finished,
            End::Interrupted => Status::Killed,
        };
        self.client.log_metrics(id, &batch::of_end(finished, time))?;
        self.client.set_status(id, status, Some(time))
    }

    /// What is more than numbers.
    fn tell(&mut self, id: &str, timed: &Timed) -> Result<(), Trouble> {
        let time = timed.time.unwrap_or(0.0);
        match &timed.event {
            Event::Started(started) => self.start(id, started),
            Event::Finished(finished) => self.finish(id, finished, time),
            Event::Failed(failed) => self.fail(id, failed, time),
            Event::Sample { text, .. } => self.client.set_tag(id, "plimsoll.sample", text),
            _ => Ok(()),
        }
    }
}

impl Sink for Tracker {
    fn name(&self) -> String {
        "mlflow".into()
    }

    fn restore(&mut self, state: &Value) {
        if let Some(id) = state["run_id"].as_str() {
            self.run_id = Some(id.into());
        }
    }

    /// Numbers come before the words that end a run: an ended run is complete.
    fn deliver(&mut self, events: &[Timed]) -> Result<(), Trouble> {
        let Some(first) = events.first() else { return Ok(()) };
        let id = self.run_id(first.time.unwrap_or(0.0))?;
        let kept = events.iter().filter(|timed| self.thinning.passes(timed));
        let metrics: Vec<_> = kept.flat_map(metrics_of).collect();
        self.client.log_metrics(&id, &metrics)?;
        events.iter().try_for_each(|timed| self.tell(&id, timed))
    }

    fn abandoned(&mut self) -> Result<(), Trouble> {
        let Some(id) = self.run_id.clone() else { return Ok(()) };
        self.client.set_tag(&id, "plimsoll.failure", "the process ended without a word: it was killed")?;
        self.client.set_status(&id, Status::Failed, None)
    }

    fn state(&self) -> Value {
        json!({ "run_id": self.run_id })
    }

    fn set_timeout(&mut self, timeout: Duration) {
        self.client.set_timeout(timeout);
    }
}
