//! A folder of runs with more than one server, and what each of them may say about it.

use crate::desk::{Desk, step};
use crate::following::hold;
use plimsoll::Explain;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

fn beside(desk: &Desk, read_only: bool) -> Result<Desk, plimsoll_serve::ServeError> {
    Desk::in_folder(desk.folder.clone(), |options| options.read_only = read_only)
}

#[test]
fn a_second_server_refuses_the_folder_and_names_the_first_and_one_that_only_shows_does_not() {
    let first = Desk::new();
    let Err(refused) = beside(&first, false) else { panic!("two servers keep one queue") };
    let said = refused.to_string();
    let (pid, place) = (format!("process {} ", std::process::id()), format!("http://{}", first.address));
    assert!(said.contains(&pid) && said.contains(&place), "{said}");
    assert!(refused.hints().iter().any(|hint| hint.contains("--read-only")), "{:?}", refused.hints());
    assert_eq!(beside(&first, true).unwrap().get("/api/v1/runs").status, 200);
    let folder = first.close();
    assert!(Desk::in_folder(folder, |_| ()).is_ok(), "the folder is free again");
}

fn store(desk: &Desk, job: &Value) {
    let folder = desk.runs().join(".serve").join(job["id"].as_str().unwrap());
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("draft"), job.to_string()).unwrap();
    std::fs::rename(folder.join("draft"), folder.join("job.json")).unwrap();
}

fn job(id: &str, state: Value) -> Value {
    json!({"id": id, "state": state, "arguments": [], "device": "cpu", "bytes": 1, "seconds": 10.0, "asked": 5})
}

/// Number and beginning of a process, as a server writes them down.
fn process(pid: u32) -> Value {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).unwrap();
    let began: u64 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap();
    json!({"pid": pid, "began": began})
}

