//! Pairs of texts for a model that reads one and writes the other.

use super::{lines, told, train};
use crate::common::Desk;

const RECIPE: &str = r#"
[model]
family = "t5"
vocab_size = 400
d_model = 8
d_kv = 4
d_ff = 16
num_layers = 1
num_heads = 2

[data]
source = "synthetic:recipes"
samples = 60
max_length = 24
max_target_length = 12

[train]
task = "seq2seq"
effective_batch = 8
epochs = 1
evaluate = { every = "epoch", metric = "rouge_l" }
"#;

#[test]
fn pairs_go_from_file_to_written_answers() {
    let desk = Desk::new();
    desk.write("t5.toml", RECIPE);
    // A measure that evaluations of the task do not have.
    desk.write("wrong.toml", &RECIPE.replace("rouge_l", "f1"));
    told(&desk, "pairs-metric", &desk.run(&["plan", "wrong.toml"]));
    train(&desk, "t5.toml", "run");
    let events = std::fs::read_to_string(desk.path("run/events.jsonl")).unwrap();
    let evaluation = events.lines().find(|line| line.contains("\"event\":\"evaluation\"")).unwrap();
    assert!(evaluation.contains("\"rouge_l\":") && evaluation.contains("\"exact_match\":"), "{evaluation}");

    let scores = desk.json(&["eval", "run", "--json", "--texts", "3"]);
    assert_eq!(scores["texts"], 3, "{scores}");
    assert!(scores["rouge_1"].is_number() && scores["rouge_2"].is_number(), "{scores}");
    let without = desk.json(&["eval", "run", "--json", "--texts", "0"]);
    assert!(without["rouge_1"].is_null() && without["loss"] == scores["loss"], "{without}");

    desk.write(
        "q.jsonl",
        "{\"source\": \"two eggs\", \"id\": 9007199254740993}\n{\"source\": \"\"}\n{\"source\": \"milk\"}\n",
    );
    let answer = desk.run(&["predict", "run", "q.jsonl"]);
    assert_eq!(answer.code, 1, "{}", answer.stderr);
    let answers = lines(&answer);
    let rows: Vec<_> =
        answers.iter().map(|a| (a["row"].as_u64().unwrap(), a["text"].is_string(), a["error"].is_string())).collect();
    assert_eq!(rows, [(0, true, false), (1, false, true), (2, true, false)]);
    assert_eq!(answers[0]["id"].as_u64(), Some(9007199254740993), "to its last digit");
}
