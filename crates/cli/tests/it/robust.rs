//! What happens to a run must not happen to its result: kills at any moment, a full disk, damaged or foreign files.

use crate::common::Desk;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MODEL: &str = "model/model.safetensors";
/// `tools/attack --long` takes a thousand lives.
const KILLS: usize = 8;

/// Moments from a printed seed; PLIMSOLL_TEST_SEED repeats them.
fn seed() -> u64 {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = std::env::var("PLIMSOLL_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(clock);
    println!("PLIMSOLL_TEST_SEED={seed}");
    seed
}

#[test]
fn killed_at_random_moments_a_run_ends_with_the_same_bits() {
    let desk = Desk::new();
    let train = ["train", "series.toml", "--set", "train.epochs=60", "--set", "train.checkpoint.every=3"];
    let whole = std::time::Instant::now();
    desk.json(&[&train[..], &["--out", "whole", "--json"]].concat());
    let whole = whole.elapsed();
    let mut state = seed() | 1;
    let mut kills = 0;
    // Each life lasts a random part of what is needed to get several of them into one run.
    while kills < KILLS {
        let mut child = desk
            .command(&[&train[..], &["--out", "torn", "--resume"]].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let part = (state >> 40) as f64 / (1u64 << 24) as f64;
        std::thread::sleep(Duration::from_secs_f64(whole.as_secs_f64() * 0.25 * part));
        if child.try_wait().unwrap().is_some() {
            // It finished before the kill: start another run to kill.
            assert!(same_model(&desk.path("torn"), &desk.path("whole")), "bits differ after {kills} kills");
            fs::remove_dir_all(desk.path("torn")).unwrap();
            continue;
        }
        // SIGKILL: nothing in the process can react.
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    let outcome = desk.json(&[&train[..], &["--out", "torn", "--resume", "--json"]].concat());
    assert_eq!(outcome["end"], "completed");
    assert!(same_model(&desk.path("torn"), &desk.path("whole")), "bits differ");
    let leftovers = fs::read_dir(desk.path("torn").join("checkpoints")).unwrap();
    let hidden = leftovers.filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with('.')).count();
    assert_eq!(hidden, 0, "drafts were left behind");
}

fn same_model(a: &Path, b: &Path) -> bool {
    fs::read(a.join(MODEL)).unwrap() == fs::read(b.join(MODEL)).unwrap()
}

/// A limit on the size of files stands in for a full disk: writes fail in the middle of a checkpoint.
#[test]
fn a_full_disk_leaves_the_previous_checkpoint_valid() {
    let desk = Desk::new();
    desk.json(&["train", "series.toml", "--out", "run", "--set", "train.steps=5", "--json"]);
    let before = fs::read(desk.path("run/checkpoints/step-5/state.safetensors")).unwrap();
    fs::remove_dir_all(desk.path("run/model")).unwrap();
    // The run's recipe with more steps, so that there is something to write.
    let recipe = fs::read_to_string(desk.path("run/recipe.toml")).unwrap();
    assert!(recipe.contains("steps = 5"));
    desk.json(&["train", "series.toml", "--out", "more", "--set", "train.steps=10", "--json"]);
    fs::remove_dir_all(desk.path("more/checkpoints/step-10")).unwrap();
    let good = fs::read(desk.path("more/checkpoints/step-5/state.safetensors")).unwrap();
    assert_eq!(good, before, "five steps are five steps");
    let limit = good.len() / 1024 / 2;
    let script = format!(
        "trap '' XFSZ; ulimit -f {limit}; exec {} train more/recipe.toml --out more --resume",
        env!("CARGO_BIN_EXE_plimsoll")
    );
    let output = std::process::Command::new("bash").args(["-c", &script]).current_dir(desk.path("")).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("step 5 is intact"), "{stderr}");
    assert_eq!(fs::read(desk.path("more/checkpoints/step-5/state.safetensors")).unwrap(), good);
    assert!(!desk.path("more/checkpoints/step-10").exists());
    let outcome = desk.json(&["train", "more/recipe.toml", "--out", "more", "--resume", "--json"]);
    assert_eq!(outcome["steps"], 10);
}

#[test]
fn damaged_and_foreign_checkpoints_are_refused_with_the_reason() {
    let desk = Desk::new();
    desk.json(&["train", "series.toml", "--out", "run", "--set", "train.steps=5", "--json"]);
    let file = desk.path("run/checkpoints/step-5/state.safetensors");
    let whole = fs::read(&file).unwrap();
    let resume = ["train", "run/recipe.toml", "--out", "run", "--resume"];
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    desk.run(&resume).must(2, &["state.safetensors", "not a whole safetensors file"]);
    desk.json(&["train", "text.toml", "--out", "text", "--set", "train.steps=2", "--json"]);
    fs::copy(desk.path("text/checkpoints/step-2/state.safetensors"), &file).unwrap();
    desk.run(&resume).must(2, &["does not fit this recipe", "it has no"]);
    let state = desk.path("run/checkpoints/step-5/state.json");
    fs::write(&file, &whole).unwrap();
    let text = fs::read_to_string(&state).unwrap();
    fs::write(&state, &text[..text.len() / 2]).unwrap();
    desk.run(&resume).must(2, &["damaged", "step-5"]);
    fs::write(&state, text).unwrap();
    desk.json(&["train", "run/recipe.toml", "--out", "run", "--resume", "--json"]);
}

#[test]
fn a_loss_that_is_not_a_number_stops_the_run_with_advice() {
    let desk = Desk::new();
    let flags = ["--set", "train.optimizer.lr=999", "--set", "train.optimizer.name=sgd", "--set", "train.clip_norm=0"];
    let answer =
        desk.run(&[&["train", "series.toml", "--out", "run", "--set", "train.epochs=20"][..], &flags].concat());
    answer.must(1, &["diverged at step", "hint", "lr"]);
}

/// A run that ended because evaluations got no better stays ended when it is resumed.
#[test]
fn an_early_stop_is_part_of_the_state() {
    let desk = Desk::new();
    let flags = [
        "--set",
        "train.evaluate={every=1,patience=1}",
        "--set",
        "train.optimizer.lr=0.05",
        "--set",
        "train.epochs=40",
    ];
    let train = [&["train", "series.toml", "--out", "run", "--json"][..], &flags].concat();
    let first = desk.json(&train);
    assert_eq!(first["end"], "stopped");
    let model = fs::read(desk.path("run").join(MODEL)).unwrap();
    let again = desk.json(&[&train[..], &["--resume"]].concat());
    assert_eq!((&again["end"], &again["steps"]), (&first["end"], &first["steps"]));
    assert!(fs::read(desk.path("run").join(MODEL)).unwrap() == model, "bits differ");
}
