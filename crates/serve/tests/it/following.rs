//! Runs, read while others write them.

use crate::attacks::read_until;
use crate::desk::{Desk, step};
use serde_json::json;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, Instant};

fn open_stream(desk: &Desk, run: &str, last: Option<&str>) -> std::net::TcpStream {
    let mut stream = desk.connect();
    let last = last.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
    write!(stream, "GET /api/v1/runs/{run}/events HTTP/1.1\r\nHost: {}\r\n{last}\r\n", desk.address).unwrap();
    stream
}

fn last_id(text: &str) -> String {
    text.rsplit("id: ").next().unwrap().lines().next().unwrap().into()
}

fn append(desk: &Desk, run: &str, text: &str) {
    let path = desk.runs().join(run).join("events.jsonl");
    OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn events_come_live_and_a_client_goes_on_where_it_was() {
    let desk = Desk::new();
    desk.run("a", &(step(1, 3.0) + &step(2, 2.5)));
    let mut stream = open_stream(&desk, "a", None);
    let text = read_until(&mut stream, "\"step\":2,");
    let last = last_id(&text);
    let start = Instant::now();
    append(&desk, "a", &step(3, 2.0));
    read_until(&mut stream, "\"step\":3,");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    drop(stream);
    append(&desk, "a", &step(4, 1.5));
    let text = read_until(&mut open_stream(&desk, "a", Some(&last)), "\"step\":4,");
    assert!(text.contains("\"step\":3,") && !text.contains("\"step\":2,") && !text.contains("\"step\":1,"), "{text}");
}

#[test]
fn a_torn_line_waits_for_its_end_and_a_new_file_starts_over() {
    let desk = Desk::new();
    desk.run("a", &step(1, 3.0));
    let mut stream = open_stream(&desk, "a", None);
    read_until(&mut stream, "\"step\":1,");
    let line = step(2, 2.0);
    append(&desk, "a", &line[..20]);
    std::thread::sleep(Duration::from_millis(600));
    append(&desk, "a", &line[20..]);
    let text = read_until(&mut stream, "\"step\":2,");
    assert_eq!(text.matches("data: ").count(), 1, "{text}");
    desk.run("a", &step(7, 1.0));
    let text = read_until(&mut stream, "\"step\":7,");
    assert!(text.contains("event: start-over"), "{text}");
}

#[test]
fn a_run_that_takes_the_place_of_another_is_shown_alone() {
    let desk = Desk::new();
    let folder = desk.run("a", &(step(1, 3.0) + &step(2, 2.5)));
    let mut stream = open_stream(&desk, "a", None);
    read_until(&mut stream, "\"step\":2,");
    let steps = |desk: &Desk| desk.get("/api/v1/runs/a/curves").json()["steps"]["step"].clone();
    assert_eq!(steps(&desk), json!([1, 2]));
    std::fs::remove_dir_all(folder).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    // Further than the one before it was: its length alone does not tell.
    desk.run("a", &(11..=20).map(|n| step(n, 9.0)).collect::<String>());
    let text = read_until(&mut stream, "\"step\":20,");
    let news = text.rsplit("event: start-over").next().unwrap();
    assert!(text.contains("event: start-over") && news.contains("\"step\":11,"), "{text}");
    assert_eq!(steps(&desk).as_array().unwrap().len(), 10);
    let smoothed = desk.get("/api/v1/runs/a").json()["smoothed_loss"].as_f64().unwrap();
    assert!((smoothed - 9.0).abs() < 1e-9, "{smoothed}: no loss of the run before is in it");
}

#[test]
fn who_was_away_while_the_run_was_replaced_starts_over() {
    let desk = Desk::new();
    let folder = desk.run("a", &step(1, 3.0));
    let told = last_id(&read_until(&mut open_stream(&desk, "a", None), "\"step\":1,"));
    let offset = desk.get("/api/v1/runs/a/curves").json()["offset"].as_str().unwrap().to_string();
    assert_eq!(told, offset);
    std::fs::remove_dir_all(folder).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    // Longer than the one before it was: the place is one of the new file, too, in the middle of a line.
    desk.run("a", &(11..=20).map(|n| step(n, 9.0)).collect::<String>());
    let text = read_until(&mut open_stream(&desk, "a", Some(&told)), "\"step\":20,");
    assert!(text.contains("event: start-over") && text.contains("\"step\":11,"), "{text}");
    let text = read_until(
        &mut open_stream(&desk, "a", Some(&last_id(&text[..text.find("\"step\":19,").unwrap()]))),
        "\"step\":20,",
    );
    assert!(!text.contains("start-over") && !text.contains("\"step\":18,"), "{text}");
    assert_eq!(desk.get("/api/v1/runs/a/events?from=7-x").status, 422);
}

#[test]
fn a_long_history_comes_whole_and_in_order() {
    let desk = Desk::new();
    let events: String = (1..=20_000).map(|n| step(n, 1.0 / n as f64)).collect();
    desk.run("long", &events);
    let text = read_until(&mut open_stream(&desk, "long", None), "\"step\":20000,");
    assert_eq!(text.matches("\ndata: ").count(), 20_000);
    let start = Instant::now();
    let curves = desk.get("/api/v1/runs/long/curves?points=500").json();
    let offset = curves["offset"].as_str().unwrap();
    assert!(curves["rows"] == 20_000 && offset.starts_with(&format!("{}-", events.len())), "{offset}");
    assert!(curves["steps"]["step"].as_array().unwrap().len() <= 502);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(desk.get("/api/v1/runs/long").json()["step"], 20_000);
}

#[test]
fn many_who_do_not_read_hold_nobody_up() {
    plimsoll_serve::raise_file_limit();
    let desk = Desk::new();
    desk.run("a", &(1..=5_000).map(|n| step(n, 1.0)).collect::<String>());
    // Each asks for a megabyte of history and reads nothing of it.
    let _deaf: Vec<_> = (0..300).map(|_| open_stream(&desk, "a", None)).collect();
    let start = Instant::now();
    let mut stream = open_stream(&desk, "a", Some(&u64::MAX.to_string()));
    append(&desk, "a", &step(5_001, 0.5));
    read_until(&mut stream, "\"step\":5001,");
    assert_eq!(desk.get("/health").status, 200);
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

#[test]
fn a_thousand_streams_hear_every_event() {
    plimsoll_serve::raise_file_limit();
    let desk = Desk::new();
    desk.run("a", &step(1, 3.0));
    let mut streams: Vec<_> = (0..1000).map(|_| open_stream(&desk, "a", None)).collect();
    for stream in &mut streams {
        read_until(stream, "\"step\":1,");
    }
    append(&desk, "a", &(2..=20).map(|n| step(n, 1.0)).collect::<String>());
    for stream in &mut streams {
        let text = read_until(stream, "\"step\":20,");
        assert_eq!(text.matches("data: ").count(), 19);
    }
}

#[test]
fn runs_are_listed_and_compared_by_what_differs() {
    let desk = Desk::new();
    let (a, b) = (desk.run("a", &step(1, 3.0)), desk.run("b", &step(1, 2.0)));
    let recipe = std::fs::read_to_string(a.join("recipe.toml")).unwrap();
    std::fs::write(b.join("recipe.toml"), recipe.replace("effective_batch = 64", "effective_batch = 32")).unwrap();
    std::fs::create_dir_all(a.join("checkpoints/step-7")).unwrap();
    std::fs::write(a.join("checkpoints/step-7/model.safetensors"), "12345").unwrap();
    let both = desk.get("/api/v1/compare?run=a&run=b").json();
    assert_eq!(both["settings"], json!({"train.effective_batch": [64, 32]}));
    assert_eq!(both["curves"][1]["steps"]["columns"]["loss"], json!([2.0]));
    assert_eq!(desk.get("/api/v1/runs/a/checkpoints").json()[0]["bytes"], 5);
    // Nobody trains in it and it did not end: it died.
    assert_eq!(desk.get("/api/v1/runs/a").json()["state"], "failed");
    assert_eq!(desk.get("/api/v1/compare").status, 422);
    let with_others = desk.get("/api/v1/compare?run=nowhere&run=a&run=..").json();
    assert_eq!(
        (&with_others["unknown"], with_others["runs"].as_array().unwrap().len()),
        (&json!(["nowhere", ".."]), 1)
    );
    assert_eq!(desk.get("/api/v1/compare?run=nowhere").status, 404);
    assert_eq!(desk.post("/api/v1/runs/a/stop", &json!({})).status, 409);
}

#[test]
fn scrapers_hear_of_fresh_runs_and_the_queue() {
    let desk = Desk::new();
    desk.run("a", &step(7, 0.25));
    let answer = desk.get("/metrics");
    assert!(answer.headers["content-type"].starts_with("application/openmetrics-text"), "{:?}", answer.headers);
    let text = answer.text();
    assert!(text.contains("plimsoll_steps_total{run=\"a\"} 7") && text.ends_with("# EOF\n"), "{text}");
    assert!(text.contains("plimsoll_queue_jobs{state=\"queued\"} 0"), "{text}");
}

#[test]
fn scrapers_hear_of_each_component_of_the_plan() {
    let desk = Desk::new();
    let started = include_str!("started.json").trim();
    let folder = desk.run("a", &format!("{started}\n{}", step(7, 0.25)));
    let told = |component: &str| {
        let start = format!("plimsoll_memory_planned_bytes{{run=\"a\",component=\"{component}\"}} ");
        desk.get("/metrics").text().lines().find_map(|line| line.strip_prefix(&start).map(String::from))
    };
    assert!(told("all").is_some(), "a plan of an earlier version says no more");
    for (weights, text) in [(40, "40.0"), (41, "41.0")] {
        let plan = json!({"version": 1, "breakdown": {"weights": weights, "activations": 2}, "layout": {}});
        std::fs::write(folder.join("plan.json"), plan.to_string() + &" ".repeat(weights)).unwrap();
        assert_eq!((told("weights").as_deref(), told("activations").as_deref()), (Some(text), Some("2.0")));
        assert_eq!(told("all"), None);
    }
}

/// As a process that trains in a folder holds it.
pub(crate) fn hold(folder: &std::path::Path) -> std::fs::File {
    let path = folder.join("run.lock");
    std::fs::write(&path, std::process::id().to_string()).unwrap();
    let lock = std::fs::File::open(path).unwrap();
    lock.lock().unwrap();
    lock
}

#[test]
fn scrapers_hear_of_every_run_that_runs_and_of_none_that_was_killed() {
    let desk = Desk::new();
    let started = include_str!("started.json").trim();
    let events = format!("{started}\n{}", step(7, 0.25));
    // Enough of them to push all others out, were they not sorted.
    (0..230).for_each(|n| _ = desk.run(&format!("killed-{n}"), &events));
    let _held: Vec<_> = (0..3).map(|n| hold(&desk.run(&format!("live-{n}"), &events))).collect();
    let text = desk.get("/metrics").text();
    let state =
        |run: &str, state: &str| format!("plimsoll_run_state{{run=\"{run}\",plimsoll_run_state=\"{state}\"}} 1.0\n");
    for n in 0..3 {
        assert!(text.contains(&state(&format!("live-{n}"), "running")), "live-{n} is not told");
    }
    let count = |what: &str| text.matches(&format!("plimsoll_run_state=\"{what}\"}} 1.0\n")).count();
    assert_eq!((count("running"), count("failed")), (3, 197));
    assert_eq!(text.matches("plimsoll_expected_end_timestamp_seconds{").count(), 3);
}

#[test]
fn studies_are_shown_whatever_they_are_called_and_a_damaged_one_says_so() {
    use plimsoll_tune::{Direction, storage, trials::StudyFolder};
    let desk = Desk::new();
    let root = desk.folder.path().join("studies");
    for name in ["sizes/of layers?", "damaged"] {
        let folder = StudyFolder::of(&root, name);
        folder.create().unwrap();
        let mut journal = storage::open(&format!("journal:{}", folder.journal().display())).unwrap();
        journal.create_study(name, &[Direction::Minimize]).unwrap();
    }
    let mut shared = storage::open(&format!("sqlite:{}", root.join("shared.db").display())).unwrap();
    shared.create_study("in a database", &[Direction::Maximize]).unwrap();
    std::fs::write(StudyFolder::of(&root, "damaged").journal(), "{\"op_code\":0,\n").unwrap();
    let listed = desk.get("/api/v1/studies").json();
    let names: Vec<&str> = listed.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["damaged", "in a database", "sizes/of layers?"]);
    assert!(listed[0]["problem"].as_str().unwrap().contains("line 1") && listed[1].get("problem").is_none());
    for name in ["in%20a%20database", "sizes%2Fof%20layers%3F"] {
        let study = desk.get(&format!("/api/v1/studies/{name}"));
        assert_eq!((study.status, study.json()["trials"].as_array().map(Vec::len)), (200, Some(0)), "{name}");
    }
    let damaged = desk.get("/api/v1/studies/damaged");
    assert!(damaged.status == 409 && damaged.text().contains("hint"), "{}", damaged.text());
    assert_eq!(desk.get("/api/v1/studies/nowhere").status, 404);
}
