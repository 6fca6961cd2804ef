//! Accumulating over micro-batches gives the gradient of the whole effective batch, with dropout on and rows of unequal
//! length: losses are sums over 1/N of the whole batch, and masks are functions of the sample, not of the micro-batch.

use crate::common::{TARGET, relative};
use plimsoll_base::random::site;
use plimsoll_core::autodiff::gradients;
use plimsoll_core::graph::{Component, Graph, GraphError, Init};
use plimsoll_core::ops::*;
use plimsoll_core::plan::{LayoutOptions, Phase, Program, lay_out};
use plimsoll_core::types::{DType, Type};
use plimsoll_exec::Executor;
use plimsoll_exec::cpu::CpuExecutor;
use plimsoll_exec::initialize;
use plimsoll_models::families::{AttentionForm, Build, Family, FeedForwardForm, Input, MuSota, Outputs, Sizes, Task};
use std::collections::BTreeMap;

const EFFECTIVE: usize = 8;
const TIME: usize = 6;
const WIDTH: usize = 12;

/// Attention with dropped weights, a feed-forward with dropout, layer norm: what the families have, without batch norm.
#[derive(Debug)]
struct Dropping;

impl Sizes for Dropping {
    fn tasks(&self) -> &'static [Task] {
        &[Task::LanguageModel]
    }
    fn input(&self) -> Input {
        Input::Tokens { max_length: TIME, vocab: 5 }
    }
    fn parameters(&self) -> Option<u64> {
        None
    }
    fn largest_value(&self) -> Option<u64> {
        None
    }
    fn groups(&self) -> usize {
        1
    }
}

impl Family for Dropping {
    fn forward(&self, g: &mut Graph, build: &Build) -> Result<Outputs, GraphError> {
        let rows = build.batch * TIME;
        let x = g.data("x", Type::new(g.float, &[build.batch, TIME, WIDTH]))?;
        let targets = g.data("targets", Type::new(DType::I32, &[rows]))?;
        let weights = g.data("weights", Type::new(g.float, &[rows]))?;
        let rng = g.resident("rng", Type::new(DType::I64, &[3]), Component::Inputs, Init::Zeros)?;
        let x = g.apply("rows", Reshape { shape: vec![rows, WIDTH] }, &[x])?;
        let gamma = g.parameter("norm.weight", &[WIDTH], Init::Ones, false)?;
        let beta = g.parameter("norm.bias", &[WIDTH], Init::Zeros, false)?;
        let x = g.apply_all("norm", LayerNorm { eps: 1e-5 }, &[x, gamma, beta])?[0];
        let w = g.parameter("qkv", &[3 * WIDTH, WIDTH], Init::Uniform(0.5), true)?;
        let qkv = g.apply("qkv.product", MatMul::TRANSPOSED, &[x, w])?;
        let qkv = g.apply("heads", Reshape { shape: vec![build.batch, TIME, 3, 2, WIDTH / 2] }, &[qkv])?;
        let attention = Attention { causal: true, dropout: Some((0.3, site("attention"))), ..Attention::plain(0.4) };
        let y = g.apply_all("attention", attention, &[qkv, rng])?[0];
        let y = g.apply("joined", Reshape { shape: vec![rows, WIDTH] }, &[y])?;
        let y = g.apply("drop", Dropout { p: 0.4, site: site("drop"), samples: build.batch }, &[y, rng])?;
        let head = g.parameter("head", &[5, WIDTH], Init::Uniform(0.5), true)?;
        let logits = g.apply("logits", MatMul::TRANSPOSED, &[y, head])?;
        let loss = g.apply_all("loss", CrossEntropy, &[logits, targets, weights])?[0];
        let correct = g.add("correct", CountCorrect, &[logits, targets, weights])?[0];
        Ok(Outputs { loss, correct: Some(correct), logits: None })
    }
    fn layers(&self) -> usize {
        0
    }
    fn rows_per_sample(&self, length: usize) -> usize {
        length
    }
}

