//! Labelled texts in four scripts, and a small checkpoint to start from.

use super::{lines, told, told_of_data, train};
use crate::common::Desk;

const CHECKPOINT: &str = r#"
[model]
family = "bert"
hidden_size = 8
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 16
vocab_size = 400
max_position_embeddings = 32
num_labels = 2

[data]
source = "synthetic:sentiment"
samples = 120
max_length = 16

[train]
effective_batch = 16
epochs = 1
"#;

const RECIPE: &str = r#"
[model]
checkpoint = "tiny"
num_labels = 3

[data]
train = "news.csv"
text = "message"
label = "topic"
max_length = 16
on_bad_row = "skip"

[train]
task = "classify"
effective_batch = 8
epochs = 1
evaluate = { every = "epoch", metric = "f1" }
"#;

fn news() -> String {
    let texts = ["good match today", "игра была отличной", "算法 数据", "لعبة جيدة"];
    let topics = ["sport", "спорт", "科技"];
    let mut text = String::from("number,message,topic\r\n");
    for row in 0..60 {
        let message = if row == 6 { "" } else { texts[row % 4] };
        text += &format!("{row},{message},{}\r\n", topics[row % 3]);
    }
    text
}

fn desk() -> Desk {
    let desk = Desk::new();
    desk.write("checkpoint.toml", CHECKPOINT);
    train(&desk, "checkpoint.toml", "made");
    std::fs::rename(desk.path("made/model"), desk.path("tiny")).unwrap();
    desk.write("news.csv", &news());
    desk.write("news.toml", RECIPE);
    desk
}

#[test]
fn labelled_texts_go_from_file_to_prediction() {
    let desk = desk();
    // A name of the hub is no folder; the words say how to get one.
    desk.write("hub.toml", &RECIPE.replace("\"tiny\"", "\"bert-base-uncased\""));
    told(&desk, "texts-hub-name", &desk.run(&["plan", "hub.toml"]));
    desk.write("strict.toml", &RECIPE.replace("\"skip\"", "\"error\""));
    told(&desk, "texts-bad-row", &desk.run(&["train", "strict.toml", "--out", "strict"]));
    desk.write("column.toml", &RECIPE.replace("text = \"message\"\n", ""));
    told(&desk, "texts-column", &desk.run(&["train", "column.toml", "--out", "column"]));
    let trained = train(&desk, "news.toml", "run");
    told_of_data(&desk, "texts-data", &trained, &["texts ", "labels (", "rows were left out", "1 rows were"]);

    // Rows keep their numbers whatever becomes of the ones before them.
    desk.write("in.csv", "id,message\n1,match today\n2,\"virus, again\"\n3,\n4,算法 数据\n");
    let answer = desk.run(&["predict", "run", "in.csv"]);
    assert_eq!(answer.code, 0, "the recipe allows rows to be left out: {}", answer.stderr);
    assert!(answer.stderr.contains("1 of 4 rows have no answer"), "{}", answer.stderr);
    let answers = lines(&answer);
    let rows: Vec<_> = answers.iter().map(|a| (a["row"].as_u64().unwrap(), a["id"].as_str().unwrap())).collect();
    assert_eq!(rows, [(0, "1"), (1, "2"), (2, "3"), (3, "4")]);
    assert!(answers[2]["error"].as_str().unwrap().contains("line 4, column `message`"), "{}", answers[2]);
    assert!(answers[3]["label"].is_string() && answers[3]["error"].is_null(), "{}", answers[3]);
}

#[test]
fn rows_without_an_answer_are_a_failure_where_nothing_allows_them() {
    let desk = desk();
    desk.write("strict.toml", &RECIPE.replace("\"skip\"", "\"error\""));
    desk.write("news.csv", &news().replace("6,,", "6,good,"));
    train(&desk, "strict.toml", "run");
    desk.write("in.jsonl", "{\"message\": \"match\"}\n{\"message\": 7}\nnonsense\n{\"message\": \"again\"}\n");
    let answer = desk.run(&["predict", "run", "in.jsonl"]);
    told_of_data(&desk, "texts-unanswered", &answer, &["error:", "hint:"]);
    let answers = lines(&answer);
    let errors: Vec<bool> = answers.iter().map(|a| !a["error"].is_null()).collect();
    assert_eq!(errors, [false, false, true, false], "{answers:?}");
}
