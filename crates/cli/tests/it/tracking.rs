//! Trackers, notifications, events and the usual flags, from the outside.

use crate::common::{Answer, Desk};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Takes every message, or takes none and says nothing.
fn webhook(answers: bool) -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("json://{}/SECRET-TOKEN", listener.local_addr().unwrap());
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let shared = bodies.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let shared = shared.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while let Some(body) = read_body(&mut reader) {
                    shared.lock().unwrap().push(body);
                    if !answers {
                        std::thread::sleep(Duration::from_secs(60));
                    }
                    let _ = stream.write_all(b"HTTP/1.1 204 X\r\ncontent-length: 0\r\n\r\n");
                }
            });
        }
    });
    (url, bodies)
}

fn read_body(reader: &mut impl BufRead) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(number) = line.to_lowercase().strip_prefix("content-length:") {
            length = number.trim().parse().ok()?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

fn titles(bodies: &Mutex<Vec<Value>>) -> Vec<String> {
    bodies.lock().unwrap().iter().map(|body| body["title"].as_str().unwrap().to_string()).collect()
}

fn events(run: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("events.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == kind).collect()
}

/// Every file of a folder that holds these words.
fn files_with(folder: &Path, words: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_with(&path, words, found);
        } else if String::from_utf8_lossy(&std::fs::read(&path).unwrap()).contains(words) {
            found.push(path.display().to_string());
        }
    }
}

#[test]
fn events_have_time_epochs_speeds_and_memory_and_the_log_says_so() {
    let desk = Desk::new();
    let answer =
        desk.run(&["train", "text.toml", "--epochs", "2", "--batch-size", "4", "--gradient-accumulation-steps", "2"]);
    answer.must(
        0,
        &[
            "Starting epoch 1/2",
            "Starting epoch 2/2",
            "effective batch size 8",
            "precision f32",
            "memory of the machine",
        ],
    );
    assert!(answer.stdout.contains("success: no out-of-memory errors"), "{}", answer.stdout);
    let events = events(&desk.path("runs/text-1"));
    let times: Vec<f64> = events.iter().map(|event| event["time"].as_f64().unwrap()).collect();
    assert!(times.is_sorted() && times[0] > 1.7e9, "{times:?}");
    let steps = of_kind(&events, "step");
    assert!(steps.iter().all(|step| step["tokens_per_s"].as_f64().unwrap() > step["samples_per_s"].as_f64().unwrap()));
    assert!(steps.last().unwrap()["data_samples_per_s"].as_f64().unwrap() > 0.0);
    let device = of_kind(&events, "device")[0];
    for key in ["used_bytes", "total_bytes", "host_used_bytes", "process_bytes", "disk_free_bytes"] {
        assert!(device[key].as_u64().unwrap() > 0, "{device}");
    }
    assert!(device["utilization"].is_null(), "a CPU has no GPU's load: {device}");
    let begun: Vec<&Value> = of_kind(&events, "epoch").into_iter().map(|event| &event["epoch"]).collect();
    assert_eq!(begun, [0, 1]);
}

#[test]
fn variables_stand_in_a_file_too_and_those_of_the_environment_go_first() {
    let desk = Desk::new();
    let (url, bodies) = webhook(true);
    std::fs::write(desk.path(".env"), format!("DISCORD_WEBHOOK=\nexport APPRISE_URLS=\"{url}\"\n")).unwrap();
    let notify = |change: &dyn Fn(&mut std::process::Command)| {
        let mut command = desk.command(&["notify", "--test", "--json"]);
        change(command.env_remove("APPRISE_URLS").env_remove("DISCORD_WEBHOOK"));
        command.output().unwrap()
    };
    assert!(notify(&|_| ()).status.success());
    assert_eq!(bodies.lock().unwrap().len(), 1);
    let by_name = |command: &mut std::process::Command| _ = command.env("PLIMSOLL_ENV_FILE", "elsewhere.env");
    for other in [&by_name as &dyn Fn(&mut std::process::Command), &|command| _ = command.env("APPRISE_URLS", "")] {
        let answer = notify(other);
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert!(answer.status.code() == Some(2) && said.contains("nobody to notify"), "{said}");
    }
    std::fs::rename(desk.path(".env"), desk.path("elsewhere.env")).unwrap();
    assert!(notify(&by_name).status.success());
    assert_eq!(bodies.lock().unwrap().len(), 2);
}

