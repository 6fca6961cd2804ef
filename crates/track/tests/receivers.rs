//! Followers against receivers that are slow, fail, hang and come back. What a run wrote arrives, once each and in order.

mod receiver;

use plimsoll_runs::{Event, EventLog};
use plimsoll_track::{
    Environment, Exposed, FollowOptions, Mlflow, MlflowClient, MlflowStatus, Notify, OPENMETRICS_TYPE, Occasion,
    Params, ProgressEvery, RunFacts, RunState, Settings, Watch, deliveries, follow, openmetrics,
};
use receiver::{Answer, Receiver};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

struct Variables(BTreeMap<String, String>);

impl Environment for Variables {
    fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }
}

fn variables(pairs: &[(&str, &str)]) -> Variables {
    Variables(pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
}

fn event(line: &str) -> Event {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

fn started(steps: usize) -> Event {
    event(&format!(
        r#"{{"event":"started","version":"1","recipe":"r","recipe_hash":"h","device":"cpu","budget_bytes":1000,
        "planned_peak_bytes":900,"parameters":5,"effective_batch":8,"micro_batch":4,"accumulation":2,"precision":"f32",
        "recompute":"none","attention":"fused","family":"bert","epochs":3,"steps":{steps},"steps_per_epoch":3,
        "train_samples":24,"validation_samples":0,"best_accuracy":null,"best_loss":null}}"#
    ))
}

fn step(number: usize) -> Event {
    event(&format!(
        r#"{{"event":"step","step":{number},"epoch":0,"loss":{}.5,"norm":null,"lr":0.001,"ms":2.0,"samples_per_s":100.0,
        "stall_ms":0.0,"remaining_s":1.0,"planned_peak_bytes":900,"measured_peak_bytes":900}}"#,
        number
    ))
}

fn finished(steps: usize) -> Event {
    event(&format!(
        r#"{{"event":"finished","end":"completed","steps":{steps},"epochs":3,"final":null,"best":null,"planned_peak_bytes":900,
        "measured_peak_bytes":900,"host_peak_bytes":1,"samples_per_s":10.0,"seconds":2.0}}"#
    ))
}

fn failed(oom: bool) -> Event {
    event(&format!(r#"{{"event":"failed","step":2,"reason":"the device has no memory left","oom":{oom}}}"#))
}

fn write(run: &Path, events: impl IntoIterator<Item = Event>) {
    let mut log = EventLog::open(&run.join("events.jsonl")).unwrap();
    events.into_iter().for_each(|event| drop(log.write(event).unwrap()));
}

fn notify(url: &str) -> Settings {
    let targets = Notify::targets(Some(&["U".into()]), &variables(&[("U", url)])).unwrap();
    let notify = Notify { targets, occasions: Occasion::ALL.to_vec(), every: ProgressEvery::Never };
    Settings { notify: Some(notify), ..Settings::default() }
}

fn mlflow(uri: &str) -> Settings {
    let env = variables(&[("MLFLOW_TRACKING_TOKEN", "hush"), ("MLFLOW_TRACKING_URI", uri)]);
    Settings { mlflow: Mlflow::find(Some(uri), "cases", &env).unwrap(), every: Some(1), ..Settings::default() }
}

fn over() -> Watch {
    let watch = Watch::new();
    watch.end();
    watch
}

fn grace(seconds: u64) -> FollowOptions {
    FollowOptions { grace: Duration::from_secs(seconds), patience: Duration::ZERO }
}

/// What arrived at a webhook, by title.
fn titles(receiver: &Receiver) -> Vec<String> {
    receiver.bodies().iter().map(|body| body["title"].as_str().unwrap_or_default().to_string()).collect()
}

#[test]
fn a_receiver_that_fails_and_comes_back_gets_everything_once_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("mine-1");
    std::fs::create_dir(&run).unwrap();
    write(&run, [started(3), step(1), step(2), step(3), finished(3)]);
    let receiver = Receiver::start(vec![Answer::Status(503), Answer::Status(500), Answer::Cut], Answer::Status(204));
    let told = follow(&run, &notify(&receiver.url("json", "/hook/token")), &over(), grace(20)).unwrap();
    assert!(told.iter().all(|delivery| delivery.trouble.is_empty() && delivery.left_bytes == 0), "{told:?}");
    let accepted = &titles(&receiver)[3..];
    assert_eq!(accepted, ["mine-1: started", "mine-1: finished"]);
}

#[test]
fn a_receiver_that_hangs_costs_its_grace_and_no_more_and_gets_the_rest_later() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), [started(3), step(1), finished(3)]);
    let hanging = Receiver::start(vec![], Answer::Hang);
    let began = Instant::now();
    let told = follow(dir.path(), &notify(&hanging.url("json", "/x")), &over(), grace(2)).unwrap();
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    assert!(told[0].trouble.contains("in time") && told[0].left_bytes > 0, "{told:?}");
    assert_eq!(deliveries(dir.path()), told, "what is left can be read from the folder alone");
    let back = Receiver::start(vec![], Answer::Status(200));
    let told = follow(dir.path(), &notify(&back.url("json", "/x")), &over(), grace(5)).unwrap();
    assert!(told[0].trouble.is_empty() && told[0].left_bytes == 0, "{told:?}");
    assert_eq!(back.bodies().len(), 2);
}

