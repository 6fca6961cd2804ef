use super::*;
use crate::families::FeedForwardForm;
use plimsoll_base::random::Stream;
use plimsoll_core::autodiff::gradients;
use plimsoll_core::graph::Init;
use plimsoll_core::graph::Target;
use plimsoll_core::plan::{LayoutOptions, Phase, Program, lay_out};
use plimsoll_core::types::{DType, Type};
use plimsoll_exec::cpu::CpuExecutor;

const BUILD: Build = Build {
    batch: 3,
    length: 21,
    target_length: 0,
    training: true,
    attention: AttentionForm::Fused,
    block_group: 1,
    loss_chunk: usize::MAX,
    feed_forward: FeedForwardForm::Plain,
};
const HEADS: usize = 2;
const WIDTH: usize = 20;

fn noise(seed: u64, len: usize) -> Vec<f32> {
    let stream = Stream::new(seed, 3, 0);
    (0..len).map(|i| stream.word(0, 0, i as u32) as f32 / 2f32.powi(31) - 1.0).collect()
}

/// Σ out · c and its gradients, with a mask that hides the end of each sample and all of the last one.
fn run(form: AttentionForm, causal: bool, keys: Option<usize>) -> Vec<Vec<f32>> {
    let (mut graph, build) = (Graph::new("attention", DType::F32), Build { attention: form, ..BUILD });
    let (batch, time, seen) = (build.batch, build.length, keys.unwrap_or(build.length));
    let weight =
        |graph: &mut Graph, name: &str, shape: &[usize]| graph.parameter(name, shape, Init::Zeros, false).unwrap();
    let wrt = match keys {
        None => vec![weight(&mut graph, "qkv", &[batch, time, 3, HEADS, WIDTH])],
        Some(keys) => vec![
            weight(&mut graph, "q", &[batch, time, HEADS, WIDTH]),
            weight(&mut graph, "kv", &[batch, keys, 2, HEADS, WIDTH]),
        ],
    };
    let mask = graph.resident("mask", Type::new(DType::I32, &[batch, seen]), Component::Inputs, Init::Zeros).unwrap();
    let c = weight(&mut graph, "c", &[batch, time, HEADS, WIDTH]);
    let packed = AttentionInputs::packed(&graph, wrt[0]);
    let inputs = AttentionInputs { kv: wrt.get(1).copied(), mask: Some(mask), dropout: 0.3, causal, ..packed };
    let out = attention(&mut graph, "attention", inputs, &build).unwrap();
    let product = graph.apply("product", Binary::MUL, &[out, c]).unwrap();
    let flat = reshape(&mut graph, "flat", product, &[batch * time * HEADS * WIDTH]).unwrap();
    let loss = graph.apply("loss", Sum { axis: 0 }, &[flat]).unwrap();
    let seed = graph.scalar("seed").unwrap();
    let mut kept: Vec<ValueId> = gradients(&mut graph, loss, seed, &wrt).unwrap().into_iter().flatten().collect();
    kept.push(out);
    kept.iter().for_each(|&value| graph.keep(value));
    let names: Vec<String> = kept.iter().map(|&value| graph.value(value).name.to_string()).collect();
    let sizes: Vec<(String, usize)> =
        wrt.iter().chain([&c]).map(|&v| (graph.value(v).name.to_string(), graph.ty(v).elements())).collect();
    let program = Program::new(vec![Phase { name: "only".into(), graph, repeat: 1 }]).unwrap();
    let layout = lay_out(&program, LayoutOptions { target: Target::cpu(2), sharing: true }).unwrap();
    let mut executor = CpuExecutor::new(&program, &layout, 2).unwrap();
    for (n, (name, len)) in sizes.iter().enumerate() {
        executor.resident_mut::<f32>(name).unwrap().copy_from_slice(&noise(n as u64, *len));
    }
    executor.resident_mut::<f32>("seed").unwrap().fill(1.0);
    executor.resident_mut::<i64>("rng").unwrap().copy_from_slice(&[5, 6, 7]);
    for (n, to) in executor.resident_mut::<i32>("mask").unwrap().iter_mut().enumerate() {
        let (sample, key) = (n / seen, n % seen);
        *to = (sample + 1 < batch && key + 3 * sample + 1 < seen) as i32;
    }
    executor.run(0);
    names.iter().map(|name| executor.output::<f32>(0, name).unwrap().to_vec()).collect()
}

#[test]
fn both_forms_mask_and_drop_the_same_weights() {
    for (causal, keys) in [(false, None), (true, None), (false, Some(34)), (true, Some(34))] {
        let (fused, whole) = (run(AttentionForm::Fused, causal, keys), run(AttentionForm::Materialized, causal, keys));
        for (a, b) in fused.iter().flatten().zip(whole.iter().flatten()) {
            assert!((a - b).abs() < 2e-5 * (1.0 + b.abs()), "{a} fused, {b} materialized");
        }
        let out = fused.last().unwrap();
        assert!(out[..out.len() / 3].iter().any(|x| *x != 0.0));
        assert!(out[out.len() / 3 * 2..].iter().all(|x| *x == 0.0), "a sample without a visible key gives zeros");
    }
}

#[test]
fn a_bias_needs_the_fused_form() {
    let mut graph = Graph::new("attention", DType::F32);
    let qkv = graph.parameter("qkv", &[1, 4, 3, 2, 8], Init::Zeros, true).unwrap();
    let table = graph.parameter("table", &[8, 2], Init::Zeros, true).unwrap();
    let bias = BiasInputs::Relative { table, bidirectional: true, max_distance: 16 };
    let inputs = AttentionInputs { bias, ..AttentionInputs::packed(&graph, qkv) };
    assert!(attention(&mut graph, "fused", inputs, &BUILD).is_ok());
    let build = Build { attention: AttentionForm::Materialized, ..BUILD };
    let cause = attention(&mut graph, "whole", inputs, &build).unwrap_err().to_string();
    assert!(cause.contains("only available fused"), "{cause}");
}
