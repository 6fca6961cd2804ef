//! What users and scripts see, written down: the help of every command, tables on a card of the catalog, and the shape
//! of every `--json`. Times are masked, because predictions get better; bytes are not, because they are promised.
//!
//! A change that is meant: `INSTA_UPDATE=always cargo test -p plimsoll-cli --test outside`, then look at the diff.

use crate::common::Desk;
use clap::Command;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// The card that tables are made for.
pub(crate) const CARD: [&str; 2] = ["--device", "rtx-3060-12gb"];

fn check(name: &str, content: &str) {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, content);
    });
}

/// What a command prints on stdout and its exit code, times masked.
fn printed(desk: &Desk, code: i32, arguments: &[&str]) -> String {
    let answer = desk.run(arguments);
    assert_eq!(answer.code, code, "{arguments:?}\n{}", answer.stderr);
    let talk = if answer.stderr.is_empty() { String::new() } else { format!("--- stderr\n{}", answer.stderr) };
    mask_times(&(answer.stdout + &talk))
}

/// Numbers in front of a unit of time or of speed become `#`, and the spaces that line them up become one.
fn mask_times(text: &str) -> String {
    const UNITS: [&str; 9] = ["ms", "s", "min", "h", "days", "µs", "samples/s", "tokens/s", "×"];
    let lines = text.lines().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].trim_matches(['(', '-', '+', '~', '−']).parse::<f64>().is_ok();
        let unit = |at: usize| {
            words.get(at + 1).is_some_and(|w| UNITS.contains(&w.trim_end_matches([',', ')', ';', '.', ':'])))
        };
        let masked: Vec<&str> =
            (0..words.len()).map(|at| if number(at) && unit(at) { "#" } else { words[at] }).collect();
        squeeze(&masked, masked.contains(&"#"))
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

fn squeeze(words: &[&str], has_time: bool) -> String {
    let indent: String = words.iter().take_while(|word| word.is_empty()).map(|_| " ").collect();
    let line = words.join(" ");
    if has_time { indent + &line.split_whitespace().collect::<Vec<_>>().join(" ") } else { line }
}

/// The keys and types of an answer: of a list its first item stands for all.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => json!("null"),
        Value::Bool(_) => json!("flag"),
        Value::Number(_) => json!("number"),
        Value::String(_) => json!("text"),
        Value::Array(items) => Value::Array(items.first().map(shape).into_iter().collect()),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), shape(value))).collect::<Map<_, _>>().into(),
    }
}

pub(crate) fn check_shape(name: &str, value: &Value) {
    let sorted: std::collections::BTreeMap<String, Value> = match shape(value) {
        Value::Object(map) => map.into_iter().collect(),
        other => [("".to_string(), other)].into(),
    };
    check(name, &serde_json::to_string_pretty(&sorted).unwrap());
}

/// Every command with the words that call it: `torch`, then `torch replay`.
fn commands() -> Vec<(Vec<String>, Command)> {
    let mut found = Vec::new();
    walk(&[], &plimsoll_cli::command(), &mut found);
    found
}

fn walk(words: &[String], command: &Command, found: &mut Vec<(Vec<String>, Command)>) {
    found.push((words.to_vec(), command.clone()));
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        walk(&[words, &[inner.get_name().into()]].concat(), inner, found);
    }
}

/// Names of the snapshots that are kept.
fn kept() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outside/snapshots");
    let files = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    files.filter_map(|name| name.strip_suffix(".snap").map(String::from)).collect()
}

/// `help-torch-replay`
fn help_name(words: &[String]) -> String {
    [&["help".to_string()], words].concat().join("-")
}

#[test]
fn help_of_every_command() {
    let desk = Desk::new();
    let commands = commands();
    assert!(commands.len() >= 25, "{} commands", commands.len());
    for (words, _) in &commands {
        let arguments: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
        check(&help_name(words), &printed(&desk, 0, &arguments));
    }
}

#[test]
fn no_help_is_kept_of_a_command_that_is_gone() {
    let known: BTreeSet<String> = commands().iter().map(|(words, _)| help_name(words)).collect();
    let gone: Vec<String> =
        kept().into_iter().filter(|name| name.starts_with("help") && !known.contains(name)).collect();
    assert!(gone.is_empty(), "{gone:?}");
}

/// It runs programs of PyTorch, which is not there where these tests are: `crates/ghost/tests` and `tools/ghost` do.
const NEED_MORE: [&str; 1] = ["ghost"];

