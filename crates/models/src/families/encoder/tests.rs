//! What must not change an encoder's outcome: how many samples are computed together, padding, the form of the
//! attention, leaving out tokens that nobody reads. Dropout is on throughout.

use super::*;
use crate::families::{AttentionForm, FeedForwardForm};
use crate::recipe::{Model, ProblemType, Recipe};
use plimsoll_base::random::{Stream, site};
use plimsoll_core::autodiff::gradients;
use plimsoll_core::graph::Target;
use plimsoll_core::plan::{LayoutOptions, Phase, Program, lay_out};
use plimsoll_core::types::DType;
use plimsoll_exec::cpu::CpuExecutor;
use std::collections::BTreeMap;

const KINDS: [&str; 4] = ["bert", "roberta", "xlm-roberta", "deberta-v3"];
/// Real tokens of each sample.
const LENGTHS: [usize; 2] = [7, 4];

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

fn build(batch: usize, length: usize) -> Build {
    let attention = AttentionForm::Fused;
    let (loss_chunk, feed_forward) = (usize::MAX, FeedForwardForm::Plain);
    Build { batch, length, target_length: 0, training: true, attention, block_group: 1, loss_chunk, feed_forward }
}

/// Logits and gradients by name of samples `first..`; those beyond `LENGTHS` are padding.
type Outcome = BTreeMap<String, Vec<f32>>;

fn outcome(encoder: &Encoder, build: &Build, first: usize) -> Outcome {
    let mut graph = Graph::new("pass", DType::F32);
    let outputs = encoder.forward(&mut graph, build).unwrap();
    run(graph, outputs, build, first)
}

fn run(mut graph: Graph, outputs: Outputs, build: &Build, first: usize) -> Outcome {
    let scale = graph.scalar("loss.scale").unwrap();
    let trained = graph.trained();
    let grads = gradients(&mut graph, outputs.loss, scale, &trained).unwrap();
    let mut kept = vec![("logits".to_string(), outputs.logits.unwrap())];
    kept.extend(trained.iter().zip(grads).map(|(&p, g)| (graph.value(p).name.clone(), g.unwrap())));
    kept.iter().for_each(|&(_, value)| graph.keep(value));
    let names: Vec<(String, String)> = kept.into_iter().map(|(name, v)| (name, graph.value(v).name.clone())).collect();
    let program = Program::new(vec![Phase { name: "only".into(), graph, repeat: 1 }]).unwrap();
    let layout = lay_out(&program, LayoutOptions { target: Target::cpu(2), sharing: true }).unwrap();
    let mut executor = CpuExecutor::new(&program, &layout, 2).unwrap();
    executor.poison_dead_slots();
    for resident in program.residents.iter().filter(|r| r.is_parameter) {
        let stream = Stream::new(1, site(&resident.name), 0);
        let noise = |i: usize| stream.word(0, 0, i as u32) as f32 / 2f32.powi(32) - 0.5;
        executor.resident_mut::<f32>(&resident.name).unwrap().iter_mut().enumerate().for_each(|(i, x)| *x = noise(i));
    }
    executor.resident_mut::<i64>("rng").unwrap().copy_from_slice(&[3, 5, first as i64]);
    executor.resident_mut::<f32>("loss.scale").unwrap()[0] = 1.0;
    write_inputs(&mut executor, build, first);
    executor.run(0);
    names.into_iter().map(|(name, value)| (name, executor.output::<f32>(0, &value).unwrap().to_vec())).collect()
}

fn write_inputs(executor: &mut CpuExecutor, build: &Build, first: usize) {
    for row in 0..build.batch {
        let (sample, time) = (first + row, build.length);
        let real = LENGTHS.get(sample).copied().unwrap_or(0);
        let mut fill = |name: &str, value: &dyn Fn(usize) -> i32| {
            // Not every kind has types.
            let Some(to) = executor.input_mut::<i32>(0, name) else { return };
            to[row * time..][..time].iter_mut().enumerate().for_each(|(t, x)| *x = if t < real { value(t) } else { 0 });
        };
        fill("ids", &|t| (5 * sample + 3 * t + 2) as i32 % 31);
        fill("mask", &|_| 1);
        fill("types", &|t| (t > 2) as i32);
        executor.input_mut::<i32>(0, "label").unwrap()[row] = if real > 0 { (sample + 1) as i32 } else { 0 };
        executor.input_mut::<f32>(0, "weight").unwrap()[row] = (real > 0) as u32 as f32;
    }
}

#[track_caller]
fn assert_same(name: &str, a: &[f32], b: &[f32]) {
    let norm = |v: &mut dyn Iterator<Item = f32>| v.map(|x| (x as f64).powi(2)).sum::<f64>().sqrt();
    let (size, difference) = (norm(&mut b.iter().copied()), norm(&mut a.iter().zip(b).map(|(a, b)| a - b)));
    // Key biases have no gradient but rounding.
    assert!(difference <= 2e-6 * size.max(1.0), "{name}: {difference:e} of {size:e}");
}

#[track_caller]
fn assert_equal(a: &Outcome, b: &Outcome) {
    assert_eq!(a.len(), b.len());
    a.iter().for_each(|(name, values)| assert_same(name, values, &b[name]));
}

#[test]
fn a_batch_is_the_sum_of_its_samples_and_padding_counts_nothing() {
    for encoder in KINDS.map(encoder) {
        let together = outcome(&encoder, &build(2, 7), 0);
        let apart = [outcome(&encoder, &build(1, 7), 0), outcome(&encoder, &build(1, 7), 1)];
        let with_padding = outcome(&encoder, &build(3, 11), 0);
        for (name, values) in &together {
            let parts = apart.each_ref().map(|a| &a[name]);
            let (joined, padded) = match name.as_str() {
                "logits" => (parts.map(|p| p.as_slice()).concat(), &with_padding[name][..values.len()]),
                _ => (parts[0].iter().zip(parts[1]).map(|(a, b)| a + b).collect(), &with_padding[name][..]),
            };
            assert_same(name, &joined, values);
            assert_same(name, padded, values);
        }
    }
}

#[test]
fn leaving_out_tokens_that_nobody_reads_changes_nothing() {
    for encoder in KINDS.map(encoder) {
        let build = build(2, 7);
        let mut graph = Graph::new("pass", DType::F32);
        let all = encoder.hidden(&mut graph, &build, Wanted::All).unwrap();
        let first = encoder.first_tokens(&mut graph, &build, all).unwrap();
        let logits = encoder.logits(&mut graph, &build, first).unwrap();
        let outputs = encoder.loss(&mut graph, &build, logits).unwrap();
        assert_equal(&outcome(&encoder, &build, 0), &run(graph, outputs, &build, 0));
    }
}

#[test]
fn both_forms_of_attention_agree() {
    let (encoder, fused) = (encoder("bert"), build(2, 7));
    let materialized = Build { attention: AttentionForm::Materialized, ..fused };
    assert_equal(&outcome(&encoder, &fused, 0), &outcome(&encoder, &materialized, 0));
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
