//! `plimsoll train` and what is done with a run, from the outside.

use crate::common::Desk;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn a_run_trains_and_is_used() {
    let desk = Desk::new();
    let outcome = desk.json(&["train", "series.toml", "--json"]);
    assert_eq!(outcome["end"], "completed");
    assert!(outcome["steps"].as_u64().unwrap() > 10);
    assert!(outcome["final"]["loss"].is_number() && outcome["best"]["accuracy"].is_number());
    let [planned, measured] = ["planned_peak_bytes", "measured_peak_bytes"].map(|key| outcome[key].as_u64().unwrap());
    assert!(measured <= planned && planned - measured <= 24 << 20, "{measured} of {planned}");
    assert_eq!(outcome["run"], "runs/series-1");
    let run = desk.path("runs/series-1");
    for file in ["recipe.toml", "plan.json", "events.jsonl", "model/model.safetensors", "model/config.json"] {
        assert!(run.join(file).is_file(), "no {file}");
    }
    assert!(fs::read_dir(run.join("checkpoints")).unwrap().count() >= 1);

    let scores = desk.json(&["eval", "runs/series-1", "--json"]);
    assert_eq!(scores["loss"], outcome["best"]["loss"], "the model is that of the best evaluation");
    let mut rows = String::from("channel-0,channel-1,channel-2\n");
    (0..20).for_each(|i| rows += &format!("{}.5,0.1,-{i}\n", i % 3));
    desk.write("rows.csv", &rows);
    let answer = desk.run(&["predict", "runs/series-1", "rows.csv"]);
    answer.must(0, &[]);
    assert_eq!(answer.stdout.lines().count(), 20 - 12 + 1);
    let first: Value = serde_json::from_str(answer.stdout.lines().next().unwrap()).unwrap();
    let sum: f64 = first["probabilities"].as_array().unwrap().iter().map(|p| p.as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-6 && first["label"].is_string() && first["row"] == 11, "{first}");
    desk.write("short.csv", "channel-0,channel-1,channel-2\n1,2,3\n");
    desk.run(&["predict", "runs/series-1", "short.csv"]).must(2, &["short.csv", "hint:"]);
    desk.run(&["generate", "runs/series-1", "--prompt", "a"]).must(2, &["plimsoll predict"]);
    desk.run(&["eval", "runs"]).must(2, &["is not a run", "hint:"]);
    desk.run(&["train", "series.toml", "--out", "runs/series-1"]).must(2, &["already holds a run", "--resume"]);
}

#[test]
fn a_language_model_writes_the_same_text_for_the_same_seed() {
    let desk = Desk::new();
    let answer = desk.run(&["train", "text.toml", "--steps", "4"]);
    answer.must(0, &["ready to train", "planned peak", "sample:"]);
    assert!(answer.stdout.contains("4 steps") && answer.stdout.contains("measured"), "{}", answer.stdout);
    let generate = |seed: &str| {
        let flags =
            ["generate", "runs/text-1", "--prompt", "the", "--tokens", "6", "--temperature", "1", "--seed", seed];
        let answer = desk.run(&flags);
        answer.must(0, &[]);
        answer.stdout
    };
    assert!(generate("5").starts_with("the"));
    assert_eq!(generate("5"), generate("5"));
    desk.run(&["predict", "runs/text-1", "text.toml"]).must(2, &["generate"]);
}

#[test]
fn an_interrupted_run_goes_on_to_the_same_bits() {
    let desk = Desk::new();
    desk.json(&["train", "series.toml", "--out", "whole", "--set", "train.epochs=40", "--json"]);
    let flags = ["train", "series.toml", "--out", "torn", "--set", "train.epochs=40"];
    let child = desk.command(&flags).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let torn = desk.path("torn");
    wait_for_steps(&torn, 8);
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("interrupted at step") && stderr.contains("--resume"), "{stderr}");

    // A crash may have torn the last line of events.
    let mut log = fs::OpenOptions::new().append(true).open(torn.join("events.jsonl")).unwrap();
    log.write_all(b"{\"event\":\"st").unwrap();
    let outcome = desk.json(&["train", "torn/recipe.toml", "--out", "torn", "--resume", "--json"]);
    assert_eq!(outcome["end"], "completed");
    let text = fs::read_to_string(torn.join("events.jsonl")).unwrap();
    assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "a torn line stayed");
    assert!(events(&torn).iter().any(|event| event["event"] == "resumed"));
    let model = "model/model.safetensors";
    assert!(fs::read(torn.join(model)).unwrap() == fs::read(desk.path("whole").join(model)).unwrap(), "bits differ");
}