#[test]
fn the_shape_of_every_json_is_kept() {
    let kept = kept();
    let answers = |command: &Command| command.get_arguments().any(|argument| argument.get_long() == Some("json"));
    for (words, _) in commands().iter().filter(|(_, command)| answers(command)) {
        let name = format!("{}-json", words.join("-"));
        assert!(kept.contains(&name) || NEED_MORE.contains(&words[0].as_str()), "no snapshot {name}");
    }
}

#[test]
fn the_version_is_plimsolls() {
    let version = Desk::new().run(&["--version"]).stdout;
    assert_eq!(version, format!("plimsoll {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn plans_on_a_card_of_the_catalog() {
    let desk = Desk::new();
    let plan = |recipe: &'static str, more: &[&'static str]| [&["plan", recipe], &CARD[..], more].concat();
    check("plan-series", &printed(&desk, 0, &plan("series.toml", &[])));
    check("plan-text", &printed(&desk, 0, &plan("text.toml", &[])));
    check("plan-explain", &printed(&desk, 0, &plan("text.toml", &["--explain"])));
    check("plan-does-not-fit", &printed(&desk, 3, &plan("series.toml", &["--memory", "1MiB"])));
    check_shape("plan-json", &desk.json(&plan("text.toml", &["--json"])));
    let refused = desk.run(&plan("text.toml", &["--memory", "1MiB", "--json"]));
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    check_shape("plan-json-does-not-fit", &refused.json());
}

#[test]
fn the_catalog() {
    let desk = Desk::new();
    check("devices-catalog", &printed(&desk, 0, &["devices", "--catalog"]));
    check_shape("devices-catalog-json", &desk.json(&["devices", "--catalog", "--json"]));
}

#[test]
fn devices_here_have_these_fields() {
    let mut devices = Desk::new().json(&["devices", "--json"]);
    // What other processes hold, and whether a container limits this one, depends on the machine.
    let cpu = devices[0].as_object_mut().unwrap();
    for key in ["holders", "limit_bytes"] {
        assert!(cpu.remove(key).is_some(), "no {key}");
    }
    check_shape("devices-json", &json!([devices[0]]));
}

#[test]
fn advice_on_a_card_of_the_catalog() {
    let desk = Desk::new();
    let error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
                 11.76 GiB of which 1.02 GiB is free. Including non-PyTorch memory, this process has 10.72 GiB memory in \
                 use. Of the allocated memory 9.61 GiB is allocated by PyTorch, and 912.00 MiB is reserved by PyTorch but \
                 unallocated.";
    check("advise-recipe", &printed(&desk, 0, &[&["advise", "text.toml"], &CARD[..]].concat()));
    check("advise-message", &printed(&desk, 0, &["advise", "--message", error]));
    check_shape(
        "advise-json",
        &desk.json(&[&["advise", "text.toml", "--message", error, "--json"], &CARD[..]].concat()),
    );
}

#[test]
fn keys_and_presets() {
    let desk = Desk::new();
    check("keys-memory", &printed(&desk, 0, &["keys", "memory"]));
    check("presets", &printed(&desk, 0, &["presets"]));
    check("presets-bert", &printed(&desk, 0, &["presets", "--family", "bert"]));
    check_shape("keys-json", &desk.json(&["keys", "--json"]));
    check_shape("presets-json", &desk.json(&["presets", "--json"]));
}

#[test]
fn answers_of_a_run_have_these_fields() {
    let desk = Desk::new();
    let cpu = ["--device", "cpu", "--json"];
    let with = |arguments: &[&'static str]| [arguments, &cpu[..]].concat();
    check_shape("train-json", &desk.json(&with(&["train", "text.toml", "--steps", "4", "--out", "run"])));
    check_shape("eval-json", &desk.json(&with(&["eval", "run"])));
    check_shape("generate-json", &desk.json(&with(&["generate", "run", "--prompt", "a", "--tokens", "4"])));
    check_shape("report-json", &desk.json(&["report", "run", "--json"]));
    // A language model of ours has no Hugging Face layout.
    check_shape("train-json-series", &desk.json(&with(&["train", "series.toml", "--steps", "4", "--out", "series"])));
    check_shape("calibrate-json", &desk.json(&with(&["calibrate", "--seconds", "1"])));
    check_shape("bench-json", &desk.json(&with(&["bench", "hybrid", "--batch", "2", "--steps", "2", "--warmup", "1"])));
}
