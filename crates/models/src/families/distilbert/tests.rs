//! What must not change a DistilBERT's outcome, and what is refused.

use super::*;
use crate::families::testing::{assert_batch_is_its_samples, assert_equal, assert_forms_agree, build, outcome, run};
use crate::families::texts::first_tokens;
use crate::families::{Model, ProblemType, Sizes};
use crate::recipe::Recipe;
use plimsoll_core::types::DType;

fn recipe(keys: &str) -> String {
    format!(
        "[model]\nfamily = \"distilbert\"\n{keys}\n[data]\ntrain = \"data.jsonl\"\ntokenizer = \"tokenizer.json\"\n\
         max_length = 16\n[train]\neffective_batch = 2\nepochs = 1\n"
    )
}

fn read(keys: &str) -> Result<DistilBert, String> {
    match Recipe::parse(&recipe(keys), "test.toml", &[]).map_err(|error| error.to_string())?.model {
        Model::DistilBert(sizes) => Ok(sizes),
        other => panic!("{other:?} is another family"),
    }
}

fn small() -> DistilBert {
    read(
        "vocab_size = 31\ndim = 24\nn_layers = 2\nn_heads = 3\nhidden_dim = 40\nmax_position_embeddings = 20\n\
         num_labels = 3\ndropout = 0.3\nattention_dropout = 0.2\nseq_classif_dropout = 0.4\ninitializer_range = 0.3",
    )
    .unwrap()
}

#[test]
fn a_batch_is_the_sum_of_its_samples_and_padding_counts_nothing() {
    assert_batch_is_its_samples(&small());
}

#[test]
fn both_forms_of_attention_agree() {
    assert_forms_agree(&small());
}

#[test]
fn leaving_out_tokens_that_nobody_reads_changes_nothing() {
    let (model, build) = (small(), build(2, 7));
    let mut graph = Graph::new("pass", DType::F32);
    let all = model.hidden(&mut graph, &build, Wanted::All).unwrap();
    let first = first_tokens(&mut graph, &build, all).unwrap();
    let logits = model.logits(&mut graph, &build, first).unwrap();
    let outputs = model.labels().loss(&mut graph, &build, logits).unwrap();
    assert_equal(&outcome(&model, &build, 0), &run(graph, outputs, &build, 0));
}

/// Each of the three alone: one that the graph left out would leave the outcome as it was without dropout.
#[test]
fn every_dropout_drops() {
    let none = DistilBert { dropout: 0.0, attention_dropout: 0.0, seq_classif_dropout: 0.0, ..small() };
    // Something has to declare the seed.
    let barely = DistilBert { seq_classif_dropout: f32::MIN_POSITIVE, ..none.clone() };
    let logits = |model: &DistilBert| outcome(model, &build(2, 7), 0)["logits"].clone();
    let kept = logits(&barely);
    for model in [
        DistilBert { dropout: 0.5, ..none.clone() },
        DistilBert { attention_dropout: 0.5, ..none.clone() },
        DistilBert { seq_classif_dropout: 0.5, ..none },
    ] {
        assert_ne!(logits(&model), kept, "{model:?}");
    }
}

#[test]
fn the_problem_decides_the_loss() {
    for (problem, labels, has_answers) in [
        (ProblemType::Single, "label", true),
        (ProblemType::Multi, "labels", false),
        (ProblemType::Regression, "labels", false),
    ] {
        let model = DistilBert { problem_type: problem, ..small() };
        let mut graph = Graph::new("pass", DType::F32);
        let outputs = model.forward(&mut graph, &build(2, 7)).unwrap();
        assert_eq!(outputs.correct.is_some(), has_answers);
        assert!(graph.find(labels).is_some());
    }
}

#[test]
fn the_graph_has_as_many_parameters_as_are_counted() {
    for keys in ["dim = 8\nn_heads = 2", "dim = 30\nn_heads = 5\nn_layers = 3\nhidden_dim = 7\nnum_labels = 9"] {
        let model = read(&format!("{keys}\nvocab_size = 40\nmax_position_embeddings = 20")).unwrap();
        let mut graph = Graph::new("pass", DType::F32);
        model.forward(&mut graph, &build(2, 7)).unwrap();
        let numbers = |id| graph.shape(id).iter().product::<usize>() as u64;
        assert_eq!(model.parameters(), Some(graph.trained().into_iter().map(numbers).sum()));
    }
}

#[test]
fn what_is_not_computed_is_refused() {
    let refused = |keys: &str, cause: &str| {
        let text = read(keys).expect_err(keys);
        assert!(text.contains(cause), "{keys}: {text}");
    };
    refused("n_heads = 7", "model.n_heads: 7 heads do not divide the width 768 (dim)");
    refused("sinusoidal_pos_embds = true", "only read from a checkpoint");
    refused("pad_token_id = 30522", "outside of the vocabulary");
    refused("num_labels = 1\nproblem_type = \"single_label_classification\"", "a single label");
    refused("hidden_size = 768", "hidden_size");
    refused("preset = \"bert-base-uncased\"", "this preset is of family bert, not distilbert");
    assert_eq!(read("num_labels = 1").unwrap().problem_type, ProblemType::Regression);
}

#[test]
fn a_config_gives_the_sizes_and_its_other_names_must_agree() {
    let dir = tempfile::tempdir().unwrap();
    let config = |text: &str| {
        std::fs::write(dir.path().join("config.json"), text).unwrap();
        read(&format!("checkpoint = {:?}", dir.path().display().to_string()))
    };
    let sines = r#"{"model_type": "distilbert", "n_layers": 3, "sinusoidal_pos_embds": true, "qa_dropout": 0.5}"#;
    let sizes = config(sines).unwrap();
    assert_eq!((sizes.n_layers, sizes.dim, sizes.sinusoidal_pos_embds), (3, 768, true));
    let same = config(r#"{"model_type": "distilbert", "dim": 24, "hidden_size": 24}"#).unwrap();
    assert_eq!((same.dim, same.seq_classif_dropout), (24, 0.2));
    let text = config(r#"{"model_type": "distilbert", "dim": 24, "hidden_size": 48}"#).unwrap_err();
    assert!(text.contains("hidden_size: only the same as dim is supported"), "{text}");
    let text = config(r#"{"model_type": "distilbert", "activation": "mish"}"#).unwrap_err();
    assert!(text.contains("activation") && text.contains("mish"), "{text}");
}
