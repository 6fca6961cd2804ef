//! Single ops against PyTorch's outputs, gradients and updated weights, in f64 and in f32.

use crate::common::{Run, relative};
use plimsoll_core::autodiff::gradients;
use plimsoll_core::graph::{Component, Graph, Init, ValueId};
use plimsoll_core::graph::{Differentiable, Op};
use plimsoll_core::ops::{
    Activate, Activation, Adafactor, AdamW, Binary, CrossEntropy, LayerNorm, Reshape, RmsNorm, Sgd, Softmax, Sum,
};
use plimsoll_core::types::{DType, Type};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

struct Goldens {
    bytes: Vec<u8>,
    config: Value,
}

impl Goldens {
    fn open() -> Goldens {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/goldens/ops.safetensors");
        let bytes = std::fs::read(path).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let config = serde_json::from_str(&header.metadata().as_ref().unwrap()["config"]).unwrap();
        Goldens { bytes, config }
    }

    /// The names of an op's cases, `op.case`.
    fn cases(&self, op: &str) -> Vec<String> {
        let names = self.config.as_object().unwrap().keys();
        let cases: Vec<String> = names.filter(|name| name.split('.').next() == Some(op)).cloned().collect();
        assert!(!cases.is_empty(), "no golden case for {op}");
        cases
    }

    fn setting(&self, case: &str, name: &str) -> f64 {
        self.config[case][name].as_f64().unwrap_or_else(|| panic!("{case} has no number {name}"))
    }

    fn find(&self, name: &str) -> Option<(Vec<usize>, Vec<f64>)> {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        let entry = file.tensor(name).ok()?;
        let words = entry.data().chunks_exact(8).map(|word| word.try_into().unwrap());
        let values = match entry.dtype() {
            Dtype::F64 => words.map(f64::from_le_bytes).collect(),
            Dtype::I64 => words.map(|word| i64::from_le_bytes(word) as f64).collect(),
            other => panic!("{name} is {other:?}"),
        };
        Some((entry.shape().to_vec(), values))
    }

    fn read(&self, name: &str) -> (Vec<usize>, Vec<f64>) {
        self.find(name).unwrap_or_else(|| panic!("{name} is missing"))
    }
}

/// Both element types, with what they have to keep to: f64 its last digits, f32 a few hundred roundings.
const PRECISIONS: [(DType, f64); 2] = [(DType::F64, 1e-12), (DType::F32, 3e-5)];

fn check(what: &str, ours: &[f64], golden: &[f64], tolerance: f64) {
    let error = relative(ours, golden, 1e-2);
    assert!(error < tolerance, "{what} is off by {error:e}\nours   {ours:?}\ngolden {golden:?}");
}

fn resident(graph: &mut Graph, name: &str, dtype: DType, shape: &[usize]) -> ValueId {
    graph.resident(name, Type::new(dtype, shape), Component::Inputs, Init::Zeros).unwrap()
}

/// Runs `op` on the inputs of a case; inputs in `integers` are i32. The gradient of output 0 is `dout · seed`.
fn check_op(
    goldens: &Goldens,
    case: &str,
    op: impl Differentiable + Clone + 'static,
    integers: &[usize],
    divisor: f64,
) {
    for (float, tolerance) in PRECISIONS {
        let mut graph = Graph::new("case", float);
        let inputs: Vec<_> = (0..).map_while(|i| goldens.find(&format!("{case}.in.{i}"))).collect();
        let declare = |(i, (shape, _)): (usize, &(Vec<usize>, Vec<f64>))| {
            let dtype = if integers.contains(&i) { DType::I32 } else { float };
            resident(&mut graph, &format!("in.{i}"), dtype, shape)
        };
        let ids: Vec<ValueId> = inputs.iter().enumerate().map(declare).collect();
        let output = graph.apply("op", op.clone(), &ids).unwrap();
        graph.keep(output);
        let n = graph.ty(output).elements();
        let dout = resident(&mut graph, "dout", float, &[n]);
        let flat = graph.apply("flat", Reshape { shape: vec![n] }, &[output]).unwrap();
        let weighted = graph.apply("weighted", Binary::MUL, &[flat, dout]).unwrap();
        let loss = graph.apply("loss", Sum { axis: 0 }, &[weighted]).unwrap();
        let seed = graph.scalar("seed").unwrap();
        let checked: Vec<usize> =
            (0..ids.len()).filter(|i| goldens.find(&format!("{case}.grad.{i}")).is_some()).collect();
        let wrt: Vec<ValueId> = checked.iter().map(|&i| ids[i]).collect();
        let grads: Vec<ValueId> =
            gradients(&mut graph, loss, seed, &wrt).unwrap().into_iter().map(Option::unwrap).collect();
        grads.iter().for_each(|&g| graph.keep(g));
        let names: Vec<String> = grads.iter().map(|&g| graph.value(g).name.to_string()).collect();

        let mut run = Run::new(graph, true);
        for (i, (_, values)) in inputs.iter().enumerate() {
            run.write(&format!("in.{i}"), values);
        }
        run.write("dout", &goldens.read(&format!("{case}.dout")).1);
        run.write("seed", &[1.0 / divisor]);
        run.run();

        let ours: Vec<f64> = run.read("op").iter().map(|x| x / divisor).collect();
        check(&format!("{case} {float:?}"), &ours, &goldens.read(&format!("{case}.out")).1, tolerance);
        for (i, name) in checked.iter().zip(names) {
            let golden = goldens.read(&format!("{case}.grad.{i}")).1;
            check(&format!("{case} {float:?}: gradient {i}"), &run.read(&name), &golden, tolerance);
        }
    }
}

