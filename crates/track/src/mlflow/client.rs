//! The requests: what `mlflow.MlflowClient` sends, as far as runs need it.

use super::batch::{self, MOST_METRICS, MOST_PARAMS};
use crate::http::{Http, Request};
use crate::metrics::Metric;
use crate::settings::Mlflow;
use crate::sink::Trouble;
use serde_json::{Value, json};
use std::time::Duration;

/// How a run of MLflow stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Running,
    Finished,
    Failed,
    Killed,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Status::Running => "RUNNING",
            Status::Finished => "FINISHED",
            Status::Failed => "FAILED",
            Status::Killed => "KILLED",
        }
    }
}

/// What MLflow says of a parameter that has another value already.
const TAKEN: &str = "INVALID_PARAMETER_VALUE";

/// A server and who asks it.
pub struct Client {
    http: Http,
    /// Up to `/api/2.0/mlflow`.
    base: String,
    headers: Vec<(String, String)>,
    experiment: String,
    experiment_id: Option<String>,
}

impl Client {
    pub(crate) fn new(settings: &Mlflow) -> Result<Client, String> {
        Ok(Client {
            http: Http::new(&settings.tls()?)?,
            base: format!("{}/api/2.0/mlflow", settings.uri.trim_end_matches('/')),
            headers: settings.authorization().into_iter().map(|value| ("authorization".into(), value)).collect(),
            experiment: settings.experiment.clone(),
            experiment_id: settings.experiment_id.clone(),
        })
    }

    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.http.timeout = timeout;
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value, Trouble> {
        let body = serde_json::to_vec(body).map_err(|_| Trouble::Never { cause: "not JSON".into() })?;
        self.ask(&Request { url: &format!("{}/{path}", self.base), headers: &self.headers, body: Some(body) })
    }

    fn ask(&self, request: &Request<'_>) -> Result<Value, Trouble> {
        let text = self.http.send(request)?;
        // What answers with a page is no MLflow, or a proxy before one that is not up yet.
        serde_json::from_str(&text)
            .map_err(|_| Trouble::Later { cause: "the answer is not MLflow's".into(), after: None })
    }

    /// The id of the experiment, which is made where there is none.
    pub(crate) fn experiment(&self) -> Result<String, Trouble> {
        if let Some(id) = &self.experiment_id {
            return Ok(id.clone());
        }
        let url = format!("{}/experiments/get-by-name?experiment_name={}", self.base, encoded(&self.experiment));
        let found = self.ask(&Request { url: &url, headers: &self.headers, body: None });
        match found {
            Ok(answer) => text_at(&answer, "/experiment/experiment_id"),
            Err(Trouble::Never { cause }) if cause.starts_with("answered 404") => self.create_experiment(),
            Err(trouble) => Err(trouble),
        }
    }

    /// Another process may have been faster: then it is there now.
    fn create_experiment(&self) -> Result<String, Trouble> {
        match self.post("experiments/create", &json!({ "name": self.experiment })) {
            Err(Trouble::Never { cause }) if cause.contains("RESOURCE_ALREADY_EXISTS") => {
                Err(Trouble::Later { cause, after: None })
            }
            answer => text_at(&answer?, "/experiment_id"),
        }
    }

    /// A new run, under its study's where it has one. The time is in seconds.
    pub(crate) fn create_run(
        &self,
        experiment: &str,
        name: &str,
        parent: Option<&str>,
        time: f64,
    ) -> Result<String, Trouble> {
        let mut tags = vec![json!({ "key": "mlflow.source.name", "value": "plimsoll" })];
        tags.extend(parent.map(|parent| json!({ "key": "mlflow.parentRunId", "value": parent })));
        let body = json!({
            "experiment_id": experiment, "run_name": name, "start_time": milliseconds(time), "tags": tags,
        });
        text_at(&self.post("runs/create", &body)?, "/run/info/run_id")
    }

    pub(crate) fn set_status(&self, id: &str, status: Status, end: Option<f64>) -> Result<(), Trouble> {
        let mut body = json!({ "run_id": id, "status": status.name() });
        if let Some(end) = end {
            body["end_time"] = milliseconds(end).into();
        }
        self.post("runs/update", &body).map(drop)
    }

    pub(crate) fn set_tag(&self, id: &str, key: &str, value: &str) -> Result<(), Trouble> {
        self.post("runs/set-tag", &json!({ "run_id": id, "key": key, "value": batch::value(value) })).map(drop)
    }

