//! What every op of the registry has to keep: its gradient agrees with finite differences in f64, f32 agrees with
//! f64, and a shared, poisoned arena gives the bits of an unshared one. Sizes come from a printed seed; `PLIMSOLL_TEST_SEED=n` draws others.

mod common;

use common::{Run, relative};
use plimsoll::autodiff::gradients;
use plimsoll::graph::{Component, DType, Graph, Init, InputKind, OpRef, Space, Type, ValueId};
use plimsoll::ops::{Accumulate, Binary, FromHost, Reshape, Sample, SampleRng, Sum, registry};
use std::sync::Arc;

/// Loss, outputs and gradients of one sample.
struct Outcome {
    outputs: Vec<Vec<f64>>,
    grads: Vec<Option<Vec<f64>>>,
    loss: f64,
}

struct Case {
    sample: Sample,
    /// Values of the inputs, then a random coefficient for every output element.
    values: Vec<Vec<f64>>,
    coefficients: Vec<Vec<f64>>,
}

impl Case {
    fn new(sample: Sample, rng: &mut SampleRng) -> Case {
        let values = sample.inputs.iter().map(|input| rng.values(input)).collect();
        let types: Vec<Type> = sample.inputs.iter().map(|i| i.ty.clone()).collect();
        let outputs = sample.op.op().outputs(&types).unwrap_or_else(|e| panic!("{:?}: {e}", sample.op));
        let coefficients = outputs.iter().map(|t| (0..t.elements()).map(|_| rng.normal()).collect()).collect();
        Case { sample, values, coefficients }
    }

    fn graph(&self, float: DType, differentiate: bool) -> (Graph, Vec<ValueId>, Vec<Option<ValueId>>) {
        let mut graph = Graph::new("sample", float);
        let mut inputs = Vec::new();
        for (index, input) in self.sample.inputs.iter().enumerate() {
            let dtype = if input.ty.dtype.is_float() { float } else { input.ty.dtype };
            let ty = Type::new(dtype, &input.ty.shape);
            // Residents: inputs survive the run, so that an op may overwrite them in place.
            let kind = InputKind::Resident { component: Component::Inputs, init: Init::Zeros };
            let name = format!("in.{index}");
            inputs.push(match self.sample.op.op().input_space(index) {
                Space::Device => graph.input(&name, ty, kind).unwrap(),
                Space::Host => graph.host_resident(&name, ty, Component::Inputs, Init::Zeros).unwrap(),
            });
        }
        let outputs = match &self.sample.op {
            OpRef::Forward(op) => graph.apply_all("op", Shared(op.clone()), &inputs).unwrap(),
            OpRef::Plain(op) => graph.add("op", SharedPlain(op.clone()), &inputs).unwrap(),
        };
        let outputs: Vec<ValueId> = outputs.into_iter().map(|o| from_host(&mut graph, o)).collect();
        outputs.iter().for_each(|&o| graph.keep(o));
        let loss = self.loss(&mut graph, &outputs);
        let seed = graph.scalar("seed").unwrap();
        let total = graph.scalar("loss").unwrap();
        graph.add("loss.keep", Accumulate, &[loss, total]).unwrap();
        let mut grads = vec![None; inputs.len()];
        if differentiate {
            let wrt: Vec<usize> = (0..inputs.len()).filter(|&i| self.sample.inputs[i].checked).collect();
            let ids: Vec<ValueId> = wrt.iter().map(|&i| inputs[i]).collect();
            let found = gradients(&mut graph, loss, seed, &ids).unwrap();
            wrt.into_iter().zip(found).for_each(|(i, grad)| grads[i] = grad);
            grads.iter().flatten().for_each(|&g| graph.keep(g));
        }
        (graph, outputs, grads)
    }