/// Events of a run, by line.
fn events(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("events.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn wait_for_steps(run: &Path, steps: usize) {
    let began = Instant::now();
    while events(run).iter().filter(|event| event["event"] == "step").count() < steps {
        assert!(began.elapsed() < Duration::from_secs(30), "the run does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn resuming_needs_a_run_of_the_same_recipe() {
    let desk = Desk::new();
    desk.run(&["train", "series.toml", "--resume"]).must(2, &["no run of series", "hint:"]);
    desk.json(&["train", "series.toml", "--steps", "3", "--json"]);
    let more = desk.json(&["train", "series.toml", "--steps", "3", "--resume", "--json"]);
    assert_eq!((&more["steps"], &more["run"]), (&3.into(), &"runs/series-1".into()));
    let other = ["train", "series.toml", "--resume", "--set", "train.seed=9"];
    desk.run(&other).must(2, &["another recipe", "hint:"]);
}

#[test]
fn a_stored_plan_can_be_used_again_but_not_damaged() {
    let desk = Desk::new();
    desk.json(&["train", "series.toml", "--steps", "2", "--json"]);
    let again = ["train", "series.toml", "--steps", "2", "--plan", "runs/series-1/plan.json", "--json"];
    assert_eq!(desk.json(&again)["run"], "runs/series-2");
    let mut larger: serde_json::Value =
        serde_json::from_slice(&fs::read(desk.path("runs/series-1/plan.json")).unwrap()).unwrap();
    larger["layout"]["arena_bytes"] = (1u64 << 50).into();
    desk.write("larger.json", &larger.to_string());
    desk.run(&["train", "series.toml", "--steps", "2", "--plan", "larger.json"])
        .must(3, &["larger.json: the plan needs 1 PiB", "hint:"]);
    desk.write("plan.json", "{\"version\": 1}");
    desk.run(&["train", "series.toml", "--plan", "plan.json"]).must(2, &["plan.json: not a plan", "hint:"]);
}

#[test]
fn missing_data_is_bad_input() {
    let desk = Desk::new();
    let recipe = crate::common::SERIES
        .replace("source = \"synthetic:regimes\"\nsamples = 500", "train = \"gone.csv\"\nlabel = \"y\"");
    desk.write("file.toml", &recipe);
    desk.run(&["train", "file.toml"]).must(2, &["gone.csv", "hint:"]);
    assert!(!desk.path("runs").exists(), "nothing is written before the data was read");
    let plan = desk.json(&["plan", "file.toml", "--json"]);
    assert!(plan["fits"] == true && plan["steps_per_epoch"].is_null());
}

#[test]
fn bench_answers_with_the_fields_of_the_reference() {
    let desk = Desk::new();
    let flags = ["bench", "mu-sota-small", "--batch", "2", "--seq", "16", "--steps", "2", "--warmup", "1", "--profile"];
    let answer = desk.run(&flags);
    answer.must(0, &["GFLOP/s", "MatMul"]);
    let row = answer.json();
    for field in
        ["peer", "workload", "batch", "seq", "prec", "device", "recompute", "compile", "params", "ms", "ms_min"]
    {
        assert!(row.get(field).is_some(), "no {field}");
    }
    assert_eq!((&row["recompute"], &row["step_allocations"]), (&false.into(), &0.into()));
    assert!(row["arena_bytes"].as_u64() > row["resident_bytes"].as_u64());
    desk.run(&["bench", "hybrid", "--seq", "61"]).must(2, &["windows of 60 rows"]);
    desk.run(&["bench", "hybridd"]).must(2, &["hybrid-materialized"]);
}