/// The batch: inputs by name, one row of each per sample.
struct Data {
    floats: BTreeMap<&'static str, (usize, Vec<f64>)>,
}

/// Gradients of the whole effective batch, computed `micro` samples at a time (the last time fewer, padded).
fn accumulated(
    family: &dyn Family,
    data: &Data,
    micro: usize,
    feed_forward: FeedForwardForm,
) -> BTreeMap<String, Vec<f64>> {
    let mut graph = Graph::new("micro-step", DType::F32);
    let attention = AttentionForm::Fused;
    let build = Build {
        batch: micro,
        length: TIME,
        target_length: 0,
        training: true,
        attention,
        block_group: 4,
        loss_chunk: 7,
        feed_forward,
    };
    let outputs = family.forward(&mut graph, &build).unwrap();
    let scale = graph.scalar("loss.scale").unwrap();
    let trained = graph.trained();
    let grads = gradients(&mut graph, outputs.loss, scale, &trained).unwrap();
    let mut names = Vec::new();
    for (&parameter, grad) in trained.iter().zip(grads) {
        let name = graph.value(parameter).name.to_string();
        let ty = graph.ty(parameter).clone();
        let total = graph.resident(&format!("gradient.{name}"), ty, Component::Gradients, Init::Zeros).unwrap();
        graph.accumulate(&format!("{name}.accumulate"), grad.unwrap(), total).unwrap();
        names.push(name);
    }
    let program = Program::new(vec![Phase { name: "micro-step".into(), graph, repeat: 1 }]).unwrap();
    let layout = lay_out(&program, LayoutOptions { target: TARGET, sharing: true }).unwrap();
    let mut executor = CpuExecutor::new(&program, &layout, TARGET.threads).unwrap();
    executor.poison_dead_slots();
    initialize(&program, &mut executor, 5).unwrap();
    let count: f64 = data.floats["weights"].1.iter().sum();
    executor.write_resident("loss.scale", &((1.0 / count) as f32).to_le_bytes()).unwrap();
    for first in (0..EFFECTIVE).step_by(micro) {
        let rng: Vec<u8> = [11i64, 2, first as i64].iter().flat_map(|x| x.to_le_bytes()).collect();
        if executor.read_resident("rng").is_some() {
            executor.write_resident("rng", &rng).unwrap();
        }
        for (&name, (per_sample, values)) in &data.floats {
            let piece = |i: usize| *values.get(first * per_sample + i).unwrap_or(&0.0);
            let n = micro * per_sample;
            let integer = name == "ids" || name == "targets";
            let bytes: Vec<u8> = match integer {
                true => (0..n).flat_map(|i| (piece(i) as i32).to_le_bytes()).collect(),
                false => (0..n).flat_map(|i| (piece(i) as f32).to_le_bytes()).collect(),
            };
            executor.write_input(0, name, &bytes).unwrap();
        }
        executor.run(0);
    }
    let read = |name: &String| {
        executor.resident::<f32>(&format!("gradient.{name}")).unwrap().iter().map(|&x| x as f64).collect()
    };
    names.iter().map(|name| (name.clone(), read(name))).collect()
}

/// Random rows; each sample counts a different number of tokens.
fn data(float_input: bool) -> Data {
    let mut rng = SampleRng::new(17);
    let rows = EFFECTIVE * TIME;
    let weights = (0..rows).map(|i| (i % TIME < 1 + i / TIME % TIME) as u32 as f64).collect();
    let mut floats = BTreeMap::from([("weights", (TIME, weights))]);
    floats.insert("targets", (TIME, (0..rows).map(|_| rng.size(0, 4) as f64).collect()));
    match float_input {
        true => floats.insert("x", (TIME * WIDTH, (0..rows * WIDTH).map(|_| rng.normal()).collect())),
        false => floats.insert("ids", (TIME, (0..rows).map(|_| rng.size(0, 9) as f64).collect())),
    };
    Data { floats }
}