#[test]
fn a_refused_token_ends_the_tries_and_says_so_without_the_address() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), [started(3)]);
    let receiver = Receiver::start(vec![], Answer::Status(401));
    let began = Instant::now();
    let told = follow(dir.path(), &notify(&receiver.url("json", "/secret-token")), &over(), grace(20)).unwrap();
    assert!(told[0].trouble.contains("401") && began.elapsed() < Duration::from_secs(10), "{told:?}");
    for entry in std::fs::read_dir(dir.path().join("track")).unwrap().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap();
        assert!(!text.contains("secret-token"), "{:?} holds the address", entry.path());
    }
}

#[test]
fn one_that_hangs_holds_up_no_other() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), [started(3), finished(3)]);
    let (hanging, well) = (Receiver::start(vec![], Answer::Hang), Receiver::start(vec![], Answer::Status(200)));
    let urls = format!("{} {}", hanging.url("json", "/x"), well.url("json", "/y"));
    let (run, settings) = (dir.path().to_path_buf(), notify(&urls));
    let thread = std::thread::spawn(move || follow(&run, &settings, &over(), grace(4)));
    let until = Instant::now() + Duration::from_secs(3);
    while well.bodies().len() < 2 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(well.bodies().len(), 2, "the second was told while the first hung");
    let told = thread.join().unwrap().unwrap();
    assert_eq!(told.iter().filter(|delivery| delivery.trouble.is_empty()).count(), 1, "{told:?}");
}

#[test]
fn two_followers_of_one_run_are_one_too_many() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), [started(3)]);
    let hanging = Receiver::start(vec![], Answer::Hang);
    let (run, settings) = (dir.path().to_path_buf(), notify(&hanging.url("json", "/x")));
    let first = std::thread::spawn(move || follow(&run, &settings, &over(), grace(3)));
    std::thread::sleep(Duration::from_millis(500));
    let second = follow(dir.path(), &notify(&hanging.url("json", "/x")), &over(), grace(3));
    assert!(second.unwrap_err().to_string().contains("another process"));
    // One with patience gets its turn.
    let patient = FollowOptions { patience: Duration::from_secs(20), ..grace(1) };
    follow(dir.path(), &notify(&hanging.url("json", "/x")), &over(), patient).unwrap();
    first.join().unwrap().unwrap();
}

#[test]
fn events_are_told_while_they_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(vec![], Answer::Status(200));
    let (run, settings, watch) = (dir.path().to_path_buf(), notify(&receiver.url("json", "/x")), Watch::new());
    let following = watch.clone();
    let thread = std::thread::spawn(move || follow(&run, &settings, &following, grace(5)));
    write(dir.path(), [started(3)]);
    let until = Instant::now() + Duration::from_secs(5);
    while receiver.bodies().is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(receiver.bodies().len(), 1, "the start is told before the end");
    write(dir.path(), [finished(3)]);
    watch.end();
    thread.join().unwrap().unwrap();
    assert_eq!(receiver.bodies().len(), 2);
}

#[test]
fn a_run_that_was_killed_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), [started(3), step(1)]);
    let receiver = Receiver::start(vec![], Answer::Status(200));
    follow(dir.path(), &notify(&receiver.url("json", "/x")), &over(), grace(5)).unwrap();
    let last = receiver.bodies().pop().unwrap();
    assert!(last["message"].as_str().unwrap().contains("killed") && last["type"] == "failure", "{last}");
}

/// An MLflow that remembers what it was asked; real ones are asked by tools/track/check.
fn answers_of_mlflow(path: &str) -> Value {
    match path.rsplit('/').next().and_then(|end| end.split('?').next()).unwrap_or_default() {
        "get-by-name" => serde_json::json!({ "experiment": { "experiment_id": "7" } }),
        "create" => serde_json::json!({ "run": { "info": { "run_id": "abc" } } }),
        _ => serde_json::json!({}),
    }
}

