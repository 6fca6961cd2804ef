//! What evaluations say is what answers say, and what chooses the best checkpoint is what the recipe names.

use crate::common::Desk;
use serde_json::Value;

const TEXTS: &str = r#"
[model]
family = "bert"
hidden_size = 8
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 16
vocab_size = 400
max_position_embeddings = 32
num_labels = 3

[data]
source = "synthetic:sentiment"
samples = 60
max_length = 16

[train]
task = "classify"
effective_batch = 16
epochs = 1
"#;

/// A desk with a checkpoint `tiny`, texts of three unequally frequent classes to learn from and others to be judged by.
fn desk() -> Desk {
    let desk = Desk::new();
    desk.write("tiny.toml", &TEXTS.replace("num_labels = 3", "num_labels = 2"));
    let made = desk.run(&["train", "tiny.toml", "--out", "made"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    std::fs::rename(desk.path("made/model"), desk.path("tiny")).unwrap();
    let class = |i: usize| ["a", "a", "a", "a", "b", "b", "c"][i % 7];
    let rows = |from: usize, to: usize| -> String {
        (from..to)
            .map(|i| format!("{{\"text\": \"good film {}\", \"label\": \"{}\"}}\n", i * i % 11, class(i)))
            .collect()
    };
    desk.write("train.jsonl", &rows(0, 70));
    desk.write("held-out.jsonl", &rows(70, 101));
    desk
}

fn recipe(more: &str) -> String {
    format!(
        "[model]\ncheckpoint = \"tiny\"\nnum_labels = 3\nhidden_dropout_prob = 0.0\n[data]\ntrain = \"train.jsonl\"\n\
         validation = \"held-out.jsonl\"\nmax_length = 16\n[train]\ntask = \"classify\"\neffective_batch = 16\nepochs = 3\n\
         optimizer = {{ name = \"adamw\", lr = 1e-2 }}\n{more}\n"
    )
}

fn answers(desk: &Desk, run: &str) -> Vec<Value> {
    let answer = desk.run(&["predict", run, "held-out.jsonl"]);
    assert_eq!(answer.code, 0, "{}", answer.stderr);
    answer.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn truth(desk: &Desk) -> Vec<String> {
    let text = std::fs::read_to_string(desk.path("held-out.jsonl")).unwrap();
    let label = |line: &str| serde_json::from_str::<Value>(line).unwrap()["label"].as_str().unwrap().to_string();
    text.lines().map(label).collect()
}

/// PyTorch's definition: Σ weight · −log p ÷ Σ weight.
#[test]
fn weighted_classes_weigh_as_in_pytorch() {
    let desk = desk();
    let (samples, counts) = (70.0, [40.0, 20.0, 10.0]);
    let balanced: Vec<f64> = counts.iter().map(|count| samples / (3.0 * count)).collect();
    for (key, weights) in [("[0.5, 1.0, 4.0]", vec![0.5, 1.0, 4.0]), ("\"balanced\"", balanced)] {
        desk.write("w.toml", &recipe(&format!("class_weights = {key}")));
        let out = format!("run-{}", key.len());
        let trained = desk.run(&["train", "w.toml", "--out", &out]);
        assert_eq!(trained.code, 0, "{}", trained.stderr);
        assert!(trained.stderr.contains("(weight ") || trained.stdout.contains("(weight "), "{}", trained.stderr);
        let (mut loss, mut total) = (0.0, 0.0);
        for (answer, label) in answers(&desk, &out).iter().zip(truth(&desk)) {
            let class = ["a", "b", "c"].iter().position(|name| *name == label).unwrap();
            loss -= weights[class] * answer["probabilities"][class].as_f64().unwrap().ln();
            total += weights[class];
        }
        let found = desk.json(&["eval", &out, "--json"])["loss"].as_f64().unwrap();
        assert!((found - loss / total).abs() < 1e-5 * found.abs().max(1.0), "{key}: {found}, not {}", loss / total);
    }
}

#[test]
fn class_weights_that_do_not_go_with_the_model_are_refused() {
    let desk = desk();
    for (key, word) in [
        ("class_weights = [1.0, 2.0]", "2 weights are listed, the model has 3 classes"),
        ("class_weights = \"ballanced\"", "did you mean \"balanced\"?"),
        ("class_weights = [1.0, -2.0, 1.0]", "class_weights"),
        ("evaluate = { every = \"epoch\", metric = \"rouge_l\" }", "have no rouge_l"),
        ("evaluate = { every = \"never\", metric = \"f1\" }", "metric"),
    ] {
        desk.write("w.toml", &recipe(key));
        desk.run(&["plan", "w.toml"]).must(2, &[word]);
    }
}

/// The scores of the best checkpoint are the best by the measure that the recipe names, whatever the loss says.
#[test]
fn the_metric_of_the_recipe_chooses_the_best_checkpoint() {
    let desk = desk();
    for metric in ["loss", "accuracy", "f1"] {
        desk.write("m.toml", &recipe(&format!("evaluate = {{ every = 3, metric = \"{metric}\" }}")));
        let out = format!("run-{metric}");
        let end = desk.json(&["train", "m.toml", "--out", &out, "--json"]);
        let events = std::fs::read_to_string(desk.path(&format!("{out}/events.jsonl"))).unwrap();
        let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let evaluations: Vec<&Value> = events.iter().filter(|event| event["event"] == "evaluation").collect();
        assert!(evaluations.len() >= 4, "{evaluations:?}");
        let value = |event: &Value| event[metric].as_f64().unwrap() * if metric == "loss" { -1.0 } else { 1.0 };
        let best = evaluations.iter().map(|event| value(event)).fold(f64::NEG_INFINITY, f64::max);
        assert_eq!(value(&end["best"]), best, "{metric}: {end}");
        let again = desk.json(&["eval", &out, "--json"]);
        assert!((value(&again) - best).abs() < 1e-6, "the model that was kept is the best one: {again}");
    }
}

/// A confusion matrix and scores by class that follow from the answers.
#[test]
fn scores_by_class_are_those_of_the_answers() {
    let desk = desk();
    desk.write("m.toml", &recipe(""));
    assert_eq!(desk.run(&["train", "m.toml", "--out", "run"]).code, 0);
    let mut confusion = vec![vec![0u64; 3]; 3];
    for (answer, label) in answers(&desk, "run").iter().zip(truth(&desk)) {
        let class = ["a", "b", "c"].iter().position(|name| *name == label).unwrap();
        confusion[class][answer["class"].as_u64().unwrap() as usize] += 1;
    }
    let scores = desk.json(&["eval", "run", "--json"]);
    assert_eq!(scores["confusion"], serde_json::to_value(&confusion).unwrap());
    for class in 0..3 {
        let of_class: u64 = confusion[class].iter().sum();
        assert_eq!(scores["classes"][class]["support"].as_u64(), Some(of_class));
        let recall = confusion[class][class] as f64 / of_class as f64;
        assert!((scores["classes"][class]["recall"].as_f64().unwrap() - recall).abs() < 1e-12, "{scores}");
    }
}

/// Names that a checkpoint has for its classes keep their order: its head answers in it.
#[test]
fn a_checkpoint_keeps_the_order_of_its_classes() {
    let desk = desk();
    let path = desk.path("tiny/config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["id2label"] = serde_json::json!({"0": "positive", "1": "negative"});
    config["label2id"] = serde_json::json!({"positive": 0, "negative": 1});
    std::fs::write(&path, config.to_string()).unwrap();
    let rows: String = (0..40)
        .map(|i| format!("{{\"text\": \"film {i}\", \"label\": \"{}\"}}\n", ["negative", "positive"][i % 2]))
        .collect();
    desk.write("train.jsonl", &rows);
    desk.write("held-out.jsonl", &rows);
    desk.write("m.toml", &recipe("").replace("num_labels = 3", "num_labels = 2"));
    assert_eq!(desk.run(&["train", "m.toml", "--out", "run"]).code, 0);
    let exported: Value = serde_json::from_slice(&std::fs::read(desk.path("run/model/config.json")).unwrap()).unwrap();
    assert_eq!(exported["id2label"], serde_json::json!({"0": "positive", "1": "negative"}));
}

/// The names and the scale of other data are not what the weights learned.
#[test]
fn a_run_is_judged_by_the_data_it_learned_from_or_not_at_all() {
    let desk = desk();
    let rows = std::fs::read_to_string(desk.path("train.jsonl")).unwrap();
    let scores = |run: &str| desk.json(&["eval", run, "--json"])["accuracy"].clone();
    for (out, every) in [("kept", "\"epoch\""), ("bare", "\"never\"")] {
        desk.write("train.jsonl", &rows);
        let more = format!("checkpoint = {{ every = {every} }}\nevaluate = {{ every = {every} }}");
        desk.write("t.toml", &recipe(&more).replace("num_labels = 3", "num_labels = 4"));
        let trained = desk.run(&["train", "t.toml", "--out", out]);
        assert_eq!(trained.code, 0, "{}", trained.stderr);
        let before = scores(out);
        assert_eq!(
            desk.json(&["eval", out, "--json"])["classes"][3]["name"],
            "LABEL_3",
            "as answers and exports call it"
        );
        desk.write("train.jsonl", &format!("{rows}{}\n", "{\"text\": \"good film\", \"label\": \"Aa\"}"));
        let told = ["was trained on other data", "put the data back", "plimsoll predict"];
        desk.run(&["eval", out]).must(2, &told);
        desk.write("train.jsonl", &rows);
        assert_eq!(scores(out), before);
        // Of an earlier version a checkpoint may remember it, or nothing.
        std::fs::remove_file(desk.path(&format!("{out}/data.json"))).unwrap();
        let old = desk.run(&["eval", out]);
        assert_eq!(old.code, 0, "{}", old.stderr);
        assert_eq!(old.stderr.contains("does not remember its data"), out == "bare", "{}", old.stderr);
    }
}