#[test]
fn people_are_told_and_no_secret_is_left_anywhere() {
    let desk = Desk::new();
    let (url, bodies) = webhook(true);
    let mut command = desk.command(&["train", "series.toml", "--epochs", "3"]);
    let mut child = command.env("APPRISE_URLS", &url).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut arguments = String::new();
    while child.try_wait().unwrap().is_none() {
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            arguments += &std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let answer: Answer = child.wait_with_output().unwrap().into();
    answer.must(0, &[]);
    let titles = titles(&bodies);
    assert_eq!(titles[0], "series-1: started");
    assert_eq!(titles.last().unwrap(), "series-1: finished");
    assert_eq!(titles.iter().filter(|title| title.ends_with("goes on")).count(), 2, "{titles:?}");
    assert!(arguments.contains("follow") && !arguments.contains("SECRET-TOKEN"), "a process list shows the address");
    let mut found = Vec::new();
    files_with(&desk.path("runs"), "SECRET-TOKEN", &mut found);
    assert!(
        found.is_empty() && !answer.stderr.contains("SECRET-TOKEN") && !answer.stdout.contains("SECRET"),
        "{found:?}"
    );
}

#[test]
fn a_receiver_that_hangs_costs_no_step_and_the_rest_is_told_later() {
    let desk = Desk::new();
    let (hanging, _) = webhook(false);
    let train = |out: &str, url: Option<&str>| {
        let mut command = desk.command(&["train", "series.toml", "--out", out, "--epochs", "20", "--json"]);
        if let Some(url) = url {
            command.env("APPRISE_URLS", url);
        }
        let answer: Answer = command.output().unwrap().into();
        answer.must(0, &[]);
        answer
    };
    let (alone, beside) = (train("alone", None), train("beside", Some(&hanging)));
    assert!(
        beside.stderr.contains("was not told everything") && beside.stderr.contains("plimsoll follow beside"),
        "{}",
        beside.stderr
    );
    assert_eq!(alone.json()["final"], beside.json()["final"], "the same is learned");
    // The middle of the steps' times: what a busy machine does to single steps is not the receiver's doing.
    let median = |run: &str| {
        let events = events(&desk.path(run));
        let mut times: Vec<f64> = of_kind(&events, "step").iter().map(|step| step["ms"].as_f64().unwrap()).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    assert!(median("beside") < 3.0 * median("alone") + 1.0, "{} ms beside {}", median("beside"), median("alone"));
    let (well, bodies) = webhook(true);
    let told: Answer =
        desk.command(&["follow", "beside", "--json"]).env("APPRISE_URLS", &well).output().unwrap().into();
    told.must(0, &[]);
    assert_eq!(told.json()[0]["left_bytes"], 0);
    assert_eq!(titles(&bodies).last().unwrap(), "beside: finished");
}

#[test]
fn a_run_that_is_killed_or_does_not_fit_is_told_with_the_reason() {
    let desk = Desk::new();
    let (url, bodies) = webhook(true);
    let told: Answer =
        desk.command(&["train", "series.toml", "--memory", "1KiB"]).env("APPRISE_URLS", &url).output().unwrap().into();
    told.must(3, &[]);
    assert!(titles(&bodies)[0].ends_with(": failed"), "{:?}", titles(&bodies));
    let mut child = desk
        .command(&["train", "series.toml", "--out", "torn", "--epochs", "100000"])
        .env("APPRISE_URLS", &url)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let wait = |done: &dyn Fn() -> bool| {
        let until = Instant::now() + Duration::from_secs(30);
        while !done() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait(&|| titles(&bodies).contains(&"torn: started".into()));
    child.kill().unwrap();
    child.wait().unwrap();
    wait(&|| titles(&bodies).contains(&"torn: failed".into()));
    let last = bodies.lock().unwrap().last().unwrap().clone();
    assert!(last["message"].as_str().unwrap().contains("killed"), "{last}");
}

#[test]
fn notifications_are_tried_by_a_command() {
    let desk = Desk::new();
    desk.run(&["notify", "--test"]).must(2, &["nobody to notify", "DISCORD_WEBHOOK"]);
    let try_with =
        |url: &str| -> Answer { desk.command(&["notify", "--test"]).env("APPRISE_URLS", url).output().unwrap().into() };
    let (url, bodies) = webhook(true);
    let answer = try_with(&url);
    answer.must(0, &[]);
    assert!(answer.stdout.contains("json (APPRISE_URLS): delivered") && bodies.lock().unwrap().len() == 1);
    let answer = try_with("json://127.0.0.1:9/SECRET");
    answer.must(1, &["did not take the message"]);
    assert!(!answer.stdout.contains("SECRET") && !answer.stderr.contains("SECRET"));
    let answer = try_with("nonsense-SECRET");
    answer.must(2, &["APPRISE_URLS", "discord://ID/TOKEN"]);
    assert!(!answer.stderr.contains("SECRET"));
    // A variable that happens to be wrong does not end a run.
    let mut train = desk.command(&["train", "series.toml", "--steps", "2"]);
    let answer: Answer = train.env("DISCORD_WEBHOOK", "nonsense-SECRET").output().unwrap().into();
    answer.must(0, &["warning: DISCORD_WEBHOOK"]);
    assert!(!answer.stderr.contains("SECRET"));
}

#[test]
fn events_are_exported_in_every_format() {
    let desk = Desk::new();
    desk.json(&["train", "series.toml", "--steps", "4", "--json", "--tensorboard"]);
    assert_eq!(std::fs::read_dir(desk.path("runs/series-1/tensorboard")).unwrap().count(), 1);
    let jsonl = desk.run(&["export-events", "runs/series-1"]);
    assert_eq!(jsonl.stdout, std::fs::read_to_string(desk.path("runs/series-1/events.jsonl")).unwrap());
    let csv = desk.run(&["export-events", "runs/series-1", "--format", "csv"]).stdout;
    assert_eq!(csv.lines().filter(|line| line.contains(",train/loss,")).count(), 4, "{csv}");
    let text = desk.run(&["export-events", "runs/series-1", "--format", "openmetrics"]).stdout;
    assert!(text.contains("plimsoll_steps_total{run=\"series-1\"} 4.0\n") && text.ends_with("# EOF\n"));
    let planned = text.lines().filter(|line| line.starts_with("plimsoll_memory_planned_bytes{"));
    let planned: f64 = planned.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum();
    let plan: Value = serde_json::from_slice(&std::fs::read(desk.path("runs/series-1/plan.json")).unwrap()).unwrap();
    assert!(text.contains("component=\"weights\"") && !text.contains("component=\"all\""), "{text}");
    assert_eq!(planned, plan["layout"]["live_peak_bytes"].as_f64().unwrap(), "they are what is alive at the peak");
    desk.run(&["export-events", "runs/series-1", "--format", "tensorboard"]).must(2, &["--out"]);
    desk.run(&["export-events", "runs/series-1", "--format", "tensorboard", "--out", "board"]).must(0, &[]);
    // Twice in one folder, each point would be drawn twice.
    let again = ["export-events", "runs/series-1", "--format", "tensorboard", "--out", "board"];
    desk.run(&again).must(2, &["board: holds event files already", "hint:"]);
    assert_eq!(std::fs::read_dir(desk.path("board")).unwrap().count(), 1);
    for format in ["csv", "jsonl", "openmetrics"] {
        let ignored = ["export-events", "runs/series-1", "--format", format, "--out", "unused"];
        desk.run(&ignored).must(2, &["--out", "hint:"]);
    }
    assert!(!desk.path("unused").exists());
    assert_eq!(std::fs::read_dir(desk.path("board")).unwrap().count(), 1);
    desk.run(&["export-events", "nowhere"]).must(2, &["nowhere", "hint:"]);
    desk.run(&["follow", "runs/series-1"]).must(0, &["tensorboard: everything is told"]);
    desk.run(&["train", "series.toml", "--steps", "2", "--no-track", "--tensorboard", "--out", "quiet"]).must(0, &[]);
    assert!(!desk.path("quiet/track").exists() && !desk.path("quiet/tensorboard").exists());
}

#[test]
fn usual_flags_are_settings_of_the_recipe() {
    let desk = Desk::new();
    let flags = "--epochs 1 --learning_rate 0.01 --batch_size 8 --gradient_accumulation 4 --dataloader-num-workers 0 --warmup-ratio 0.25 \
                 --weight-decay 0.1 --max-grad-norm 2 --seed 9 --lr-scheduler-type cosine --save-steps 100 --precision fp32";
    let arguments: Vec<&str> =
        ["train", "series.toml", "--model-output", "given/model"].into_iter().chain(flags.split_whitespace()).collect();
    let answer = desk.run(&arguments);
    answer.must(0, &["effective batch 32", "model written to given/model"]);
    let stored = std::fs::read_to_string(desk.path("runs/series-1/recipe.toml")).unwrap();
    for line in [
        "effective_batch = 32",
        "lr = 0.01",
        "workers = 0",
        "warmup = 0.25",
        "weight_decay = 0.1",
        "clip_norm = 2.0",
        "seed = 9",
        "precision = \"f32\"",
        "name = \"cosine\"",
        "every = 100",
    ] {
        assert!(stored.contains(line), "no {line} in\n{stored}");
    }
    let weights = |path: &str| std::fs::read(desk.path(path)).unwrap();
    assert!(weights("given/model/model.safetensors") == weights("runs/series-1/model/model.safetensors"));
    assert_eq!(
        desk.json(&["plan", "series.toml", "--batch-size", "8", "--gradient-accumulation-steps", "2", "--json"])["effective_batch"],
        16
    );
    desk.run(&["train", "series.toml", "--gradient-accumulation-steps", "2"]).must(2, &["--batch-size", "hint:"]);
    desk.run(&["train", "series.toml", "--lr=-1"]).must(2, &["train.optimizer.lr"]);
    desk.run(&["train", "series.toml", "--model-output", "series.toml"]).must(2, &["series.toml"]);
    let nowhere = desk.run(&["train", "series.toml", "--model-output", "/proc/nope/x"]);
    nowhere.must(1, &["/proc/nope/x"]);
    assert!(!nowhere.stdout.contains("step"), "it is said before the first step: {}", nowhere.stdout);
    desk.run(&["train", "series.toml", "--pretrained-model", "nobody/nothing"])
        .must(2, &["hf download nobody/nothing"]);
    assert!(!desk.path("runs/series-2").exists(), "what was refused leaves no folder");
    assert!(desk.run(&["keys", "--from", "per_device_train_batch_size"]).stdout.contains("train.effective_batch"));
}
