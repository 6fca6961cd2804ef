//! How much a server takes on at one time, and what it says beyond.

use crate::attacks::read_until;
use crate::desk::{Desk, QUICKSTART, step};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn listen(desk: &Desk, run: &str) -> TcpStream {
    let mut stream = desk.connect();
    write!(stream, "GET /api/v1/runs/{run}/events HTTP/1.1\r\nHost: {}\r\n\r\n", desk.address).unwrap();
    stream
}

/// Asks until this holds: the server notices by itself that somebody went.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn beyond_its_streams_it_says_so_and_who_leaves_makes_room() {
    let desk = Desk::with(|options| options.limits.streams = 2);
    desk.run("a", &step(1, 3.0));
    let mut streams: Vec<TcpStream> = (0..2).map(|_| listen(&desk, "a")).collect();
    streams.iter_mut().for_each(|stream| _ = read_until(stream, "\"step\":1,"));
    let refused = desk.get("/api/v1/runs/a/events");
    assert_eq!((refused.status, refused.headers["retry-after"].as_str()), (503, "5"), "{}", refused.text());
    assert!(refused.json()["error"].as_str().unwrap().contains("streams") && refused.json()["hint"].is_string());
    assert_eq!(desk.get("/api/v1/runs/a").status, 200, "questions are answered all the same");
    streams.pop();
    eventually("a place for the next", || {
        let mut next = listen(&desk, "a");
        let mut head = [0; 12];
        next.read_exact(&mut head).is_ok() && &head == b"HTTP/1.1 200"
    });
}

#[test]
fn a_long_list_of_runs_comes_in_parts_that_say_how_many_there_are() {
    let desk = Desk::new();
    (1..=12).for_each(|number| _ = desk.run(&format!("a-{number}"), &step(1, 3.0)));
    let ids = |path: &str| {
        let answer = desk.get(path);
        assert_eq!((answer.status, answer.headers["x-total-count"].as_str()), (200, "12"), "{}", answer.text());
        let runs = answer.json();
        runs.as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    let all = ids("/api/v1/runs");
    assert_eq!(all.len(), 12);
    let parts = ["limit=5", "offset=5&limit=5", "offset=10", "offset=12&limit=3", "offset=99", "limit=0"];
    assert_eq!(parts.map(|part| ids(&format!("/api/v1/runs?{part}")).len()), [5, 5, 2, 0, 0, 0]);
    let joined = parts[..3].iter().flat_map(|part| ids(&format!("/api/v1/runs?{part}")));
    assert_eq!(joined.collect::<Vec<_>>(), all);
    for (part, field) in [("limit=-1", "limit"), ("offset=x", "offset")] {
        let answer = desk.get(&format!("/api/v1/runs?{part}"));
        assert_eq!((answer.status, answer.json()["field"].as_str()), (422, Some(field)), "{}", answer.text());
    }
}

#[test]
fn beyond_its_connections_it_hangs_up_and_those_that_are_there_are_served() {
    let desk = Desk::with(|options| options.limits.connections = 3);
    desk.run("a", &step(1, 3.0));
    let mut streams: Vec<TcpStream> = (0..3).map(|_| listen(&desk, "a")).collect();
    streams.iter_mut().for_each(|stream| _ = read_until(stream, "\"step\":1,"));
    assert_eq!(desk.raw(b"GET /health HTTP/1.1\r\n\r\n"), b"", "nobody is there to answer");
    let path = desk.runs().join("a/events.jsonl");
    std::fs::write(&path, step(1, 3.0) + &step(2, 2.0)).unwrap();
    read_until(&mut streams[0], "\"step\":2,");
    streams.pop();
    eventually("a place for the next", || {
        desk.raw(format!("GET /health HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", desk.address).as_bytes())
            .starts_with(b"HTTP/1.1 200")
    });
}

#[test]
fn beyond_its_queue_it_says_so_and_who_leaves_makes_room() {
    use std::os::unix::fs::PermissionsExt;
    let desk = Desk::with(|options| {
        let program = options.data.join("program");
        std::fs::write(&program, "#!/bin/sh\nexec sleep 600\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        (options.program, options.parallel, options.limits.waiting) = (program, Some(1), 2);
    });
    let ask = || desk.post("/api/v1/runs", &json!({"recipe": QUICKSTART, "device": "cpu", "memory": "1GiB"}));
    // One trains, two wait.
    let taken: Vec<String> = (0..3).map(|_| ask().json()["id"].as_str().unwrap().to_string()).collect();
    let refused = ask();
    assert_eq!((refused.status, refused.headers["retry-after"].as_str()), (503, "5"), "{}", refused.text());
    assert!(refused.text().contains("the queue is full") && refused.json()["hint"].is_string());
    assert_eq!(desk.get("/api/v1/queue").json().as_array().unwrap().len(), 3);
    assert_eq!(desk.post(&format!("/api/v1/runs/{}/stop", taken[2]), &json!({})).status, 202);
    assert_eq!(ask().status, 201);
    for id in &taken {
        desk.post(&format!("/api/v1/runs/{id}/stop"), &json!({"now": true}));
    }
}
