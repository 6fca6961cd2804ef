//! What must not change the outcome of a family that classifies texts: how many samples are computed together, padding,
//! the form of the attention. Dropout is on throughout. Vocabularies have at least 31 words, and there are three labels.

use super::{AttentionForm, Build, Family, FeedForwardForm, Outputs};
use plimsoll_base::random::{Stream, site};
use plimsoll_core::autodiff::gradients;
use plimsoll_core::graph::{Graph, Target};
use plimsoll_core::plan::{LayoutOptions, Phase, Program, lay_out};
use plimsoll_core::types::DType;
use plimsoll_exec::cpu::CpuExecutor;
use std::collections::BTreeMap;

/// Real tokens of each sample.
const LENGTHS: [usize; 2] = [7, 4];

pub(super) fn build(batch: usize, length: usize) -> Build {
    let attention = AttentionForm::Fused;
    let (loss_chunk, feed_forward) = (usize::MAX, FeedForwardForm::Plain);
    Build { batch, length, target_length: 0, training: true, attention, block_group: 1, loss_chunk, feed_forward }
}

/// Logits and gradients by name of samples `first..`; those beyond `LENGTHS` are padding.
pub(super) type Outcome = BTreeMap<String, Vec<f32>>;

pub(super) fn outcome(family: &dyn Family, build: &Build, first: usize) -> Outcome {
    let mut graph = Graph::new("pass", DType::F32);
    let outputs = family.forward(&mut graph, build).unwrap();
    run(graph, outputs, build, first)
}

pub(super) fn run(mut graph: Graph, outputs: Outputs, build: &Build, first: usize) -> Outcome {
    let scale = graph.scalar("loss.scale").unwrap();
    let trained = graph.trained();
    let grads = gradients(&mut graph, outputs.loss, scale, &trained).unwrap();
    let mut kept = vec![("logits".to_string(), outputs.logits.unwrap())];
    kept.extend(trained.iter().zip(grads).map(|(&p, g)| (graph.value(p).name.to_string(), g.unwrap())));
    kept.iter().for_each(|&(_, value)| graph.keep(value));
    let names: Vec<(String, String)> =
        kept.into_iter().map(|(name, v)| (name, graph.value(v).name.to_string())).collect();
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
            // Not every family has types.
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
pub(super) fn assert_equal(a: &Outcome, b: &Outcome) {
    assert_eq!(a.len(), b.len());
    a.iter().for_each(|(name, values)| assert_same(name, values, &b[name]));
}

/// A batch is the sum of its samples, and padding counts nothing.
#[track_caller]
pub(super) fn assert_batch_is_its_samples(family: &dyn Family) {
    let together = outcome(family, &build(2, 7), 0);
    let apart = [outcome(family, &build(1, 7), 0), outcome(family, &build(1, 7), 1)];
    let with_padding = outcome(family, &build(3, 11), 0);
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

/// Both forms of attention agree.
#[track_caller]
pub(super) fn assert_forms_agree(family: &dyn Family) {
    let fused = build(2, 7);
    let materialized = Build { attention: AttentionForm::Materialized, ..fused };
    assert_equal(&outcome(family, &fused, 0), &outcome(family, &materialized, 0));
}
