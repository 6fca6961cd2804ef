//! Runs that stop, go on, go on longer, elsewhere and with less memory.

use crate::common::Desk;
use std::fs;
use std::path::Path;

fn model(run: &Path) -> Vec<u8> {
    fs::read(run.join("model/model.safetensors")).unwrap()
}

fn rates(run: &Path) -> Vec<f64> {
    let events = fs::read_to_string(run.join("events.jsonl")).unwrap();
    let steps = events.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    steps.filter(|event| event["norm"].is_number()).filter_map(|event| event["lr"].as_f64()).collect()
}

const SCHEDULE: [&str; 4] = ["--set", "train.schedule.name=cosine", "--set", "train.evaluate.patience=2"];

/// Trying ten steps of a run and going on gives the run that was never stopped, bit for bit.
#[test]
fn a_run_that_was_stopped_goes_on_as_if_it_had_not_been() {
    let desk = Desk::new();
    let train = |more: &[&str]| desk.run(&[&["train", "series.toml"], &SCHEDULE[..], more].concat());
    train(&["--out", "whole"]).must(0, &[]);
    let first = train(&["--out", "parts", "--steps", "7"]);
    first.must(0, &[]);
    assert!(first.stdout.contains("stopped after step 7 of") && first.stdout.contains("--resume"), "{}", first.stdout);
    assert!(desk.path("parts/model/model.safetensors").is_file(), "what was trained so far can be used");
    // Past an evaluation, and in the middle of an epoch.
    train(&["--out", "parts", "--resume", "--steps", "30"]).must(0, &["resumed at step 7"]);
    train(&["--out", "parts", "--resume"]).must(0, &["resumed at step 30"]);
    assert_eq!(model(&desk.path("whole")), model(&desk.path("parts")));
    assert_eq!(rates(&desk.path("whole")), rates(&desk.path("parts")));
    desk.run(&["train", "series.toml", "--steps", "0"]).must(2, &["--steps"]);
}

#[test]
fn a_finished_run_can_have_more_epochs() {
    let desk = Desk::new();
    desk.run(&["train", "series.toml", "--out", "run"]).must(0, &[]);
    let again = desk.json(&["train", "series.toml", "--out", "run", "--resume", "--json"]);
    let steps = again["steps"].as_u64().unwrap();
    let longer = ["train", "series.toml", "--out", "run", "--resume", "--set", "train.epochs=3"];
    let answer = desk.run(&longer);
    answer.must(0, &["now has 3 epochs", &format!("resumed at step {steps}")]);
    assert!(answer.stdout.contains(&format!("after the {steps} before")), "{}", answer.stdout);
    // The stored recipe has the new length: the hinted command goes on with it.
    let stored = desk.json(&["train", "run/recipe.toml", "--out", "run", "--resume", "--json"]);
    assert_eq!(stored["steps"].as_u64().unwrap(), steps / 2 * 3);
    let other = [&longer[..5], &["--set", "train.optimizer.lr=1e-2"]].concat();
    desk.run(&other).must(2, &["was started with another recipe"]);
    // With a constant rate the epochs that were added are those of a run that had them from the start.
    desk.run(&["train", "series.toml", "--out", "long", "--set", "train.epochs=3"]).must(0, &[]);
    assert_eq!(model(&desk.path("run")), model(&desk.path("long")));
}

#[test]
fn memory_may_change_when_a_run_goes_on() {
    let desk = Desk::new();
    desk.run(&["train", "series.toml", "--out", "run", "--steps", "5"]).must(0, &[]);
    let resume = |memory: &str| desk.run(&["train", "series.toml", "--out", "run", "--resume", "--memory", memory]);
    resume("1MiB").must(3, &["does not fit"]);
    resume("1GiB").must(0, &["another budget than before", "resumed at step 5"]);
}

#[test]
fn a_run_is_used_and_resumed_from_anywhere() {
    let desk = Desk::new();
    let rows: String = (0..300).map(|row| format!("{},{}\n", (row as f64 * 0.4).sin(), row / 3 % 2)).collect();
    desk.write("data/own.csv", &format!("a,label\n{rows}"));
    let recipe = "[model]\nfamily = \"hybrid-cnn-lstm\"\nfeatures = 1\nwindow = 4\nchannels = [4]\nhidden = 4\nheads = 2\n\
                  classes = 2\n[data]\ntrain = \"PATH\"\nlabel = \"label\"\n[train]\neffective_batch = 16\nepochs = 2\n";
    // Beside the recipe, and in the working directory.
    desk.write("data/beside.toml", &recipe.replace("PATH", "own.csv"));
    desk.write("recipes/here.toml", &recipe.replace("PATH", "data/own.csv"));
    for (file, run) in [("data/beside.toml", "beside"), ("recipes/here.toml", "here")] {
        desk.run(&["train", file, "--out", run, "--steps", "3"]).must(0, &[]);
        let elsewhere = tempfile::tempdir().unwrap();
        let run = desk.path(run).display().to_string();
        desk.run_in(elsewhere.path(), &["eval", &run]).must(0, &[]);
        let stored = format!("{run}/recipe.toml");
        desk.run_in(elsewhere.path(), &["train", &stored, "--out", &run, "--resume"]).must(0, &["resumed at step 3"]);
    }
}

#[test]
fn random_weights_of_a_preset_are_announced() {
    let desk = Desk::new();
    let recipe = "[model]\npreset = \"bert-tiny\"\nnum_labels = 2\n[data]\nsource = \"synthetic:sentiment\"\nsamples = 60\n\
                  max_length = 16\n[train]\neffective_batch = 8\nepochs = 1\n";
    desk.write("tiny.toml", recipe);
    let said = ["the weights are random", "preset bert-tiny gives sizes only", "model.checkpoint"];
    desk.run(&["plan", "tiny.toml"]).must(0, &said);
    desk.run(&["train", "tiny.toml", "--steps", "1", "--out", "run"]).must(0, &said);
    let resumed = desk.run(&["train", "tiny.toml", "--steps", "2", "--out", "run", "--resume"]);
    assert!(!resumed.stderr.contains("the weights are random"), "{}", resumed.stderr);
}

/// Whatever is in a file, the terminal gets text.
#[test]
fn no_escape_of_a_file_reaches_the_terminal() {
    let desk = Desk::new();
    let nasty = "\x1b]0;PWNED\x07";
    let rows: String = (0..200).map(|row| format!("{row},{}{nasty}\n", ["a", "b"][row % 2])).collect();
    desk.write("own.csv", &format!("x{nasty},label\n{rows}"));
    let recipe = "[model]\nfamily = \"hybrid-cnn-lstm\"\nfeatures = 1\nwindow = 4\nchannels = [4]\nhidden = 4\nheads = 2\n\
                  classes = 2\n[data]\ntrain = \"own.csv\"\nlabel = \"LABEL\"\n[train]\neffective_batch = 16\nepochs = 1\n";
    desk.write("own.toml", &recipe.replace("LABEL", "label"));
    desk.write("wrong.toml", &recipe.replace("LABEL", "labels"));
    for flags in [&["train", "own.toml", "--steps", "1"][..], &["train", "wrong.toml"]] {
        let answer = desk.run(flags);
        assert!(answer.stderr.contains("PWNED") && !answer.stderr.contains('\x1b'), "{:?}", answer.stderr);
    }
}
