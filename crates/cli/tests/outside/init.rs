//! `plimsoll init`: what it writes is what `plimsoll plan` accepts, whatever the data.

use crate::common::Desk;
use serde_json::{Map, Value, json};

/// Runs init, then plans what it wrote.
fn planned(desk: &Desk, out: &str, arguments: &[&str]) -> (Value, String) {
    let answer = desk.json(&[&["init", "--out", out, "--json"], arguments].concat());
    let recipe = std::fs::read_to_string(desk.path(out)).unwrap();
    let plan = desk.run(&["plan", out, "--device", "h200", "--json"]);
    assert_eq!(plan.code, 0, "{arguments:?}\n{recipe}\n{}", plan.stderr);
    assert_eq!(plan.json()["fits"], true);
    (answer, recipe)
}

fn must_hold(recipe: &str, lines: &[&str]) {
    for line in lines {
        assert!(recipe.lines().any(|found| found == *line), "no `{line}` in\n{recipe}");
    }
}

/// A file of `rows` rows in CSV and one in JSONL, the same.
fn tables(desk: &Desk, name: &str, rows: &[Vec<(&str, Value)>]) -> [String; 2] {
    let object = |row: &Vec<(&str, Value)>| row.iter().map(|(k, v)| (k.to_string(), v.clone())).collect::<Map<_, _>>();
    let jsonl: String = rows.iter().map(|row| Value::Object(object(row)).to_string() + "\n").collect();
    let cell = |value: &Value| match value {
        Value::String(text) => format!("\"{}\"", text.replace('"', "\"\"")),
        other => other.to_string(),
    };
    let line = |row: &Vec<(&str, Value)>| row.iter().map(|(_, v)| cell(v)).collect::<Vec<_>>().join(",") + "\n";
    let header = rows[0].iter().map(|(k, _)| k.to_string()).collect::<Vec<_>>().join(",") + "\n";
    let files = [format!("{name}.csv"), format!("{name}.jsonl")];
    desk.write(&files[0], &(header + &rows.iter().map(line).collect::<String>()));
    desk.write(&files[1], &jsonl);
    files
}

#[test]
fn labelled_texts_become_an_encoder() {
    let desk = Desk::new();
    let rows: Vec<_> = (0..40)
        .map(|i| {
            vec![
                ("id", json!(i)),
                ("review", json!(format!("text, number \"{i}\""))),
                ("mood", json!(["bad", "good", "so so"][i % 3])),
            ]
        })
        .collect();
    for (i, file) in tables(&desk, "reviews", &rows).iter().enumerate() {
        let (answer, recipe) = planned(&desk, &format!("r{i}.toml"), &["--data", file]);
        assert_eq!((answer["family"].as_str(), answer["task"].as_str()), (Some("bert"), Some("classify")));
        must_hold(
            &recipe,
            &["num_labels = 3", "text = \"review\"", "label = \"mood\"", "preset = \"bert-base-uncased\""],
        );
    }
}

#[test]
fn another_family_may_be_named() {
    let desk = Desk::new();
    let rows: Vec<_> = (0..20).map(|i| vec![("text", json!(format!("n {i}"))), ("label", json!(i % 2))]).collect();
    let [csv, _] = tables(&desk, "a", &rows);
    for family in ["roberta", "xlm-roberta", "deberta-v3"] {
        let (_, recipe) = planned(&desk, &format!("{family}.toml"), &["--data", &csv, "--family", family]);
        must_hold(&recipe, &["num_labels = 2"]);
    }
}

#[test]
fn numbers_become_a_series_with_or_without_a_label() {
    let desk = Desk::new();
    let row = |i: usize| {
        vec![
            ("time", json!(i)),
            ("open", json!(i as f64 * 0.5)),
            ("close", json!((i * i) as f64)),
            ("volume", json!(7 * i)),
        ]
    };
    let [csv, jsonl] = tables(&desk, "prices", &(0..300).map(row).collect::<Vec<_>>());
    for (i, file) in [csv, jsonl].iter().enumerate() {
        let (answer, recipe) = planned(&desk, &format!("s{i}.toml"), &["--data", file]);
        assert_eq!(answer["family"], "hybrid-cnn-lstm");
        must_hold(
            &recipe,
            &["features = 3", "time = \"time\"", "label_from = { column = \"close\", horizon = 1, threshold = 0.0 }"],
        );
    }
    let labelled = |i: usize| vec![("a", json!(i as f64)), ("b", json!(-(i as f64))), ("label", json!(i % 4))];
    let [csv, _] = tables(&desk, "labelled", &(0..300).map(labelled).collect::<Vec<_>>());
    let (_, recipe) = planned(&desk, "l.toml", &["--data", &csv]);
    must_hold(&recipe, &["features = 2", "classes = 4", "label = \"label\""]);
}

