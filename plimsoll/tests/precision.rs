//! Mixed and pure half precision as types: what a card's plan counts.

use plimsoll::autodiff::gradients;
use plimsoll::graph::{DType, Graph, Type};
use plimsoll::ops::{CrossEntropy, MatMul};

/// A weight used twice: one master, one compute copy, one gradient in the master's type.
fn tied(float: DType, master: DType) -> Graph {
    let mut g = Graph::mixed("tied", float, master);
    let x = g.data("x", Type::new(float, &[4, 8])).unwrap();
    let target = g.data("target", Type::new(DType::I32, &[4])).unwrap();
    let weight = g.data("weight", Type::new(float.wide(), &[4])).unwrap();
    let init = plimsoll::graph::Init::Zeros;
    let w = g.parameter("w", &[8, 8], init, true).unwrap();
    let y = g.apply("one", MatMul::TRANSPOSED, &[x, w]).unwrap();
    let w = g.parameter("w", &[8, 8], init, true).unwrap();
    let y = g.apply("two", MatMul::TRANSPOSED, &[y, w]).unwrap();
    let loss = g.apply_all("loss", CrossEntropy, &[y, target, weight]).unwrap()[0];
    let scale = g.scalar("scale").unwrap();
    let trained = g.trained();
    let grads = gradients(&mut g, loss, scale, &trained).unwrap();
    assert_eq!(trained.len(), 1);
    let grad = grads[0].unwrap();
    assert_eq!(g.ty(grad).dtype, master, "gradients are kept as the weights are");
    assert_eq!(g.ty(trained[0]).dtype, master);
    assert_eq!(g.ty(loss).dtype, DType::F32, "losses are summed in f32");
    g
}

#[test]
fn mixed_precision_copies_a_weight_once() {
    let g = tied(DType::Bf16, DType::F32);
    let casts = g.nodes().iter().filter(|n| n.name.contains("w.copy") && !n.name.contains("grad")).count();
    assert_eq!(casts, 1);
}

/// A step differentiates the copies: no gradient is cast back to be read by an update.
#[test]
fn gradients_of_copies_are_of_their_type() {
    let mut g = Graph::mixed("step", DType::Bf16, DType::F32);
    let x = g.data("x", Type::new(DType::Bf16, &[4, 8])).unwrap();
    let target = g.data("target", Type::new(DType::I32, &[4])).unwrap();
    let weight = g.data("weight", Type::new(DType::F32, &[4])).unwrap();
    let w = g.parameter("w", &[8, 8], plimsoll::graph::Init::Zeros, true).unwrap();
    let y = g.apply("y", MatMul::TRANSPOSED, &[x, w]).unwrap();
    let loss = g.apply_all("loss", CrossEntropy, &[y, target, weight]).unwrap()[0];
    let scale = g.scalar("scale").unwrap();
    let master = g.trained()[0];
    assert_eq!((g.computed(master), g.computed(w)), (w, w));
    let grad = gradients(&mut g, loss, scale, &[w]).unwrap()[0].unwrap();
    assert_eq!(g.ty(grad), g.ty(w));
    assert_eq!(g.nodes().iter().filter(|n| format!("{:?}", n.op.op()).starts_with("Cast")).count(), 1);
}

#[test]
fn pure_half_precision_copies_nothing() {
    let g = tied(DType::Bf16, DType::Bf16);
    assert!(g.nodes().iter().all(|n| !n.name.contains("copy")));
}