    /// Σ coefficient · output over all float outputs or output 0, or output 0 itself.
    fn loss(&self, graph: &mut Graph, outputs: &[ValueId]) -> ValueId {
        if self.sample.scalar_loss {
            return outputs[0];
        }
        let mut total = None;
        let differentiated = if self.sample.first_output { &outputs[..1] } else { outputs };
        for (index, &output) in differentiated.iter().enumerate() {
            let (ty, n) = (graph.ty(output).contiguous(), graph.ty(output).elements());
            let kind = InputKind::Resident { component: Component::Inputs, init: Init::Zeros };
            let c = graph.input(&format!("c.{index}"), ty, kind).unwrap();
            let weighted = graph.apply("weighted", Binary::MUL, &[output, c]).unwrap();
            let flat = graph.apply("flat", Reshape { shape: vec![n] }, &[weighted]).unwrap();
            let sum = graph.apply("sum", Sum { axis: 0 }, &[flat]).unwrap();
            total = Some(match total {
                None => sum,
                Some(before) => graph.apply("total", Binary::ADD, &[before, sum]).unwrap(),
            });
        }
        total.expect("an op has outputs")
    }

    fn run(&self, float: DType, values: &[Vec<f64>], differentiate: bool, sharing: bool) -> Outcome {
        let (graph, outputs, grads) = self.graph(float, differentiate);
        let names = |ids: &[ValueId]| ids.iter().map(|&v| graph.value(v).name.clone()).collect::<Vec<_>>();
        let (output_names, readable): (Vec<String>, Vec<bool>) =
            (names(&outputs), outputs.iter().map(|&v| graph.ty(v).is_contiguous()).collect());
        let grad_names: Vec<Option<String>> = grads.iter().map(|g| g.map(|v| graph.value(v).name.clone())).collect();
        let mut run = Run::new(graph, sharing);
        for (index, values) in values.iter().enumerate() {
            run.write(&format!("in.{index}"), values);
        }
        for (index, values) in self.coefficients.iter().enumerate() {
            if !self.sample.scalar_loss && (index == 0 || !self.sample.first_output) {
                run.write(&format!("c.{index}"), values);
            }
        }
        run.write("loss", &[0.0]);
        run.write("seed", &[1.0]);
        run.run();
        Outcome {
            outputs: output_names.iter().zip(readable).filter(|(_, r)| *r).map(|(n, _)| run.read(n)).collect(),
            grads: grad_names.iter().map(|n| n.as_ref().map(|n| run.read(n))).collect(),
            loss: run.read("loss")[0],
        }
    }
}

/// The value on the device: what is in host memory is fetched.
fn from_host(graph: &mut Graph, value: ValueId) -> ValueId {
    match graph.value(value).space {
        Space::Device => value,
        Space::Host => graph.add("fetched", FromHost::whole(&graph.ty(value).clone()), &[value]).unwrap()[0],
    }
}

/// Lets a sample's op, which is behind a pointer, be added to a graph.
#[derive(Debug)]
struct Shared(Arc<dyn plimsoll::ops::Differentiable>);
#[derive(Debug)]
struct SharedPlain(Arc<dyn plimsoll::ops::Op>);

macro_rules! forward_op {
    ($name:ty) => {
        impl plimsoll::ops::Op for $name {
            fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, plimsoll::ops::OpError> {
                self.0.outputs(inputs)
            }
            fn aliases(&self, inputs: &[Type]) -> Vec<plimsoll::ops::Alias> {
                self.0.aliases(inputs)
            }
            fn accepts(&self, input: usize, ty: &Type) -> bool {
                self.0.accepts(input, ty)
            }
            fn input_space(&self, input: usize) -> Space {
                self.0.input_space(input)
            }
            fn output_space(&self, output: usize) -> Space {
                self.0.output_space(output)
            }
            fn workspace(&self, inputs: &[Type], target: &plimsoll::ops::Target) -> usize {
                self.0.workspace(inputs, target)
            }
            fn cpu(&self, io: &plimsoll::exec::cpu::CpuIo<'_>) {
                self.0.cpu(io)
            }
        }
    };
}
forward_op!(Shared);
forward_op!(SharedPlain);
impl plimsoll::ops::Differentiable for Shared {
    fn vjp(&self, cx: &mut plimsoll::ops::Vjp<'_>) -> Result<Vec<Option<ValueId>>, plimsoll::graph::GraphError> {
        self.0.vjp(cx)
    }
}

