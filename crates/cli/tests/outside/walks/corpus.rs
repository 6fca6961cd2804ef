//! A corpus in a text file, and a language model of bytes.

use super::{lines, told, train};
use crate::common::Desk;

const RECIPE: &str = r#"
[model]
family = "mu-sota"
vocab = 257
layers = 1
blocks = 2
block_width = 4
block_heads = 2
cross_heads = 2
ffn = 8
max_length = 16

[data]
train = "corpus.dat"
format = "text"

[train]
task = "language-model"
effective_batch = 8
epochs = 1
evaluate = { every = "epoch", metric = "perplexity" }
sample = { length = 8 }
"#;

#[test]
fn a_corpus_goes_from_file_to_text() {
    let desk = Desk::new();
    desk.write("corpus.dat", &"Der Kreis ist rot. 算法 ist gut.\n".repeat(60));
    // A file whose name does not say what it is.
    desk.write("unsaid.toml", &RECIPE.replace("format = \"text\"\n", ""));
    told(&desk, "corpus-format", &desk.run(&["plan", "unsaid.toml"]));
    desk.write(
        "tokenizer.toml",
        &RECIPE.replace("format = \"text\"", "format = \"text\"\ntokenizer = \"nowhere.json\""),
    );
    told(&desk, "corpus-tokenizer", &desk.run(&["train", "tokenizer.toml", "--out", "none"]));
    assert!(!desk.path("none/checkpoints").exists(), "it is found before the first step");
    desk.write("corpus.toml", RECIPE);
    train(&desk, "corpus.toml", "run");
    let scores = desk.json(&["eval", "run", "--json"]);
    let (loss, perplexity) = (scores["loss"].as_f64().unwrap(), scores["perplexity"].as_f64().unwrap());
    assert!((loss.exp() - perplexity).abs() < 1e-9, "{scores}");
    let written = desk.json(&["generate", "run", "--prompt", "Der", "--tokens", "5", "--json"]);
    assert!(written["text"].is_string(), "{written}");
    let answer = desk.run(&["predict", "run", "corpus.dat"]);
    told(&desk, "corpus-predict", &answer);
    assert!(lines(&answer).is_empty());
}
