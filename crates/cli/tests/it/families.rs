//! Encoders, T5 and CLIP from the outside: trained, evaluated, asked, exported, and started again from the export.

use crate::common::Desk;
use serde_json::Value;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

const ENCODER: &str = r#"
[model]
family = "bert"
vocab_size = 128
hidden_size = 16
num_hidden_layers = 2
num_attention_heads = 2
intermediate_size = 32
max_position_embeddings = 48

[data]
source = "synthetic:sentiment"
samples = 300
max_length = 48
workers = 1

[train]
effective_batch = 16
epochs = 2
clip_norm = 1.0
optimizer = { name = "adamw", lr = 1e-3 }
checkpoint = { every = 4, keep = 2 }
"#;

const T5: &str = r#"
[model]
family = "t5"
vocab_size = 128
d_model = 16
d_kv = 8
d_ff = 32
num_layers = 1
num_heads = 2
feed_forward_proj = "gated-gelu"
tie_word_embeddings = false

[data]
source = "synthetic:recipes"
samples = 120
max_length = 24
max_target_length = 48
workers = 0

[train]
effective_batch = 8
epochs = 1
optimizer = { name = "adamw", lr = 1e-3 }
sample = { length = 8, beams = 2 }
"#;

const CLIP: &str = r#"
[model]
family = "clip"
projection_dim = 8
text_config = { vocab_size = 64, hidden_size = 16, intermediate_size = 32, num_hidden_layers = 1, num_attention_heads = 2, max_position_embeddings = 16, eos_token_id = 2 }
vision_config = { hidden_size = 16, intermediate_size = 32, num_hidden_layers = 1, num_attention_heads = 2, image_size = 16, patch_size = 4 }

[data]
source = "synthetic:shapes"
samples = 100
max_length = 16
workers = 0

[train]
effective_batch = 20
epochs = 1
optimizer = { name = "adamw", lr = 1e-3 }

[memory]
micro_batch = 6
"#;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn texts_are_classified_and_the_model_goes_out_and_comes_back() {
    let desk = Desk::new();
    desk.write("texts.toml", ENCODER);
    let outcome = desk.json(&["train", "texts.toml", "--json"]);
    assert_eq!(outcome["end"], "completed");
    assert!(outcome["final"]["accuracy"].is_number() && outcome["final"]["f1"].is_number());
    let [planned, measured] = ["planned_peak_bytes", "measured_peak_bytes"].map(|key| outcome[key].as_u64().unwrap());
    assert!(measured <= planned + 4096, "{measured} of {planned}");
    assert_eq!(desk.json(&["eval", "runs/texts-1", "--json"])["loss"], outcome["best"]["loss"]);

    desk.write("ask.jsonl", "{\"text\": \"the film was good .\"}\n{\"text\": \"it was not dull .\"}\n");
    let answer = desk.run(&["predict", "runs/texts-1", "ask.jsonl"]);
    answer.must(0, &[]);
    let asked = lines(&answer.stdout);
    assert_eq!(asked.len(), 2);
    assert!(asked.iter().all(|line| line["label"] == "positive" || line["label"] == "negative"), "{asked:?}");
    desk.run(&["generate", "runs/texts-1"]).must(2, &["writes no text", "plimsoll predict"]);

    desk.run(&["export", "runs/texts-1", "out"]).must(0, &[]);
    let config: Value = serde_json::from_slice(&fs::read(desk.path("out/config.json")).unwrap()).unwrap();
    assert_eq!(config["architectures"][0], "BertForSequenceClassification");
    assert_eq!(config["id2label"]["1"], "positive");
    let weights = fs::read(desk.path("out/model.safetensors")).unwrap();
    assert_eq!(weights, fs::read(desk.path("runs/texts-1/model/model.safetensors")).unwrap());

    // From the export, with a rate of almost nothing: the scores stay what they were.
    let sizes = ENCODER.split("[data]").nth(1).unwrap().replace("lr = 1e-3", "lr = 1e-12").replace(
        "source = \"synthetic:sentiment\"",
        "source = \"synthetic:sentiment\"\ntokenizer = \"out/tokenizer.json\"",
    );
    desk.write("again.toml", &format!("[model]\ncheckpoint = \"out\"\n[data]{sizes}"));
    let again = desk.json(&["train", "again.toml", "--steps", "1", "--json"]);
    assert_eq!(again["steps"], 1);
    let scores = desk.json(&["eval", "runs/again-1", "--json"]);
    let difference = scores["loss"].as_f64().unwrap() - outcome["best"]["loss"].as_f64().unwrap();
    assert!(difference.abs() < 1e-5, "{difference}");
}

