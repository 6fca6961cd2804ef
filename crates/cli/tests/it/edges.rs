//! Small promises, each in a line or two: what is said about input that is odd, long or not what it seems.

use crate::common::{Desk, SERIES, TEXT};
use std::process::Command;

const ENCODER: &str = r#"
[model]
checkpoint = "checkpoint"
[data]
train = "texts.jsonl"
max_length = 8
[train]
task = "classify"
effective_batch = 4
epochs = 1
"#;

/// A folder with an encoder's checkpoint that was trained here.
fn checkpoint() -> Desk {
    let desk = Desk::new();
    let model = "family = \"bert\"\nvocab_size = 512\nhidden_size = 8\nnum_hidden_layers = 1\nnum_attention_heads = 2\nintermediate_size = 16\nmax_position_embeddings = 16\nnum_labels = 2";
    let rest = "[data]\nsource = \"synthetic:sentiment\"\nsamples = 40\nmax_length = 8\n[train]\ntask = \"classify\"\neffective_batch = 4\nepochs = 1";
    desk.write("made.toml", &format!("[model]\n{model}\n{rest}\n"));
    desk.run(&["train", "made.toml", "--device", "cpu", "--out", "made"]).must(0, &[]);
    std::fs::rename(desk.path("made/model"), desk.path("checkpoint")).unwrap();
    desk.write("encoder.toml", ENCODER);
    desk.write(
        "texts.jsonl",
        &"{\"text\": \"good\", \"label\": \"a\"}\n{\"text\": \"bad\", \"label\": \"b\"}\n".repeat(8),
    );
    desk
}

#[test]
fn a_pipe_in_a_checkpoint_is_refused_at_once() {
    let desk = checkpoint();
    for name in ["config.json", "model.safetensors"] {
        let (file, kept) = (desk.path(&format!("checkpoint/{name}")), desk.path("kept"));
        std::fs::rename(&file, &kept).unwrap();
        assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
        desk.run(&["train", "encoder.toml", "--device", "cpu"]).must(2, &[name, "no plain file"]);
        std::fs::remove_file(&file).unwrap();
        std::fs::rename(&kept, &file).unwrap();
    }
}

#[test]
fn a_pipe_instead_of_a_plan_is_refused_at_once() {
    let desk = Desk::new();
    assert!(Command::new("mkfifo").arg(desk.path("plan.json")).status().unwrap().success());
    desk.run(&["train", "series.toml", "--plan", "plan.json"]).must(1, &["plan.json", "no plain file"]);
}

/// A run's folder may come from somebody else.
#[test]
fn a_pipe_in_a_runs_folder_holds_nobody_up() {
    let desk = Desk::new();
    desk.run(&["train", "series.toml", "--device", "cpu", "--set", "train.epochs=1", "--out", "run"]).must(0, &[]);
    let replaced = |name: &str| {
        std::fs::remove_file(desk.path(name)).unwrap();
        assert!(Command::new("mkfifo").arg(desk.path(name)).status().unwrap().success());
    };
    replaced("run/plan.json");
    desk.run(&["export-events", "run", "--format", "openmetrics"]).must(0, &[]);
    desk.run(&["report", "run"]).must(0, &[]);
    replaced("run/events.jsonl");
    desk.run(&["export-events", "run"]).must(2, &["events.jsonl: this is no plain file", "hint:"]);
    desk.run(&["report", "run"]).must(2, &["events.jsonl: this is no plain file", "hint:"]);
}

#[test]
fn a_tensor_that_is_named_twice_is_refused() {
    let desk = checkpoint();
    let header = br#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
    let file = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 8]].concat();
    std::fs::write(desk.path("checkpoint/model.safetensors"), file).unwrap();
    desk.run(&["train", "encoder.toml", "--device", "cpu"]).must(2, &["\"a\" is named twice"]);
}

/// A plan for a thousand layers takes its time; that nobody has their weights is seen before.
#[test]
fn layers_that_a_checkpoint_does_not_have_are_missed_before_anything_is_planned() {
    let desk = checkpoint();
    let config = desk.path("checkpoint/config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    let deeper = text.replace("\"num_hidden_layers\": 1", "\"num_hidden_layers\": 1000");
    assert_ne!(text, deeper);
    std::fs::write(&config, deeper).unwrap();
    // Data that is not there would be missed next.
    std::fs::remove_file(desk.path("texts.jsonl")).unwrap();
    let answer = desk.run(&["train", "encoder.toml", "--device", "cpu"]);
    answer.must(2, &["these tensors are not those of the model", "missing: bert.encoder.layer.1."]);
}

#[test]
fn a_cell_of_megabytes_makes_no_message_of_megabytes() {
    let desk = Desk::new();
    let own = "train = \"own.csv\"\nlabel = \"y\"";
    desk.write("own.toml", &SERIES.replace("source = \"synthetic:regimes\"\nsamples = 500", own));
    let row = |cell: &str| format!("1,2,{cell},up\n");
    desk.write("own.csv", &format!("a,b,c,y\n{}{}", row("3").repeat(30), row(&"x".repeat(1 << 21))));
    let answer = desk.run(&["train", "own.toml", "--device", "cpu"]);
    answer.must(2, &["line 32, column `c`", "xxx…` is not a number"]);
    assert!(answer.stderr.len() < 4000, "{} bytes", answer.stderr.len());
}

