//! A graph to try planning on.

use crate::autodiff::gradients;
use crate::graph::{Graph, Init, ValueId};
use crate::ops::{Activate, Activation, CrossEntropy, LayerNorm, MatMul, Reshape};
use crate::types::{DType, Type};

/// Layers of norm, product and activation over a batch of three rows each, with views between them, and their loss.
pub(super) fn layers(count: usize, batch: usize) -> (Graph, ValueId) {
    let rows = 3 * batch;
    let mut graph = Graph::new("step", DType::F32);
    let targets = graph.data("targets", Type::new(DType::I32, &[rows])).unwrap();
    let weights = graph.data("weights", Type::new(DType::F32, &[rows])).unwrap();
    let mut x = graph.data("x", Type::new(DType::F32, &[batch, 3, 32])).unwrap();
    for layer in 0..count {
        x = graph.layer(&format!("layers.{layer}"), |graph| {
            let [scale, shift] = ["scale", "shift"].map(|n| graph.parameter(n, &[32], Init::Ones, false).unwrap());
            let w = graph.parameter("w", &[32, 32], Init::Normal(0.1), true).unwrap();
            let norm = graph.apply_all("norm", LayerNorm { eps: 1e-5 }, &[x, scale, shift]).unwrap()[0];
            let flat = graph.apply("rows", Reshape { shape: vec![rows, 32] }, &[norm]).unwrap();
            let up = graph.apply("up", MatMul::TRANSPOSED, &[flat, w]).unwrap();
            let act = graph.apply("act", Activate(Activation::Gelu), &[up]).unwrap();
            graph.apply("cube", Reshape { shape: vec![batch, 3, 32] }, &[act]).unwrap()
        });
    }
    let logits = graph.apply("logits", Reshape { shape: vec![rows, 32] }, &[x]).unwrap();
    let loss = graph.apply("loss", CrossEntropy, &[logits, targets, weights]).unwrap();
    (graph, loss)
}

/// The same with the backward pass.
pub(super) fn with_gradients(mut graph: Graph, loss: ValueId) -> Graph {
    let (seed, trained) = (graph.scalar("seed").unwrap(), graph.trained());
    let grads = gradients(&mut graph, loss, seed, &trained).unwrap();
    grads.into_iter().flatten().for_each(|grad| graph.keep(grad));
    graph
}
