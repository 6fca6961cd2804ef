//! A sample of an op as a graph: outputs, a scalar that depends on all of them, and its gradients. The conformance tests
//! run it on the CPU in several precisions; the checks of other devices run the very same graph there.

use plimsoll_core::autodiff::gradients;
use plimsoll_core::graph::{Component, Graph, GraphError, Init, InputKind, OpRef, Space, ValueId};
use plimsoll_core::ops::{Accumulate, Binary, Cast, FromHost, Reshape, Sample, SampleRng, Sum, registry};
use plimsoll_core::types::{DType, Type};
use std::sync::Arc;

/// Loss, outputs and gradients of one sample.
pub(crate) struct Outcome {
    pub outputs: Vec<Vec<f64>>,
    pub grads: Vec<Option<Vec<f64>>>,
    pub loss: f64,
}

pub(crate) struct Case {
    pub sample: Sample,
    /// Values of the inputs, then a random coefficient for every output element.
    pub values: Vec<Vec<f64>>,
    pub coefficients: Vec<Vec<f64>>,
}

/// A case's graph, and what its values are called.
pub(crate) struct Built {
    pub graph: Graph,
    outputs: Vec<String>,
    grads: Vec<Option<String>>,
}

impl Built {
    /// What the graph left behind; `read` gives a kept value or resident.
    pub(crate) fn outcome(&self, read: impl Fn(&str) -> Vec<f64>) -> Outcome {
        Outcome {
            outputs: self.outputs.iter().map(|name| read(name)).collect(),
            grads: self.grads.iter().map(|name| name.as_ref().map(|name| read(name))).collect(),
            loss: read("loss")[0],
        }
    }
}

impl Case {
    pub(crate) fn new(sample: Sample, rng: &mut SampleRng) -> Case {
        let values = sample.inputs.iter().map(|input| rng.values(input)).collect();
        let types: Vec<Type> = sample.inputs.iter().map(|i| i.ty.clone()).collect();
        let outputs = sample.op.op().outputs(&types).unwrap_or_else(|e| panic!("{:?}: {e}", sample.op));
        let coefficients = outputs.iter().map(|t| (0..t.elements()).map(|_| rng.normal()).collect()).collect();
        Case { sample, values, coefficients }
    }

    pub(crate) fn is_differentiable(&self) -> bool {
        matches!(self.sample.op, OpRef::Forward(_))
    }

    /// The graph with its float inputs in `float`.
    pub(crate) fn build(&self, float: DType, differentiate: bool) -> Result<Built, GraphError> {
        let mut graph = Graph::new("sample", float);
        let mut inputs = Vec::new();
        for (index, input) in self.sample.inputs.iter().enumerate() {
            let dtype = if input.ty.dtype.is_float() { float } else { input.ty.dtype };
            let ty = Type::new(dtype, &input.ty.shape);
            // Residents: inputs survive the run, so that an op may overwrite them in place.
            let kind = InputKind::Resident { component: Component::Inputs, init: Init::Zeros };
            let name = format!("in.{index}");
            inputs.push(match self.sample.op.op().input_space(index) {
                Space::Device => graph.input(&name, ty, kind)?,
                Space::Host => graph.host_resident(&name, ty, Component::Inputs, Init::Zeros)?,
            });
        }
        let outputs = match &self.sample.op {
            OpRef::Forward(op) => graph.apply_all("op", Shared(op.clone()), &inputs)?,
            OpRef::Plain(op) => graph.add("op", SharedPlain(op.clone()), &inputs)?,
        };
        let fetched: Result<Vec<ValueId>, GraphError> = outputs.into_iter().map(|o| from_host(&mut graph, o)).collect();
        let outputs = fetched?;
        outputs.iter().for_each(|&o| graph.keep(o));
        let loss = self.loss(&mut graph, &outputs)?;
        let seed = graph.scalar("seed")?;
        let total = graph.scalar("loss")?;
        graph.add("loss.keep", Accumulate, &[loss, total])?;
        let mut grads = vec![None; inputs.len()];
        if differentiate {
            let wrt: Vec<usize> = (0..inputs.len()).filter(|&i| self.sample.inputs[i].checked).collect();
            let ids: Vec<ValueId> = wrt.iter().map(|&i| inputs[i]).collect();
            let found = gradients(&mut graph, loss, seed, &ids)?;
            wrt.into_iter().zip(found).for_each(|(i, grad)| grads[i] = grad);
            grads.iter().flatten().for_each(|&g| graph.keep(g));
        }
        let readable = outputs.iter().filter(|&&v| graph.ty(v).is_contiguous());
        Ok(Built {
            outputs: readable.map(|&v| graph.value(v).name.to_string()).collect(),
            grads: grads.iter().map(|g| g.map(|v| graph.value(v).name.to_string())).collect(),
            graph,
        })
    }