#[test]
fn pairs_captions_and_plain_texts_find_their_family() {
    let desk = Desk::new();
    let pair = |i: usize| {
        vec![("article", json!(format!("a long article number {i}"))), ("summary", json!(format!("short {i}")))]
    };
    let [_, pairs] = tables(&desk, "pairs", &(0..30).map(pair).collect::<Vec<_>>());
    let caption = |i: usize| vec![("image", json!(format!("{i}.png"))), ("caption", json!(format!("image {i}")))];
    let [captions, _] = tables(&desk, "captions", &(0..30).map(caption).collect::<Vec<_>>());
    desk.write("book.txt", &"It was a dark and stormy night. ".repeat(200));
    std::fs::create_dir(desk.path("photos")).unwrap();
    for (data, family, line) in [
        (pairs.as_str(), "t5", "target = \"summary\""),
        (captions.as_str(), "clip", "caption = \"caption\""),
        ("book.txt", "mu-sota", "vocab = 257"),
        ("photos", "clip", "train = \"photos\""),
    ] {
        let (answer, recipe) = planned(&desk, &format!("{family}-{}.toml", data.len()), &["--data", data]);
        assert_eq!(answer["family"], family);
        must_hold(&recipe, &[line]);
    }
}

#[test]
fn every_family_can_be_tried_on_data_made_by_code() {
    let desk = Desk::new();
    for family in ["hybrid-cnn-lstm", "mu-sota", "bert", "roberta", "xlm-roberta", "deberta-v3", "t5", "clip"] {
        let (answer, recipe) = planned(&desk, &format!("{family}.toml"), &["--family", family]);
        assert_eq!(answer["family"], family);
        assert!(recipe.contains("source = \"synthetic:"), "{recipe}");
    }
}

#[test]
fn a_checkpoint_says_its_family_and_names_with_quotes_survive() {
    let desk = Desk::new();
    for (folder, config) in [
        (
            "my \"bert\"",
            json!({"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 64, "vocab_size": 100, "max_position_embeddings": 64}),
        ),
        (
            "t5",
            json!({"model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 100}),
        ),
    ] {
        std::fs::create_dir(desk.path(folder)).unwrap();
        desk.write(&format!("{folder}/config.json"), &config.to_string());
        let (answer, recipe) = planned(&desk, &format!("{}.toml", folder.len()), &["--checkpoint", folder]);
        assert_eq!(answer["family"], config["model_type"]);
        assert!(recipe.contains("checkpoint = "), "{recipe}");
    }
}

#[test]
fn a_recipe_elsewhere_finds_the_data_too() {
    let desk = Desk::new();
    let rows: Vec<_> = (0..20).map(|i| vec![("text", json!(format!("n {i}"))), ("label", json!(i % 2))]).collect();
    let [csv, _] = tables(&desk, "a", &rows);
    std::fs::create_dir(desk.path("sub")).unwrap();
    let (_, recipe) = planned(&desk, "sub/r.toml", &["--data", &csv]);
    let train = recipe.lines().find(|line| line.starts_with("train = ")).unwrap();
    let path: String = serde_json::from_str(train.trim_start_matches("train = ")).unwrap();
    assert!(std::path::Path::new(&path).is_absolute() && std::path::Path::new(&path).exists(), "{path}");
}

#[test]
fn nothing_is_overwritten_and_bad_input_writes_nothing() {
    let desk = Desk::new();
    desk.write("recipe.toml", "mine");
    desk.run(&["init", "--family", "bert"]).must(2, &["recipe.toml", "not overwritten", "--out"]);
    assert_eq!(std::fs::read_to_string(desk.path("recipe.toml")).unwrap(), "mine");
    desk.write("odd.csv", "a,b\nx,y\n");
    desk.write("empty.csv", "");
    std::fs::create_dir(desk.path("folder")).unwrap();
    for (arguments, words) in [
        (&["--data", "no.csv"][..], &["no.csv", "hint:"][..]),
        (&["--data", "empty.csv"], &["empty.csv", "hint:"]),
        (&["--data", "odd.csv"], &["odd.csv", "columns are a, b", "--family"]),
        (&["--data", "odd.csv", "--family", "hybrid-cnn-lstm"], &["columns of numbers"]),
        (&["--data", "folder", "--family", "bert"], &["folder", "rows"]),
        (&["--checkpoint", "folder"], &["config.json"]),
        (&["--family", "brt"], &["did you mean `bert`?"]),
        (&[], &["--data FILE", "--checkpoint DIR"]),
    ] {
        desk.run(&[&["init", "--out", "new.toml"], arguments].concat()).must(2, words);
        assert!(!desk.path("new.toml").exists(), "{arguments:?}");
    }
    desk.run(&["init", "--family", "bert", "--out", "no/such/recipe.toml"]).must(1, &["no/such/recipe.toml", "hint:"]);
}