fn cases() -> Vec<(&'static str, Case)> {
    let seed = common::seed_or(1);
    println!("PLIMSOLL_TEST_SEED={seed}");
    let mut rng = SampleRng::new(seed);
    let mut cases = Vec::new();
    for (name, samples) in registry() {
        for _ in 0..3 {
            let samples = samples(&mut rng);
            cases.extend(samples.into_iter().map(|sample| (name, Case::new(sample, &mut rng))));
        }
    }
    cases
}

/// At most this many elements of each input are nudged one by one.
const NUDGES: usize = 24;

#[test]
fn gradients_agree_with_finite_differences() {
    for (name, case) in cases().iter().filter(|(_, c)| matches!(c.sample.op, OpRef::Forward(_))) {
        let exact = case.run(DType::F64, &case.values, true, false);
        for (index, input) in case.sample.inputs.iter().enumerate().filter(|(_, input)| input.checked) {
            let grad = exact.grads[index].as_ref().unwrap_or_else(|| panic!("{name}: no gradient for input {index}"));
            let n = input.ty.elements();
            let picked: Vec<usize> = (0..n).step_by((n / NUDGES).max(1)).collect();
            let (mut numeric, mut analytic) = (Vec::new(), Vec::new());
            for &at in &picked {
                let nudge = |by: f64| {
                    let mut values = case.values.clone();
                    values[index][at] += by;
                    case.run(DType::F64, &values, false, false).loss
                };
                // Fourth order: the error is about 1e-12 in f64.
                let h = 1e-3;
                let slope = (8.0 * (nudge(h) - nudge(-h)) - (nudge(2.0 * h) - nudge(-2.0 * h))) / (12.0 * h);
                numeric.push(slope);
                analytic.push(grad[at]);
            }
            let error = relative(&analytic, &numeric, 1e-3);
            assert!(
                error < 1e-7,
                "{name} {:?}: input {index} off by {error:e}\n{analytic:?}\n{numeric:?}",
                case.sample
            );
        }
    }
}

#[test]
fn f32_agrees_with_f64() {
    for (name, case) in cases() {
        let differentiable = matches!(case.sample.op, OpRef::Forward(_));
        // Both start from the same f32 values.
        let values: Vec<Vec<f64>> = case.values.iter().map(|v| v.iter().map(|&x| x as f32 as f64).collect()).collect();
        let exact = case.run(DType::F64, &values, differentiable, false);
        let single = case.run(DType::F32, &values, differentiable, false);
        for (a, b) in single.outputs.iter().zip(&exact.outputs) {
            let error = relative(a, b, 1e-2);
            // A few hundred roundings of 6e-8 each.
            assert!(error < 3e-5, "{name} {:?}: output off by {error:e}", case.sample);
        }
        // A gradient that cancels to almost nothing is as exact as its terms, not as its sum: errors are measured
        // against the gradient of the whole sample.
        let whole = exact.grads.iter().flatten().flatten().map(|x| x * x).sum::<f64>().sqrt();
        for (a, b) in single.grads.iter().zip(&exact.grads).filter_map(|(a, b)| Some((a.as_ref()?, b.as_ref()?))) {
            let error = relative(a, b, (0.1 * whole).max(1e-2));
            assert!(error < 3e-5, "{name} {:?}: gradient off by {error:e}", case.sample);
        }
    }
}

#[test]
fn sharing_memory_changes_no_bit() {
    for (name, case) in cases() {
        let differentiable = matches!(case.sample.op, OpRef::Forward(_));
        let shared = case.run(DType::F32, &case.values, differentiable, true);
        let alone = case.run(DType::F32, &case.values, differentiable, false);
        let bits = |o: &Outcome| {
            let all = o.outputs.iter().chain(o.grads.iter().flatten()).flatten().copied().chain([o.loss]);
            all.map(f64::to_bits).collect::<Vec<_>>()
        };
        assert_eq!(bits(&shared), bits(&alone), "{name} {:?}", case.sample);
    }
}