/// The same recipe with and without an evaluation during training learns the same model. Asked afterwards, it answers
/// the same, in as many rows, however many are answered at a time.
#[test]
fn a_model_trained_without_evaluation_answers_like_one_with() {
    let desk = Desk::new();
    let texts = ["good", "bad", "the film was good", "not dull at all . it was not dull", "a fine day for a film ."];
    let row = |key: &str, i: usize| format!("{{\"{key}\": \"{}\"}}\n", texts[i % texts.len()]);
    for (name, recipe, key, tokens) in [("texts", ENCODER, "text", None), ("pairs", T5, "source", Some("6"))] {
        desk.write("recipe.toml", recipe);
        desk.write("ask.jsonl", &(0..43).map(|i| row(key, i)).collect::<String>());
        for (every, out) in [("epoch", "with"), ("never", "without")] {
            let (set, out) = (format!("train.evaluate.every={every}"), format!("{name}-{out}"));
            desk.run(&["train", "recipe.toml", "--steps", "5", "--out", &out, "--set", &set]).must(0, &[]);
        }
        let answers = |run: &str| {
            let mut flags = vec!["predict", run, "ask.jsonl"];
            tokens.iter().for_each(|tokens| flags.extend(["--tokens", tokens]));
            let answer = desk.run(&flags);
            answer.must(0, &[]);
            lines(&answer.stdout)
        };
        let scores = |run: &str| desk.json(&["eval", run, "--json"])["loss"].as_f64().unwrap();
        let (with, without) = (format!("{name}-with"), format!("{name}-without"));
        let (said, loss) = (answers(&with), scores(&with));
        assert_eq!(said.len(), 43);
        assert_near(&said, &answers(&without));
        assert!((scores(&without) - loss).abs() < 1e-5 * loss, "{name}: {loss} and {}", scores(&without));
        // In ever less memory fewer rows are answered at a time, down to where not even one is.
        let stored = fs::read_to_string(desk.path(&format!("{without}/recipe.toml"))).unwrap();
        let mut answered = 0;
        // From 56 MiB down to what the program takes without any arena, which depends on how it was built.
        for kib in [57344, 49152, 45056, 40960, 36864, 34816, 32768, 31744, 31232, 30720, 30208, 29696, 28672, 24576] {
            let lower = stored.replace("budget = \"auto\"", &format!("budget = \"{kib}KiB\""));
            assert_ne!(lower, stored);
            desk.write(&format!("{without}/recipe.toml"), &lower);
            let answer = desk.run(&["eval", &without, "--json"]);
            if answer.code == 3 {
                break;
            }
            answer.must(0, &[]);
            let there = answer.json()["loss"].as_f64().unwrap();
            assert!((there - loss).abs() < 1e-5 * loss, "{name} in {kib} KiB: {loss} and {there}");
            if tokens.is_none() {
                assert_near(&said, &answers(&without));
            }
            answered += 1;
        }
        assert!((3..14).contains(&answered), "{name}: answered in {answered} of 14 budgets");
    }
}

/// The same answers in the same order, numbers to rounding.
fn assert_near(some: &[Value], others: &[Value]) {
    assert_eq!(some.len(), others.len());
    for (one, other) in some.iter().zip(others) {
        let probabilities = |line: &Value| -> Vec<f64> {
            line["probabilities"].as_array().into_iter().flatten().map(|p| p.as_f64().unwrap()).collect()
        };
        let [a, b] = [one, other].map(probabilities);
        assert!(a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5), "{one} and {other}");
        assert_eq!([&one["label"], &one["text"], &one["row"]], [&other["label"], &other["text"], &other["row"]]);
    }
}