/// Where no checkpoints are asked for, the best at the very end is the model and nothing beside it.
#[test]
fn a_run_without_checkpoints_leaves_its_model_alone() {
    let desk = Desk::new();
    let steps = ["--steps", "4", "--set", "train.steps=4", "--set", "train.evaluate.every=4"];
    let never =
        ["train", "series.toml", "--device", "cpu", "--out", "run", "--set", "train.checkpoint.every=\"never\""];
    desk.run(&[&never[..], &steps].concat()).must(0, &[]);
    assert_eq!(std::fs::read_dir(desk.path("run/checkpoints")).unwrap().count(), 0);
    let events = std::fs::read_to_string(desk.path("run/events.jsonl")).unwrap();
    let last = events.lines().last().and_then(|line| serde_json::from_str::<serde_json::Value>(line).ok()).unwrap();
    let scores = desk.json(&["eval", "run", "--device", "cpu", "--json"]);
    assert_eq!(scores["loss"], last["best"]["loss"], "{last}");
}

#[test]
fn a_share_of_likely_tokens_is_above_nothing() {
    let desk = Desk::new();
    desk.run(&["train", "text.toml", "--device", "cpu", "--out", "run", "--steps", "2"]).must(0, &[]);
    for share in ["nan", "0", "1.5"] {
        desk.run(&["generate", "run", "--prompt", "a", "--top-p", share]).must(2, &["above 0, at most 1"]);
    }
}

#[test]
fn ids_that_bytes_never_have_and_models_that_are_not_there_are_named() {
    let desk = Desk::new();
    desk.write("own.toml", &TEXT.replace("vocab = 257", "vocab = 5000"));
    desk.run(&["plan", "own.toml", "--device", "rtx-4090"]).must(0, &["4743 of the 5000"]);
    desk.write("gpt.toml", "[model]\npreset = \"gpt2\"\n[data]\ntrain = \"a.txt\"\n[train]\neffective_batch = 8\n");
    desk.run(&["plan", "gpt.toml"]).must(2, &["decoder-only models are not supported"]);
}

#[test]
fn keys_of_other_tasks_are_not_called_allowed() {
    let desk = checkpoint();
    let answer = desk.run(&["plan", "encoder.toml", "--set", "data.captio=\"x\""]);
    answer.must(2, &["allowed:", "text_pair"]);
    assert!(!answer.stderr.contains("caption,") && !answer.stderr.contains("max_target_length"), "{}", answer.stderr);
}

#[test]
fn an_export_of_a_family_of_our_own_says_who_can_read_it() {
    let desk = Desk::new();
    desk.run(&["train", "series.toml", "--device", "cpu", "--out", "run", "--steps", "2"]).must(0, &["batches/s"]);
    desk.run(&["export", "run", "out"]).must(0, &["a family of plimsoll's own"]);
}

#[test]
fn two_configurations_stand_side_by_side() {
    let desk = Desk::new();
    let shown = desk.run(&["plan", "series.toml", "--device", "rtx-4090", "--against", "train.effective_batch=8"]);
    shown.must(0, &[]);
    for word in ["activations", "optimizer", "difference"] {
        assert!(shown.stdout.contains(word), "{}", shown.stdout);
    }
}

#[test]
fn a_page_of_what_does_not_fit_has_the_ways_out() {
    let desk = Desk::new();
    let tight = ["plan", "series.toml", "--device", "rtx-4090", "--memory", "690MiB", "--html", "page.html"];
    assert_eq!(desk.run(&tight).code, 3);
    let page = std::fs::read_to_string(desk.path("page.html")).unwrap();
    assert!(page.contains("way out"), "{page}");
}

/// However much is asked for, a card has what it has.
#[test]
fn advice_knows_how_large_cards_are() {
    let desk = Desk::new();
    let recipe = "[model]\npreset = \"bert-base-uncased\"\n[data]\ntrain = \"texts.jsonl\"\nmax_length = 128\n[train]\ntask = \"classify\"\neffective_batch = 32\n";
    desk.write("encoder.toml", recipe);
    let advice = desk.run(&["advise", "encoder.toml", "--memory", "32GB"]);
    advice.must(0, &[]);
    let line = |card: &str| advice.stdout.lines().find(|line| line.trim_start().starts_with(card)).unwrap();
    assert!(line("rtx-2060 ").contains("5.47 GiB") && line("rtx-5090 ").contains("29.8 GiB"), "{}", advice.stdout);
}

#[test]
fn lengths_beyond_what_attention_counts_are_refused_with_what_to_do() {
    let desk = Desk::new();
    let model = "family = \"t5\"\nvocab_size = 128\nd_model = 16\nd_kv = 8\nd_ff = 32\nnum_layers = 1\nnum_heads = 2";
    let data = "source = \"synthetic:recipes\"\nsamples = 60\nmax_length = 24\nmax_target_length = 100000";
    desk.write("pairs.toml", &format!("[model]\n{model}\n[data]\n{data}\n[train]\neffective_batch = 8\nepochs = 1\n"));
    desk.run(&["train", "pairs.toml", "--device", "cpu"]).must(2, &["65535 positions", "hint: make"]);
}
