//! A feed-forward as one op against two products with all hidden values between them.

use plimsoll_core::autodiff::gradients;
use plimsoll_core::graph::{Graph, Init, Op, Target, ValueId};
use plimsoll_core::ops::{Activate, Activation, Binary, FeedForward, MatMul, Reshape, SampleRng, Sum};
use plimsoll_core::plan::{LayoutOptions, Phase, Program, lay_out};
use plimsoll_core::types::{DType, Results, Type};
use plimsoll_exec::cpu::CpuExecutor;

/// More hidden values than exist at a time, and a last chunk that is narrower than the others.
const TOKENS: usize = 300;
const WIDTH: usize = 12;
const HIDDEN: usize = 2001;

/// y and the gradients of Σ y · c by x, up, its bias, down and its bias: by one op, or by two products with all hidden
/// values between them.
fn run(fused: bool, threads: usize) -> Vec<Vec<f32>> {
    let (tokens, width, hidden) = (TOKENS, WIDTH, HIDDEN);
    let mut graph = Graph::new("feed-forward", DType::F32);
    let shapes = [&[tokens, width][..], &[hidden, width], &[hidden], &[width, hidden], &[width]];
    let mut weight = |name: &str, shape: &[usize]| graph.parameter(name, shape, Init::Zeros, false).unwrap();
    let names = ["x", "up", "up.bias", "down", "down.bias"];
    let wrt: Vec<ValueId> = names.iter().zip(shapes).map(|(name, shape)| weight(name, shape)).collect();
    let c = weight("c", &[tokens, width]);
    let y = match fused {
        true => graph.apply("y", FeedForward { activation: Activation::Gelu }, &wrt).unwrap(),
        false => {
            let before = graph.apply("before", MatMul::LINEAR, &wrt[..3]).unwrap();
            let after = graph.apply("after", Activate(Activation::Gelu), &[before]).unwrap();
            graph.apply("y", MatMul::LINEAR, &[after, wrt[3], wrt[4]]).unwrap()
        }
    };
    let product = graph.apply("product", Binary::MUL, &[y, c]).unwrap();
    let flat = graph.apply("flat", Reshape { shape: vec![tokens * width] }, &[product]).unwrap();
    let loss = graph.apply("loss", Sum { axis: 0 }, &[flat]).unwrap();
    let seed = graph.scalar("seed").unwrap();
    let mut kept = gradients(&mut graph, loss, seed, &wrt).unwrap().into_iter().map(Option::unwrap).collect::<Vec<_>>();
    kept.push(y);
    kept.iter().for_each(|&value| graph.keep(value));
    let kept: Vec<String> = kept.iter().map(|&value| graph.value(value).name.to_string()).collect();
    let program = Program::new(vec![Phase { name: "only".into(), graph, repeat: 1 }]).unwrap();
    let layout = lay_out(&program, LayoutOptions { target: Target::cpu(threads), sharing: true }).unwrap();
    let mut executor = CpuExecutor::new(&program, &layout, threads).unwrap();
    let mut rng = SampleRng::new(1);
    for name in names.into_iter().chain(["c"]) {
        let scale = if name == "x" || name == "c" { 1.0 } else { 0.1 };
        executor.resident_mut::<f32>(name).unwrap().fill_with(|| (scale * rng.normal()) as f32);
    }
    executor.resident_mut::<f32>("seed").unwrap().fill(1.0);
    executor.run(0);
    kept.iter().map(|name| executor.output::<f32>(0, name).unwrap().to_vec()).collect()
}

#[test]
fn chunks_add_up_to_the_plain_form() {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    for (index, (fused, plain)) in run(true, 2).iter().zip(run(false, 2)).enumerate() {
        let difference = norm(&mut fused.iter().zip(&plain).map(|(a, b)| f64::from(a - b)));
        let size = norm(&mut plain.iter().map(|&x| f64::from(x)));
        // Sums of up to 2001 terms in another order: √2001 roundings of f32.
        assert!(size > 0.1 && difference < 3e-6 * size, "result {index} of {size}: off by {difference}");
    }
}

#[test]
fn threads_change_no_bit() {
    let bits = |threads: usize| run(true, threads).concat().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert!(bits(1) == bits(3));
}

#[test]
fn shapes_that_do_not_go_together_are_refused() {
    let ty = |shape: &[usize]| Type::new(DType::F32, shape);
    let good = [ty(&[5, 4]), ty(&[9, 4]), ty(&[9]), ty(&[4, 9]), ty(&[4])];
    let op = FeedForward { activation: Activation::Gelu };
    assert_eq!(op.outputs(&good).unwrap(), Results::from_iter([ty(&[5, 4])]));
    for (index, shape) in [(0, &[5, 3][..]), (1, &[8, 4]), (2, &[8]), (3, &[9, 4]), (4, &[9])] {
        let mut inputs = good.clone();
        inputs[index] = ty(shape);
        assert!(op.outputs(&inputs).is_err(), "input {index} of {shape:?}");
    }
    assert!(op.outputs(&good[..4]).is_err());
}