#[test]
fn a_killed_run_over_many_lengths_resumes_to_the_same_bits() {
    let desk = Desk::new();
    desk.write("texts.toml", &ENCODER.replace("epochs = 2", "epochs = 8").replace("every = 4", "every = 2"));
    desk.run(&["train", "texts.toml", "--out", "whole"]).must(0, &[]);
    let mut child = desk.command(&["train", "texts.toml", "--out", "part"]).stderr(Stdio::null()).spawn().unwrap();
    let written = || fs::read_dir(desk.path("part/checkpoints")).is_ok_and(|entries| entries.count() > 1);
    while !written() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    desk.run(&["train", "texts.toml", "--resume", "--out", "part"]).must(0, &[]);
    let weights = |run: &str| fs::read(desk.path(&format!("{run}/model/model.safetensors"))).unwrap();
    assert!(weights("whole") == weights("part"), "the weights differ");
}

#[test]
fn an_encoder_decoder_writes() {
    let desk = Desk::new();
    desk.write("pairs.toml", T5);
    let answer = desk.run(&["train", "pairs.toml"]);
    answer.must(0, &["sample:"]);
    desk.write("ask.jsonl", "{\"source\": \"flour , sugar , eggs\"}\n{\"source\": \"milk\"}\n");
    let greedy = desk.run(&["predict", "runs/pairs-1", "ask.jsonl", "--tokens", "12"]);
    greedy.must(0, &[]);
    assert_eq!(lines(&greedy.stdout).len(), 2);
    desk.run(&["predict", "runs/pairs-1", "ask.jsonl", "--tokens", "12", "--beams", "3"]).must(0, &[]);
    let flags = ["generate", "runs/pairs-1", "--prompt", "flour", "--tokens", "10", "--temperature", "0"];
    assert_eq!(desk.run(&flags).stdout, desk.run(&flags).stdout);
    desk.run(&["generate", "runs/pairs-1", "--prompt", "flour", "--beams", "2", "--temperature", "1"])
        .must(2, &["exclude each other", "hint:"]);
    desk.run(&["export", "runs/pairs-1", "out"]).must(0, &[]);
    let config: Value = serde_json::from_slice(&fs::read(desk.path("out/config.json")).unwrap()).unwrap();
    assert_eq!(config["model_type"], "t5");
}

#[test]
fn images_and_captions_accumulate_exactly() {
    let desk = Desk::new();
    desk.write("images.toml", CLIP);
    let split = desk.json(&["train", "images.toml", "--json", "--out", "split"]);
    let whole = desk.json(&["train", "images.toml", "--json", "--out", "whole", "--set", "memory.micro_batch=20"]);
    let [split, whole] = [split, whole].map(|outcome| outcome["final"]["loss"].as_f64().unwrap());
    assert!((split - whole).abs() < 1e-4 * whole.abs(), "{split} in micro-batches, {whole} at once");
    desk.run(&["export", "split", "out"]).must(0, &[]);
    assert!(desk.path("out/tokenizer.json").is_file());
}

#[test]
fn bad_folders_and_files_are_named() {
    let desk = Desk::new();
    desk.write("texts.toml", ENCODER);
    let plan = |sets: &[&str]| {
        let mut flags = vec!["plan", "texts.toml"];
        sets.iter().for_each(|set| flags.extend(["--set", *set]));
        desk.run(&flags)
    };
    plan(&["model.checkpoint=nowhere"]).must(2, &["nowhere", "config.json"]);
    plan(&["model.num_attention_heads=3"]).must(2, &["do not divide"]);
    fs::create_dir(desk.path("gpt")).unwrap();
    desk.write("gpt/config.json", "{\"model_type\": \"gpt2\"}");
    desk.write(
        "gpt.toml",
        "[model]\ncheckpoint = \"gpt\"\n[data]\ntrain = \"a.jsonl\"\n[train]\neffective_batch = 4\n",
    );
    desk.run(&["plan", "gpt.toml"]).must(2, &["gpt2", "bert"]);
    desk.write(
        "rows.toml",
        &ENCODER.replace(
            "source = \"synthetic:sentiment\"\nsamples = 300",
            "train = \"rows.jsonl\"\ntokenizer = \"tokenizer.json\"",
        ),
    );
    desk.run(&["plan", "rows.toml"]).must(0, &[]);
    desk.run(&["train", "rows.toml"]).must(2, &["tokenizer.json", "hint:"]);
    assert!(!desk.path("runs/rows-1/recipe.toml").exists(), "nothing half-written");
}