    /// Σ coefficient · output over all float outputs or output 0, or output 0 itself.
    fn loss(&self, graph: &mut Graph, outputs: &[ValueId]) -> Result<ValueId, GraphError> {
        if self.sample.scalar_loss {
            return wide(graph, outputs[0]);
        }
        let mut total = None;
        let differentiated = if self.sample.first_output { &outputs[..1] } else { outputs };
        for (index, &output) in differentiated.iter().enumerate() {
            let (ty, n) = (graph.ty(output).contiguous(), graph.ty(output).elements());
            let kind = InputKind::Resident { component: Component::Inputs, init: Init::Zeros };
            let c = graph.input(&format!("c.{index}"), ty, kind)?;
            let weighted = graph.apply("weighted", Binary::MUL, &[output, c])?;
            let flat = graph.apply("flat", Reshape { shape: vec![n] }, &[weighted])?;
            let flat = wide(graph, flat)?;
            let sum = graph.apply("sum", Sum { axis: 0 }, &[flat])?;
            total = Some(match total {
                None => sum,
                Some(before) => graph.apply("total", Binary::ADD, &[before, sum])?,
            });
        }
        Ok(total.expect("an op has outputs"))
    }

    /// Everything that is written before the graph runs: inputs with these values, coefficients, scalars.
    pub(crate) fn inputs<'a>(&'a self, values: &'a [Vec<f64>]) -> Vec<(String, &'a [f64])> {
        let mut inputs: Vec<(String, &[f64])> = Vec::new();
        inputs.extend(values.iter().enumerate().map(|(i, v)| (format!("in.{i}"), v.as_slice())));
        let used = |index: usize| !self.sample.scalar_loss && (index == 0 || !self.sample.first_output);
        let coefficients = self.coefficients.iter().enumerate().filter(|(index, _)| used(*index));
        inputs.extend(coefficients.map(|(i, v)| (format!("c.{i}"), v.as_slice())));
        inputs.extend([("loss".to_string(), &[0.0][..]), ("seed".to_string(), &[1.0][..])]);
        inputs
    }
}

/// The value in the type of the graph's scalars: f32 in half precision, and whatever type an op itself casts to.
fn wide(graph: &mut Graph, value: ValueId) -> Result<ValueId, GraphError> {
    let scalars = graph.float.wide();
    match graph.ty(value).dtype == scalars {
        true => Ok(value),
        false => graph.apply("wide", Cast(scalars), &[value]),
    }
}

/// The value on the device: what is in host memory is fetched.
fn from_host(graph: &mut Graph, value: ValueId) -> Result<ValueId, GraphError> {
    let ty = graph.ty(value).clone();
    match graph.value(value).space {
        Space::Device => Ok(value),
        Space::Host => Ok(graph.add("fetched", FromHost::whole(&ty), &[value])?[0]),
    }
}

/// Lets a sample's op, which is behind a pointer, be added to a graph.
#[derive(Debug)]
struct Shared(Arc<dyn plimsoll_core::graph::Differentiable>);
#[derive(Debug)]
struct SharedPlain(Arc<dyn plimsoll_core::graph::Op>);

macro_rules! forward_op {
    ($name:ty) => {
        impl plimsoll_core::graph::Op for $name {
            fn outputs(&self, inputs: &[Type]) -> Result<plimsoll_core::types::Results, plimsoll_core::graph::OpError> {
                self.0.outputs(inputs)
            }
            fn aliases(&self, inputs: &[Type]) -> plimsoll_core::graph::Aliases {
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
            fn workspace(&self, inputs: &[Type], target: &plimsoll_core::graph::Target) -> usize {
                self.0.workspace(inputs, target)
            }
            fn cpu(&self, io: &plimsoll_core::kernels::cpu::CpuIo<'_>) {
                self.0.cpu(io)
            }
            fn cuda(
                &self,
                launch: &mut plimsoll_core::kernels::cuda::Launch<'_>,
            ) -> Result<(), plimsoll_core::kernels::cuda::CudaError> {
                self.0.cuda(launch)
            }
        }
    };
}
forward_op!(Shared);
forward_op!(SharedPlain);
impl plimsoll_core::graph::Differentiable for Shared {
    fn vjp(&self, cx: &mut plimsoll_core::graph::Vjp<'_>) -> Result<plimsoll_core::graph::InputGrads, GraphError> {
        self.0.vjp(cx)
    }
}

/// `rounds` draws of every op's samples, from a printed seed.
pub(crate) fn cases(seed: u64, rounds: usize) -> Vec<(&'static str, Case)> {
    println!("PLIMSOLL_TEST_SEED={seed}");
    let mut rng = SampleRng::new(seed);
    let mut cases = Vec::new();
    for (name, samples) in registry() {
        for _ in 0..rounds {
            let samples = samples(&mut rng);
            cases.extend(samples.into_iter().map(|sample| (name, Case::new(sample, &mut rng))));
        }
    }
    cases
}
