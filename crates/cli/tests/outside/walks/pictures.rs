//! Pictures with captions; pictures alone, and captions alone.

use super::{lines, told_of_data, train};
use crate::common::Desk;

const RECIPE: &str = r#"
[model]
family = "clip"
projection_dim = 8

[model.text_config]
vocab_size = 64
hidden_size = 8
intermediate_size = 16
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 16

[model.vision_config]
hidden_size = 8
intermediate_size = 16
num_hidden_layers = 1
num_attention_heads = 2
image_size = 16
patch_size = 8

[data]
source = "synthetic:shapes"
samples = 60
max_length = 16

[train]
task = "contrastive"
effective_batch = 8
epochs = 1
evaluate = { every = "epoch", metric = "recall_at_5" }
"#;

/// The smallest picture: a bitmap of one colour.
fn bitmap(shade: u8) -> Vec<u8> {
    let (side, row) = (16u32, 48u32);
    let mut bytes = b"BM".to_vec();
    let words = |bytes: &mut Vec<u8>, all: &[u32]| all.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    words(&mut bytes, &[54 + side * row, 0, 54, 40, side, side, 1 | 24 << 16, 0, side * row, 2835, 2835, 0, 0]);
    bytes.extend((0..side * row).map(|at| shade.wrapping_add((at % 7) as u8)));
    bytes
}

#[test]
fn pictures_go_from_folder_to_embeddings() {
    let desk = Desk::new();
    desk.write("clip.toml", RECIPE);
    train(&desk, "clip.toml", "run");
    let scores = desk.json(&["eval", "run", "--json"]);
    for key in ["recall_at_1", "recall_at_5", "recall_at_10", "accuracy"] {
        assert!(scores[key].is_number(), "{key}: {scores}");
    }
    assert!(scores["retrieval"]["image_to_text"]["5"].is_number(), "{scores}");

    // How many are evaluated at a time changes nothing.
    for batch in ["1", "3", "8"] {
        let one = format!("train.evaluate.batch={batch}");
        let out = format!("run-{batch}");
        let answer = desk.run(&["train", "clip.toml", "--out", &out, "--set", &one]);
        assert_eq!(answer.code, 0, "{}", answer.stderr);
        let other = desk.json(&["eval", &out, "--json"]);
        let near = |key: &str| (other[key].as_f64().unwrap() - scores[key].as_f64().unwrap()).abs() < 1e-5;
        assert!(["loss", "accuracy", "recall_at_5"].into_iter().all(near), "batch {batch}: {other} against {scores}");
    }

    std::fs::create_dir(desk.path("pics")).unwrap();
    for (name, shade) in [("a.bmp", 10), ("c.bmp", 200)] {
        std::fs::write(desk.path("pics").join(name), bitmap(shade)).unwrap();
    }
    std::fs::write(desk.path("pics/b.bmp"), "no picture at all").unwrap();
    let answer = desk.run(&["predict", "run", "pics"]);
    told_of_data(&desk, "pictures-unanswered", &answer, &["error:", "hint:"]);
    let answers = lines(&answer);
    let found: Vec<_> = answers.iter().map(|a| (a["row"].as_u64().unwrap(), a["image"].as_str())).collect();
    assert_eq!(found, [(0, Some("a.bmp")), (1, None), (2, Some("c.bmp"))], "{answers:?}");
    assert!(answers[1]["error"].as_str().unwrap().contains("b.bmp"), "{}", answers[1]);
    assert!(answers[0]["image_embedding"].is_array() && answers[0]["text_embedding"].is_null(), "{}", answers[0]);

    desk.write("words.csv", "id,caption\nx,a red circle\ny,a blue square\n");
    let answers = lines(&desk.run(&["predict", "run", "words.csv"]));
    assert!(answers[1]["id"] == "y" && answers[1]["text_embedding"].is_array(), "{answers:?}");
    assert!(answers[1]["image_embedding"].is_null() && answers[1]["similarity"].is_null(), "{}", answers[1]);
}