    /// A parameter that is there with another value, as after a resume with other settings, stays as it was.
    pub(crate) fn log_params(&self, id: &str, params: &[(String, String)]) -> Result<(), Trouble> {
        let all: Vec<Value> =
            params.iter().map(|(key, value)| json!({ "key": batch::key(key), "value": batch::value(value) })).collect();
        for some in all.chunks(MOST_PARAMS) {
            match self.post("runs/log-batch", &json!({ "run_id": id, "params": some })) {
                Err(Trouble::Never { cause }) if cause.contains(TAKEN) => self.log_one_by_one(id, some)?,
                answer => drop(answer?),
            }
        }
        Ok(())
    }

    fn log_one_by_one(&self, id: &str, params: &[Value]) -> Result<(), Trouble> {
        for param in params {
            let body = json!({ "run_id": id, "key": param["key"], "value": param["value"] });
            match self.post("runs/log-parameter", &body) {
                Err(Trouble::Never { cause }) if cause.contains(TAKEN) => {}
                answer => drop(answer?),
            }
        }
        Ok(())
    }

    pub(crate) fn log_metrics(&self, id: &str, metrics: &[Metric]) -> Result<(), Trouble> {
        let all: Vec<Value> = metrics.iter().map(metric).collect();
        for some in all.chunks(MOST_METRICS) {
            self.post("runs/log-batch", &json!({ "run_id": id, "metrics": some }))?;
        }
        Ok(())
    }
}

/// A study's side of it: its own run, under which the runs of its trials stand.
impl Client {
    /// For a study: errors are words, as nobody tries again for it.
    pub fn connect(settings: &Mlflow) -> Result<Client, crate::TrackError> {
        Client::new(settings).map_err(refused)
    }

    /// A run to nest others under, by `Mlflow::parent`.
    pub fn start_study(&self, name: &str, time: f64) -> Result<String, crate::TrackError> {
        let made = self.experiment().and_then(|experiment| self.create_run(&experiment, name, None, time));
        made.map_err(|trouble| refused(trouble.cause()))
    }

    /// A trial that never became a training, as it fits nowhere: parameters, `oom_error`, FAILED.
    pub fn record_infeasible(
        &self,
        parent: &str,
        name: &str,
        params: &[(String, String)],
        time: f64,
    ) -> Result<(), crate::TrackError> {
        let record = || {
            let id = self.create_run(&self.experiment()?, name, Some(parent), time)?;
            self.log_params(&id, params)?;
            self.log_params(&id, &[("oom_error".into(), "True".into())])?;
            self.set_status(&id, Status::Failed, Some(time))
        };
        record().map_err(|trouble| refused(trouble.cause()))
    }

    pub fn end_study(&self, id: &str, status: Status, time: f64) -> Result<(), crate::TrackError> {
        self.set_status(id, status, Some(time)).map_err(|trouble| refused(trouble.cause()))
    }
}

fn refused(cause: impl Into<String>) -> crate::TrackError {
    crate::TrackError::Refused { tracker: "mlflow".into(), cause: cause.into() }
}

fn metric(metric: &Metric) -> Value {
    // JSON has no NaN and no infinities; MLflow takes their names.
    let value = match metric.value {
        x if x.is_finite() => json!(x),
        x if x.is_nan() => json!("NaN"),
        x if x > 0.0 => json!("Infinity"),
        _ => json!("-Infinity"),
    };
    json!({ "key": name(metric), "value": value, "timestamp": milliseconds(metric.time), "step": metric.step })
}

/// `train_loss`; what MLflow's page shows under "system metrics" begins with `system/`.
fn name(metric: &Metric) -> String {
    match metric.group {
        "memory" | "system" => format!("system/{}", metric.name),
        "speed" => metric.name.into(),
        group => format!("{group}_{}", metric.name),
    }
}

fn milliseconds(seconds: f64) -> i64 {
    (seconds * 1e3) as i64
}

fn text_at(answer: &Value, pointer: &str) -> Result<String, Trouble> {
    let text = answer.pointer(pointer).and_then(Value::as_str).map(String::from);
    text.ok_or_else(|| Trouble::Never { cause: format!("its answer has no {pointer}") })
}

/// For a query: everything but letters, digits and a few signs by its bytes.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}