#[test]
fn norms_match_pytorch() {
    let goldens = Goldens::open();
    for case in goldens.cases("layer_norm") {
        check_op(&goldens, &case, LayerNorm { eps: goldens.setting(&case, "eps") }, &[], 1.0);
    }
    for case in goldens.cases("rms_norm") {
        check_op(&goldens, &case, RmsNorm { eps: goldens.setting(&case, "eps") }, &[], 1.0);
    }
}

#[test]
fn activations_match_pytorch() {
    let goldens = Goldens::open();
    for (name, activation) in [("gelu", Activation::Gelu), ("silu", Activation::Silu)] {
        for case in goldens.cases(name) {
            check_op(&goldens, &case, Activate(activation), &[], 1.0);
        }
    }
}

#[test]
fn softmax_and_cross_entropy_match_pytorch() {
    let goldens = Goldens::open();
    for case in goldens.cases("softmax") {
        check_op(&goldens, &case, Softmax { scale: 1.0, causal: false, scores: false }, &[], 1.0);
    }
    for case in goldens.cases("cross_entropy") {
        // PyTorch's is the mean, ours the sum.
        let weight: f64 = goldens.read(&format!("{case}.in.2")).1.iter().sum();
        check_op(&goldens, &case, CrossEntropy, &[1], weight);
    }
}

/// Three updates of one weight. `state` names the optimizer's tensors as PyTorch does, with their shapes; `scalars`
/// gives what follows the gradient among the inputs, for a step counted from 1.
fn check_optimizer(
    goldens: &Goldens,
    case: &str,
    op: impl Op + Clone + 'static,
    state: &[(&str, Vec<usize>)],
    scalars: impl Fn(f64) -> Vec<f64>,
) {
    let (shape, weight) = goldens.read(&format!("{case}.in.0"));
    for (float, tolerance) in PRECISIONS {
        let mut graph = Graph::new("update", float);
        let mut inputs = vec![resident(&mut graph, "w", float, &shape)];
        inputs.extend(state.iter().map(|(name, shape)| resident(&mut graph, name, float, shape)));
        inputs.push(resident(&mut graph, "g", float, &shape));
        let names: Vec<String> = (0..scalars(1.0).len()).map(|i| format!("scalar.{i}")).collect();
        inputs.extend(names.iter().map(|name| resident(&mut graph, name, float, &[1])));
        graph.add("update", op.clone(), &inputs).unwrap();
        let mut run = Run::new(graph, true);
        run.write("w", &weight);
        for step in 1..=3 {
            run.write("g", &goldens.read(&format!("{case}.in.{step}")).1);
            names.iter().zip(scalars(step as f64)).for_each(|(name, x)| run.write(name, &[x]));
            run.run();
            let golden = goldens.read(&format!("{case}.out.{}", step - 1)).1;
            check(&format!("{case} {float:?}: step {step}"), &run.read("w"), &golden, tolerance);
            assert!(run.read("g").iter().all(|&g| g == 0.0), "{case}: the gradient is left for the next step");
        }
        for (name, _) in state {
            let golden = goldens.read(&format!("{case}.state.{name}")).1;
            check(&format!("{case} {float:?}: {name}"), &run.read(name), &golden, tolerance);
        }
    }
}

#[test]
fn adamw_matches_pytorch() {
    let goldens = Goldens::open();
    for case in goldens.cases("adamw") {
        let set = |name: &str| goldens.setting(&case, name);
        let beta = |i: usize| goldens.config[&case]["betas"][i].as_f64().unwrap();
        let (beta1, beta2, lr) = (beta(0), beta(1), set("lr"));
        let op = AdamW {
            beta1,
            beta2,
            eps: set("eps"),
            weight_decay: set("weight_decay"),
            zero_gradient: true,
            rounding: None,
        };
        let shape = goldens.read(&format!("{case}.in.0")).0;
        let state = [("exp_avg", shape.clone()), ("exp_avg_sq", shape)];
        check_optimizer(&goldens, &case, op, &state, |step| {
            vec![lr, 1.0 - beta1.powf(step), 1.0 - beta2.powf(step), 1.0]
        });
    }
}

#[test]
fn sgd_matches_pytorch() {
    let goldens = Goldens::open();
    for case in goldens.cases("sgd") {
        let set = |name: &str| goldens.setting(&case, name);
        let (momentum, weight_decay) = (set("momentum"), set("weight_decay"));
        let op = Sgd { momentum, weight_decay, zero_gradient: true, rounding: None };
        let shape = goldens.read(&format!("{case}.in.0")).0;
        let state: Vec<_> = (op.momentum != 0.0).then_some(("momentum_buffer", shape)).into_iter().collect();
        check_optimizer(&goldens, &case, op, &state, |_| vec![set("lr"), 1.0]);
    }
}

#[test]
fn adafactor_matches_pytorch() {
    let goldens = Goldens::open();
    for case in goldens.cases("adafactor") {
        let set = |name: &str| goldens.setting(&case, name);
        let eps = |i: usize| goldens.config[&case]["eps"][i].as_f64().unwrap();
        let op = Adafactor {
            beta2_decay: set("beta2_decay"),
            eps_moment: eps(0),
            eps_weight: eps(1),
            limit: set("d"),
            weight_decay: set("weight_decay"),
            parts: 1,
            zero_gradient: true,
            rounding: None,
        };
        let shapes = Adafactor::state_shapes(&goldens.read(&format!("{case}.in.0")).0);
        let names: &[&str] = if shapes.len() == 2 { &["row_var", "col_var"] } else { &["variance"] };
        let state: Vec<_> = names.iter().copied().zip(shapes).collect();
        check_optimizer(&goldens, &case, op, &state, |step| vec![set("lr"), step, 1.0]);
    }
}