#[test]
fn mlflow_gets_a_run_with_parameters_every_step_and_its_end() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), [started(400)].into_iter().chain((1..=400).map(step)).chain([finished(400)]));
    let server = Receiver::start(vec![Answer::Status(502)], Answer::Json(answers_of_mlflow));
    let told = follow(dir.path(), &mlflow(&server.url("http", "")), &over(), grace(30)).unwrap();
    assert!(told[0].trouble.is_empty(), "{told:?}");
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.headers.contains("Bearer hush")));
    let bodies: Vec<&Value> = requests.iter().map(|request| &request.body).collect();
    let metrics: Vec<&Value> =
        bodies.iter().flat_map(|body| body["metrics"].as_array().into_iter().flatten()).collect();
    let losses: Vec<f64> =
        metrics.iter().filter(|m| m["key"] == "train_loss").map(|m| m["value"].as_f64().unwrap()).collect();
    assert_eq!(losses, (1..=400).map(|n| n as f64 + 0.5).collect::<Vec<_>>());
    assert!(metrics.iter().any(|m| m["key"] == "train_gradient_norm" && m["value"] == "NaN"));
    assert!(bodies.iter().all(|body| body["metrics"].as_array().is_none_or(|some| some.len() <= 1000)));
    let params = bodies.iter().flat_map(|body| body["params"].as_array().into_iter().flatten());
    assert!(params.into_iter().any(|p| p["key"] == "plan.micro_batch" && p["value"] == "4"));
    let statuses: Vec<&str> = bodies.iter().filter_map(|body| body["status"].as_str()).collect();
    assert_eq!(statuses, ["RUNNING", "FINISHED"]);
}

#[test]
fn a_run_without_memory_is_failed_with_the_word_for_it_and_a_resumed_one_is_the_same_run() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), [started(3), failed(true)]);
    let server = Receiver::start(vec![], Answer::Json(answers_of_mlflow));
    follow(dir.path(), &mlflow(&server.url("http", "")), &over(), grace(10)).unwrap();
    let has = |key: &str, value: &str| {
        let bodies = server.bodies();
        bodies.iter().any(|body| {
            body["status"] == value
                || body["params"].as_array().into_iter().flatten().any(|p| p["key"] == key && p["value"] == value)
        })
    };
    assert!(has("oom_error", "True") && has("", "FAILED"));
    write(dir.path(), [started(3), finished(3)]);
    follow(dir.path(), &mlflow(&server.url("http", "")), &over(), grace(10)).unwrap();
    let made = server.requests().iter().filter(|request| request.path.ends_with("runs/create")).count();
    assert_eq!(made, 1);
    assert!(has("", "FINISHED"));
}

#[test]
fn trials_stand_under_their_study_and_those_that_fit_nowhere_are_failed() {
    let server = Receiver::start(vec![], Answer::Json(answers_of_mlflow));
    let settings = mlflow(&server.url("http", "")).mlflow.unwrap();
    let client = MlflowClient::connect(&settings).unwrap();
    let study = client.start_study("search", 5.0).unwrap();
    let params: Params = vec![("train.batch_size".into(), "64".into())];
    client.record_infeasible(&study, "trial-3", &params, 6.0).unwrap();
    client.end_study(&study, MlflowStatus::Finished, 7.0).unwrap();
    let bodies = server.bodies();
    let tags: Vec<&Value> = bodies.iter().flat_map(|body| body["tags"].as_array().into_iter().flatten()).collect();
    assert!(tags.iter().any(|tag| tag["key"] == "mlflow.parentRunId" && tag["value"] == "abc"), "{tags:?}");
    let statuses: Vec<&str> = bodies.iter().filter_map(|body| body["status"].as_str()).collect();
    assert_eq!(statuses, ["FAILED", "FINISHED"]);
    let nobody = MlflowClient::connect(&mlflow("http://127.0.0.1:9").mlflow.unwrap()).unwrap();
    assert!(nobody.start_study("search", 5.0).unwrap_err().to_string().contains("no connection"));
}

#[test]
fn runs_are_exposed_as_openmetrics() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), [started(3), step(1), step(2), finished(2)]);
    let facts = RunFacts::read(dir.path()).unwrap();
    assert_eq!(facts.state, RunState::Completed);
    let text = openmetrics(&[Exposed { run: "r", facts: &facts, components: &[("weights".into(), 5)] }], &[]);
    assert!(text.contains("component=\"weights\"} 5.0") && OPENMETRICS_TYPE.contains("openmetrics-text"), "{text}");
}

#[test]
fn redirects_are_not_followed_for_a_token_is_for_one_host() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), [started(3)]);
    let (other, first) = (Receiver::start(vec![], Answer::Status(200)), Receiver::start(vec![], Answer::Redirect));
    first.redirect_to(&other.url("http", "/stolen"));
    let told = follow(dir.path(), &notify(&first.url("json", "/x")), &over(), grace(3)).unwrap();
    assert!(told[0].trouble.contains("30"), "{told:?}");
    assert!(other.requests().is_empty());
}
