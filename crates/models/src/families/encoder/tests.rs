//! What must not change an encoder's outcome: how many samples are computed together, padding, the form of the
//! attention, leaving out tokens that nobody reads. Dropout is on throughout.

use super::*;
use crate::families::testing::{assert_batch_is_its_samples, assert_equal, assert_forms_agree, build, outcome, run};
use crate::families::texts::first_tokens;
use crate::recipe::{Model, ProblemType, Recipe};
use plimsoll_core::types::DType;

const KINDS: [&str; 4] = ["bert", "roberta", "xlm-roberta", "deberta-v3"];

fn encoder(family: &str) -> Encoder {
    let relative = if family == "deberta-v3" { "position_buckets = 4\nmax_relative_positions = 9" } else { "" };
    let text = format!(
        "[model]\nfamily = \"{family}\"\nvocab_size = 31\nhidden_size = 24\nnum_hidden_layers = 2\n\
         num_attention_heads = 3\nintermediate_size = 40\nmax_position_embeddings = 20\nnum_labels = 3\n\
         hidden_dropout_prob = 0.3\nattention_probs_dropout_prob = 0.2\ninitializer_range = 0.3\n{relative}\n\
         [data]\ntrain = \"data.jsonl\"\ntokenizer = \"tokenizer.json\"\n[train]\neffective_batch = 2\nepochs = 1\n"
    );
    match Recipe::parse(&text, "test.toml", &[]).unwrap().model {
        Model::Bert(sizes) | Model::Roberta(sizes) | Model::XlmRoberta(sizes) | Model::DebertaV3(sizes) => sizes,
        other => panic!("{other:?} is no encoder"),
    }
}

#[test]
fn a_batch_is_the_sum_of_its_samples_and_padding_counts_nothing() {
    for encoder in KINDS.map(encoder) {
        assert_batch_is_its_samples(&encoder);
    }
}

#[test]
fn leaving_out_tokens_that_nobody_reads_changes_nothing() {
    for encoder in KINDS.map(encoder) {
        let build = build(2, 7);
        let mut graph = Graph::new("pass", DType::F32);
        let all = encoder.hidden(&mut graph, &build, Wanted::All).unwrap();
        let first = first_tokens(&mut graph, &build, all).unwrap();
        let logits = encoder.logits(&mut graph, &build, first).unwrap();
        let outputs = encoder.labels().loss(&mut graph, &build, logits).unwrap();
        assert_equal(&outcome(&encoder, &build, 0), &run(graph, outputs, &build, 0));
    }
}

#[test]
fn both_forms_of_attention_agree() {
    assert_forms_agree(&encoder("bert"));
}

#[test]
fn the_problem_decides_the_loss() {
    let mut encoder = encoder("bert");
    for (problem, labels, has_answers) in [
        (ProblemType::Single, "label", true),
        (ProblemType::Multi, "labels", false),
        (ProblemType::Regression, "labels", false),
    ] {
        encoder.problem_type = problem;
        let mut graph = Graph::new("pass", DType::F32);
        let outputs = encoder.forward(&mut graph, &build(2, 7)).unwrap();
        assert_eq!(outputs.correct.is_some(), has_answers);
        assert_eq!(graph.shape(outputs.logits.unwrap()), [2, 3]);
        assert!(graph.find(labels).is_some());
    }
}