fn queue_until(desk: &Desk, is_so: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let queue = desk.get("/api/v1/queue").json();
        if is_so(&queue) {
            return queue;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{queue}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_server_that_only_shows_shows_the_queue_as_it_is() {
    let desk = Desk::with(|options| options.read_only = true);
    assert_eq!(desk.get("/api/v1/queue").json(), json!([]));
    store(&desk, &job("a-1", json!("queued")));
    let queue = queue_until(&desk, |queue| queue[0]["state"] == "queued");
    assert!(queue[0].get("expected_start").is_none(), "nobody will start it: {queue}");
    let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let mut started = job("a-1", json!("started"));
    (started["process"], started["began"]) = (process(child.id()), json!(7));
    store(&desk, &started);
    queue_until(&desk, |queue| queue[0]["state"] == "started");
    // Whoever kept the queue is gone and hears of no end.
    child.kill().unwrap();
    child.wait().unwrap();
    queue_until(&desk, |queue| *queue == json!([]));
    store(&desk, &job("a-1", json!({"ended": {"code": 0}})));
    store(&desk, &job("b-1", json!("queued")));
    let _keeper = beside(&desk, false).unwrap();
    // It is started, by the other one, and fails at once.
    queue_until(&desk, |_| desk.get("/api/v1/runs/b-1").json()["state"] == "failed");
    assert_eq!(desk.get("/api/v1/queue").json(), json!([]));
}

#[test]
fn a_run_that_trains_is_running_whatever_waits_for_it() {
    let desk = Desk::with(|options| options.read_only = true);
    let _held = hold(&desk.run("a", &step(3, 1.0)));
    store(&desk, &job("a", json!("queued")));
    queue_until(&desk, |queue| queue[0]["state"] == "queued");
    assert_eq!(desk.get("/api/v1/runs/a").json()["state"], "running");
}

#[test]
fn why_a_run_failed_is_said_of_this_attempt_alone() {
    let desk = Desk::with(|options| options.read_only = true);
    let failed = "{\"event\":\"failed\",\"step\":1,\"reason\":\"the disk is full\",\"oom\":false}\n";
    let note = "{\"event\":\"note\",\"text\":\"by the way\"}\n";
    desk.run("told", &(step(1, 2.0) + failed + note));
    desk.run("silent", &step(1, 2.0));
    for (id, ended, stopping) in [
        ("killed", json!({"code": null, "signal": 9}), false),
        ("crashed", json!({"code": null, "signal": 11}), false),
        ("refused", json!({"code": 2}), false),
        ("stopped", json!({"code": null, "signal": 9}), true),
    ] {
        desk.run(id, &step(1, 2.0));
        let mut job = job(id, json!({"ended": ended}));
        (job["began"], job["stopping"]) = (json!(9), json!(stopping));
        let earlier = "error: of an attempt before\n";
        job["log_from"] = json!(earlier.len());
        store(&desk, &job);
        let own = if id == "refused" { "error: gone.csv is gone\n  hint: x\n" } else { "step 1: loss 2\n" };
        std::fs::write(desk.runs().join(".serve").join(id).join("log.txt"), earlier.to_owned() + own).unwrap();
    }
    queue_until(&desk, |_| desk.get("/api/v1/runs/stopped").json()["state"] == "interrupted");
    // Taken up again, and dead before it had a word to say: how it ended the time before does not count.
    let interrupted = "{\"event\":\"finished\",\"end\":\"interrupted\",\"steps\":1,\"epochs\":0,\"final\":null,\"best\":null,\
         \"planned_peak_bytes\":1,\"measured_peak_bytes\":1,\"host_peak_bytes\":1,\"samples_per_s\":1.0,\"seconds\":1.0}\n";
    desk.run("again", &(step(1, 2.0) + interrupted));
    let mut later = job("again", json!({"ended": {"code": null, "signal": 6}}));
    later["began"] = json!(u32::MAX);
    store(&desk, &later);
    queue_until(&desk, |_| desk.get("/api/v1/runs/again").json()["state"] == "failed");
    let reason = |id: &str| desk.get(&format!("/api/v1/runs/{id}")).json()["reason"].as_str().unwrap().to_string();
    assert_eq!(reason("told"), "the disk is full");
    assert!(reason("silent").contains("without a word"), "{}", reason("silent"));
    assert!(reason("killed").contains("signal 9"), "{}", reason("killed"));
    assert!(reason("crashed").contains("signal 11"), "{}", reason("crashed"));
    assert_eq!(reason("refused"), "error: gone.csv is gone\n  hint: x");
    assert!(reason("again").contains("signal 6"), "{}", reason("again"));
    assert!(reason("stopped").contains("as asked"), "{}", reason("stopped"));
}

#[test]
fn a_run_that_cannot_go_on_is_not_queued() {
    let desk = Desk::new();
    let ended = |steps: usize| {
        let started = include_str!("started.json");
        format!(
            "{started}{{\"event\":\"finished\",\"end\":\"completed\",\"steps\":{steps},\"epochs\":2,\"final\":null,\"best\":null,\
             \"planned_peak_bytes\":1,\"measured_peak_bytes\":1,\"host_peak_bytes\":1,\"samples_per_s\":1.0,\"seconds\":1.0}}\n"
        )
    };
    desk.run("finished", &ended(100));
    // As `train --steps 40` leaves it.
    desk.run("paused", &ended(40));
    std::fs::write(desk.run("damaged", &step(1, 1.0)).join("recipe.toml"), "[model\n").unwrap();
    std::fs::remove_file(desk.run("unborn", &step(1, 1.0)).join("recipe.toml")).unwrap();
    let resume = |id: &str| desk.post(&format!("/api/v1/runs/{id}/resume"), &json!({}));
    for (id, word) in [("finished", "nothing of it is left"), ("damaged", "recipe"), ("unborn", "not begun")] {
        let answer = resume(id);
        assert_eq!(answer.status, 409, "{id}: {}", answer.text());
        assert!(answer.text().contains(word) && answer.json()["hint"].is_string(), "{id}: {}", answer.text());
        assert!(!desk.runs().join(".serve").join(id).exists(), "{id}");
    }
    let resumable = |id: &str| desk.get(&format!("/api/v1/runs/{id}")).json()["resumable"].clone();
    assert_eq!((resumable("finished"), resumable("paused")), (json!(false), json!(true)));
    assert_eq!(resume("paused").status, 201);
}
