//! The shape of every `--json` that more than one command has to be run for.

use crate::common::{Desk, SERIES};
use crate::snapshots::{CARD, check_shape};
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::thread;

#[test]
fn what_if_questions_have_these_fields() {
    let desk = Desk::new();
    let plan = |more: &[&'static str]| desk.json(&[&["plan", "text.toml", "--json"], more].concat());
    let on_card = |more: &[&'static str]| plan(&[&CARD[..], more].concat());
    check_shape("plan-json-cards", &plan(&["--cards", "8GiB,rtx-4090"]));
    check_shape("plan-json-grid", &on_card(&["--grid", "train.effective_batch=8,16"]));
    check_shape("plan-json-frontier", &on_card(&["--frontier"])["frontier"]);
    check_shape("plan-json-against", &on_card(&["--against", "memory.recompute=layers"]));
    check_shape("plan-json-largest", &plan(&["--largest", "--cards", "8GiB"]));
    let explained = on_card(&["--explain"]);
    check_shape(
        "plan-json-explain",
        &json!({ "neighbours": explained["neighbours"], "margins": explained["margins"] }),
    );
}

#[test]
fn answers_of_a_study_have_these_fields() {
    let desk = Desk::new();
    let search = "[search]\nsampler = \"random\"\n\"train.optimizer.lr\" = [1e-3, 1e-2]\n\"train.seed\" = [1, 2]";
    desk.write("search.toml", &format!("{SERIES}\n{search}\n"));
    check_shape("tune-json-dry-run", &desk.json(&["tune", "search.toml", "--dry-run", CARD[0], CARD[1], "--json"]));
    let trials = ["--study", "s", "--trials", "2", "--pruner", "none", "--set", "train.steps=4", "--device", "cpu"];
    check_shape("tune-json", &desk.json(&[&["tune", "search.toml", "--json"], &trials[..]].concat()));
    check_shape("study-json", &desk.json(&["study", "s", "--json"]));
}

#[test]
fn answers_about_a_finished_run_have_these_fields() {
    let desk = Desk::new();
    let train = ["train", "text.toml", "--steps", "4", "--out", "run", "--device", "cpu", "--no-track"];
    desk.run(&train).must(0, &[]);
    check_shape("export-json", &desk.json(&["export", "run", "model", "--device", "cpu", "--json"]));
    let recipe = std::fs::read_to_string(desk.path("run/recipe.toml")).unwrap();
    desk.write("run/recipe.toml", &recipe.replace("tensorboard = false", "tensorboard = true"));
    check_shape("follow-json", &desk.json(&["follow", "run", "--json"]));
}

#[test]
fn answers_about_files_have_these_fields() {
    let desk = Desk::new();
    let rows: String = (0..40).map(|i| format!("{i},{},{}\n", i % 7, ["up", "down"][i % 2])).collect();
    desk.write("rows.csv", &format!("a,b,label\n{rows}"));
    check_shape("init-json", &desk.json(&["init", "--data", "rows.csv", "--out", "new.toml", "--json"]));
    std::fs::write(desk.path("crash.pickle"), snapshot()).unwrap();
    check_shape("torch-snapshot-json", &desk.json(&["torch", "snapshot", "crash.pickle", "--json"]));
    check_shape("torch-replay-json", &desk.json(&["torch", "replay", "crash.pickle", "--memory", "64MiB", "--json"]));
}

#[test]
fn a_tried_notification_has_these_fields() {
    let desk = Desk::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("json://{}/x,json://127.0.0.1:9/x", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = b"HTTP/1.1 204 X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            if stream.read_exact(&mut [0]).is_ok() && stream.write_all(answer).is_ok() {
                // Closed with something unread, it would look broken.
                let _ = io::copy(&mut stream, &mut io::sink());
            }
        }
    });
    let answer = desk.command(&["notify", "--test", "--json"]).env("APPRISE_URLS", url).output().unwrap();
    let outcomes: Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!((&outcomes[0]["delivered"], &outcomes[1]["delivered"]), (&json!(true), &json!(false)), "{outcomes}");
    check_shape("notify-json", &json!({ "delivered": outcomes[0], "not": outcomes[1] }));
}

/// What PyTorch writes of a process that allocated two blocks, freed one and then asked for too much.
fn snapshot() -> Vec<u8> {
    let frames = json!([{ "filename": "train.py", "line": 7, "name": "forward" }]);
    let event = |action: &str, address: u64, size: u64| json!({ "action": action, "addr": address, "size": size, "stream": 0, "frames": frames });
    let (base, mib) = (0x7f00_0000_0000_u64, 1_u64 << 20);
    let trace = json!([
        event("segment_alloc", base, 20 * mib),
        event("alloc", base, 4 * mib),
        event("alloc", base + 4 * mib, 8 * mib),
        event("free_requested", base, 4 * mib),
        event("free_completed", base, 4 * mib),
        event("oom", 0, 80 * mib),
    ]);
    let block =
        |state: &str, size: u64| json!({ "size": size, "requested_size": size, "state": state, "frames": frames });
    let segment = json!({
        "device": 0, "address": base, "total_size": 20 * mib, "allocated_size": 8 * mib, "stream": 0,
        "is_expandable": false,
        "blocks": [block("inactive", 4 * mib), block("active_allocated", 8 * mib), block("inactive", 8 * mib)],
    });
    let mut bytes = b"\x80\x02".to_vec();
    pickle(&json!({ "segments": [segment], "device_traces": [trace], "allocator_settings": {} }), &mut bytes);
    bytes.push(b'.');
    bytes
}

/// As Python pickles it.
fn pickle(value: &Value, to: &mut Vec<u8>) {
    match value {
        Value::Null => to.push(b'N'),
        Value::Bool(flag) => to.push(if *flag { 0x88 } else { 0x89 }),
        Value::Number(number) => to.extend(format!("L{number}L\n").bytes()),
        Value::String(text) => {
            to.push(b'X');
            to.extend((text.len() as u32).to_le_bytes());
            to.extend(text.bytes());
        }
        Value::Array(items) => {
            to.push(b'(');
            items.iter().for_each(|item| pickle(item, to));
            to.push(b'l');
        }
        Value::Object(entries) => {
            to.push(b'(');
            for (key, item) in entries {
                pickle(&json!(key), to);
                pickle(item, to);
            }
            to.push(b'd');
        }
    }
}
