//! A study in MLflow: a run of its own, under which the runs of its trials stand.

use crate::failure::Failure;
use crate::printer::say;
use crate::tracking;
use plimsoll::Recipe;
use plimsoll_track::{MlflowClient, MlflowStatus, TrackError};
use plimsoll_tune::trials::Coordinator;
use std::time::{SystemTime, UNIX_EPOCH};

/// What the study is called there is a fact about it: whoever goes on with it goes on there.
const NOTED: &str = "mlflow_run";

pub(crate) struct Parent {
    client: MlflowClient,
    run: String,
}

impl Parent {
    /// Begins the study's run, or goes on with it; none where nobody is told. A server that is not there stops no study.
    pub(crate) fn begin(
        recipe: &Recipe,
        study: &str,
        coordinator: &mut Coordinator,
    ) -> Result<Option<Parent>, Failure> {
        let Some(server) = tracking::mlflow(recipe)? else { return Ok(None) };
        let noted = coordinator.noted(NOTED).map(String::from);
        let begun = MlflowClient::connect(&server).and_then(|client| {
            let run = noted.map_or_else(|| client.start_study(study, now()), Ok)?;
            Ok(Parent { client, run })
        });
        match begun {
            Ok(parent) => {
                coordinator.note(NOTED, &parent.run)?;
                coordinator.set_for_all(format!("track.parent=\"{}\"", parent.run));
                Ok(Some(parent))
            }
            Err(error) => {
                warn(&error);
                Ok(None)
            }
        }
    }

    pub(crate) fn infeasible(&self, number: u64, params: &[(String, String)]) {
        let told = self.client.record_infeasible(&self.run, &format!("trial-{number}"), params, now());
        told.unwrap_or_else(|error| warn(&error));
    }

    /// A study that was interrupted is open: the same command goes on with it.
    pub(crate) fn end(&self, is_over: bool) {
        let status = if is_over { MlflowStatus::Finished } else { MlflowStatus::Killed };
        self.client.end_study(&self.run, status, now()).unwrap_or_else(|error| warn(&error));
    }
}

fn warn(error: &TrackError) {
    say(&format!("warning: {error}: the study is not told to MLflow, its trials go on\n  hint: {}", error.hint()));
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