/// Micro-batches with feed-forwards of this form have the gradients of the whole batch with plain ones.
fn check(family: &dyn Family, data: &Data, micro_batches: &[usize], form: FeedForwardForm) {
    let whole = accumulated(family, data, EFFECTIVE, FeedForwardForm::Plain);
    let global = whole.values().flatten().map(|x| x * x).sum::<f64>().sqrt();
    assert!(global > 1e-3, "gradients of {global} would agree with anything");
    for &micro in micro_batches {
        for (name, grad) in accumulated(family, data, micro, form) {
            let error = relative(&grad, &whole[&name], 1e-3 * global);
            assert!(error <= 1e-5, "{name}: micro-batch {micro} is off by {error:e}");
        }
    }
}

#[test]
fn accumulation_with_dropout_gives_the_gradient_of_the_whole_batch() {
    check(&Dropping, &data(true), &[4, 2, 1, 3, 5], FeedForwardForm::Plain);
}

#[test]
fn accumulation_of_texts_of_unequal_length_does_too() {
    let family = MuSota {
        vocab: 10,
        layers: 2,
        blocks: 4,
        block_width: 4,
        block_heads: 2,
        cross_heads: 2,
        ffn: 20,
        max_length: TIME,
    };
    check(&family, &data(false), &[4, 2, 1, 3], FeedForwardForm::Plain);
    check(&family, &data(false), &[EFFECTIVE, 3], FeedForwardForm::Fused);
}

/// Blocks batched, in groups and one by one, with either attention: the same function.
#[test]
fn grouping_chunking_and_attention_form_agree() {
    let family = MuSota {
        vocab: 10,
        layers: 1,
        blocks: 4,
        block_width: 4,
        block_heads: 2,
        cross_heads: 2,
        ffn: 20,
        max_length: TIME,
    };
    let loss = |attention, block_group, loss_chunk, feed_forward| {
        let mut graph = Graph::new("pass", DType::F32);
        let build = Build {
            batch: EFFECTIVE,
            length: TIME,
            target_length: 0,
            training: true,
            attention,
            block_group,
            loss_chunk,
            feed_forward,
        };
        let outputs = family.forward(&mut graph, &build).unwrap();
        let total = graph.scalar("total").unwrap();
        graph.add("keep", Accumulate, &[outputs.loss, total]).unwrap();
        let program = Program::new(vec![Phase { name: "pass".into(), graph, repeat: 1 }]).unwrap();
        let layout = lay_out(&program, LayoutOptions { target: TARGET, sharing: true }).unwrap();
        let mut executor = CpuExecutor::new(&program, &layout, TARGET.threads).unwrap();
        initialize(&program, &mut executor, 5).unwrap();
        for (&name, (_, values)) in &data(false).floats {
            let bytes: Vec<u8> = match name {
                "weights" => values.iter().flat_map(|&x| (x as f32).to_le_bytes()).collect(),
                _ => values.iter().flat_map(|&x| (x as i32).to_le_bytes()).collect(),
            };
            executor.write_input(0, name, &bytes).unwrap();
        }
        executor.run(0);
        executor.resident::<f32>("total").unwrap()[0] as f64
    };
    let reference = loss(AttentionForm::Fused, 4, usize::MAX, FeedForwardForm::Plain);
    for attention in [AttentionForm::Fused, AttentionForm::Materialized] {
        for (group, chunk) in [(1, 5), (2, 48), (3, 1), (4, 20)] {
            for feed_forward in [FeedForwardForm::Plain, FeedForwardForm::Fused] {
                let other = loss(attention, group, chunk, feed_forward);
                assert!(
                    (other - reference).abs() < 1e-5 * reference.abs(),
                    "{attention:?} {group} {chunk} {feed_forward:?}: {other} {reference}"
                );
            }
        }
    }
}
