//! Random training programs: layers of random ops, gradients, accumulation, AdamW, and a random recompute choice.

use super::TARGET;
use plimsoll_core::autodiff::gradients;
use plimsoll_core::graph::{Component, Graph, Init, InputKind, Role, ValueId};
use plimsoll_core::ops::{
    Accumulate, Activate, Activation, AdamW, Binary, ClipNorm, Concat, CrossEntropy, MatMul, Permute, Reshape,
    SampleRng, Scale, Slice, Split, Sum,
};
use plimsoll_core::plan::{Layout, LayoutOptions, Part, Phase, Program, Recompute, recompute, recomputed_nodes};
use plimsoll_core::types::{DType, Type};
use plimsoll_exec::cpu::CpuExecutor;

/// What a random program may differ in without learning seeing it.
#[derive(Clone, Debug)]
pub(crate) struct Decisions {
    pub recompute: Recompute,
    pub sharing: bool,
}

impl Decisions {
    pub(crate) fn options(&self) -> LayoutOptions {
        LayoutOptions { target: TARGET, sharing: self.sharing }
    }
}

pub(crate) fn random_recompute(rng: &mut SampleRng, step: &RandomStep) -> Recompute {
    match rng.size(0, 3) {
        0 => Recompute::Cheap,
        1 => Recompute::Layers,
        _ => Recompute::Some(random_parts(rng, step)),
    }
}

/// Any forward nodes at all, in two overlapping stretches of layers and outside of them.
fn random_parts(rng: &mut SampleRng, step: &RandomStep) -> Vec<Part> {
    let graph = &step.graphs[0].1;
    let mut part = |layers: Option<(u32, u32)>| {
        let mut nodes: Vec<String> = Vec::new();
        for node in graph.nodes().iter().filter(|n| n.role == Role::Forward) {
            let inside = node.segment.map(|s| node.name[graph.layer_path(s).len() + 1..].to_string());
            if inside.is_some() == layers.is_some() && rng.size(0, 1) == 0 {
                nodes.push(inside.unwrap_or(node.name.to_string()));
            }
        }
        Part { layers, nodes }
    };
    vec![part(Some((0, step.layers.div_ceil(2)))), part(Some((step.layers / 2, step.layers))), part(None)]
}

/// The step of a random model, before decisions: one phase, or micro-steps and an update.
pub(crate) struct RandomStep {
    pub graphs: Vec<(&'static str, Graph, usize)>,
    pub layers: u32,
}

const CLASSES: usize = 5;
const MAX_WIDTH: usize = 40;

impl RandomStep {
    pub(crate) fn new(rng: &mut SampleRng) -> RandomStep {
        let layers = rng.size(1, 4) as u32;
        let mut graph = Graph::new("step", DType::F32);
        let loss = Builder { graph: &mut graph, rng, pool: Vec::new(), weights: 0 }.model(layers);
        let seed = graph.scalar("seed").unwrap();
        let trained = graph.trained();
        let grads = gradients(&mut graph, loss, seed, &trained).unwrap();
        let pairs: Vec<(ValueId, ValueId)> =
            trained.into_iter().zip(grads).filter_map(|(w, g)| Some((w, g?))).collect();
        let repeat = rng.size(1, 3);
        // Now and then only frozen weights are reached: then there is nothing to clip or update.
        let clip = rng.size(0, 1) == 1 && !pairs.is_empty();
        let graphs = match rng.size(0, 1) {
            0 => {
                update(&mut graph, &pairs, clip, false);
                vec![("step", graph, 1)]
            }
            _ => {
                let update_graph = accumulate(&mut graph, &pairs, clip);
                vec![("micro", graph, repeat), ("update", update_graph, 1)]
            }
        };
        RandomStep { graphs, layers }
    }

    pub(crate) fn program(&self, choice: &Recompute) -> Program {
        let phase = |(name, graph, repeat): &(&str, Graph, usize)| {
            let graph = recompute(graph, &recomputed_nodes(graph, choice)).unwrap();
            Phase { name: name.to_string(), graph, repeat: *repeat }
        };
        Program::new(self.graphs.iter().map(phase).collect()).unwrap()
    }
}

/// The gradient of a small random model, of a dozen nodes or a few more: nothing is run, so sizes can be large enough to
/// weigh. Gradients are added to residents.
pub(crate) fn small_step(rng: &mut SampleRng) -> Graph {
    let mut graph = Graph::new("step", DType::F32);
    let (rows, width) = (64 * rng.size(1, 40), 16 * rng.size(1, 40));
    let x = graph.data("x", Type::new(DType::F32, &[rows, width])).unwrap();
    let gain = graph.parameter("w", &[width], Init::Ones, true).unwrap();
    let mut pool = vec![graph.apply("gain", Binary::MUL, &[x, gain]).unwrap()];
    for index in 0..rng.size(2, 5) {
        let value = small_op(&mut graph, rng, &pool, index);
        pool.push(value);
    }
    let last = pool[pool.len() - 1];
    let ty = graph.ty(last).clone();
    let seed = graph.resident("seed", ty, Component::Inputs, Init::Ones).unwrap();
    let trained = graph.trained();
    let grads = gradients(&mut graph, last, seed, &trained).unwrap();
    for (weight, grad) in trained.into_iter().zip(grads) {
        let (name, ty) = (format!("gradient.{}", graph.value(weight).name), graph.ty(weight).clone());
        let total = graph.resident(&name, ty, Component::Gradients, Init::Zeros).unwrap();
        if let Some(grad) = grad {
            graph.with_role(Role::Update, |g| g.accumulate(&format!("{name}.add"), grad, total)).unwrap();
        }
    }
    graph
}

/// One node on a recent value.
fn small_op(graph: &mut Graph, rng: &mut SampleRng, pool: &[ValueId], index: usize) -> ValueId {
    let x = pool[rng.size(pool.len().saturating_sub(2), pool.len() - 1)];
    let width = graph.shape(x)[1];
    match rng.size(0, 7) {
        0 => {
            let to = 16 * rng.size(1, 40);
            let weight = graph.parameter(&format!("w{index}"), &[to, width], Init::Normal(0.3), true).unwrap();
            graph.apply("product", MatMul::TRANSPOSED, &[x, weight]).unwrap()
        }
        1 => {
            let gain = graph.parameter(&format!("w{index}"), &[width], Init::Ones, true).unwrap();
            graph.apply("gain", Binary::MUL, &[x, gain]).unwrap()
        }
        2 => {
            let alike = pool.iter().copied().filter(|&v| graph.shape(v) == graph.shape(x));
            let alike: Vec<ValueId> = alike.collect();
            let other = alike[rng.size(0, alike.len() - 1)];
            graph.apply("combine", Binary::MUL, &[x, other]).unwrap()
        }
        3 => graph.apply("scale", Scale(0.5), &[x]).unwrap(),
        _ => {
            let kind = [Activation::Gelu, Activation::Tanh, Activation::Silu][rng.size(0, 2)];
            graph.apply("act", Activate(kind), &[x]).unwrap()
        }
    }
}

/// AdamW on each (weight, gradient).
fn update(graph: &mut Graph, pairs: &[(ValueId, ValueId)], clip: bool, zero_gradient: bool) {
    graph.with_role(Role::Update, |graph| {
        let [lr, one, two] = ["lr", "correction1", "correction2"].map(|name| graph.scalar(name).unwrap());
        let factor = match clip {
            true => {
                let grads: Vec<ValueId> = pairs.iter().map(|p| p.1).collect();
                graph.add("clip", ClipNorm { max_norm: Some(0.5) }, &grads).unwrap()[1]
            }
            false => graph.scalar("factor").unwrap(),
        };
        for &(weight, grad) in pairs {
            let (name, ty) = (graph.value(weight).name.to_string(), graph.ty(weight).clone());
            let moment = |graph: &mut Graph, which: &str| {
                graph.resident(&format!("{which}.{name}"), ty.clone(), Component::Optimizer, Init::Zeros).unwrap()
            };
            let (m, v) = (moment(graph, "moment1"), moment(graph, "moment2"));
            let op = AdamW { beta1: 0.9, beta2: 0.99, eps: 1e-8, weight_decay: 0.01, zero_gradient, rounding: None };
            graph.add(&format!("{name}.update"), op, &[weight, m, v, grad, lr, one, two, factor]).unwrap();
        }
    });
}

/// Gradients go to accumulators in `graph`; the result is the graph of the update.
fn accumulate(graph: &mut Graph, pairs: &[(ValueId, ValueId)], clip: bool) -> Graph {
    let mut later = Graph::new("update", DType::F32);
    let mut later_pairs = Vec::new();
    for &(weight, grad) in pairs {
        let (value, ty) = (graph.value(weight).clone(), graph.ty(weight).clone());
        let name = format!("gradient.{}", value.name);
        let total = graph.resident(&name, ty.clone(), Component::Gradients, Init::Zeros).unwrap();
        let add = |graph: &mut Graph| graph.add(&format!("{name}.add"), Accumulate, &[grad, total]).unwrap();
        graph.with_role(Role::Update, add);
        let weight = later.input(&value.name, ty.clone(), value.input.clone().unwrap()).unwrap();
        later_pairs.push((weight, later.resident(&name, ty, Component::Gradients, Init::Zeros).unwrap()));
    }
    update(&mut later, &later_pairs, clip, true);
    later
}

struct Builder<'a> {
    graph: &'a mut Graph,
    rng: &'a mut SampleRng,
    /// Values of shape (rows, width) to read from.
    pool: Vec<ValueId>,
    weights: usize,
}

impl Builder<'_> {
    fn model(&mut self, layers: u32) -> ValueId {
        let (rows, width) = (self.rng.size(2, 6), 2 * self.rng.size(2, 10));
        let x = self.graph.data("x", Type::new(DType::F32, &[rows, width])).unwrap();
        self.pool.push(x);
        for layer in 0..layers {
            let ops = self.rng.size(2, 7);
            let path = format!("layers.{layer}");
            // `layer` wants a body that holds the graph; the builder steps into the scope around it instead.
            let Builder { graph, rng, pool, weights } = self;
            graph.layer(&path, |graph| {
                let mut inner = Builder { graph, rng, pool: std::mem::take(pool), weights: *weights };
                (0..ops).for_each(|_| inner.random_op());
                (*pool, *weights) = (inner.pool, inner.weights);
            });
        }
        self.loss(rows)
    }

    /// Cross-entropy, whole or in two chunks of rows, sometimes with a penalty beside it.
    fn loss(&mut self, rows: usize) -> ValueId {
        let last = *self.pool.last().unwrap();
        let logits = self.linear(last, CLASSES);
        let targets = self.graph.data("targets", Type::new(DType::I32, &[rows])).unwrap();
        let weights = self.graph.data("weights", Type::new(DType::F32, &[rows])).unwrap();
        let cut = if self.rng.size(0, 1) == 0 { vec![rows] } else { vec![1, rows - 1] };
        let mut loss = None;
        let mut start = 0;
        for len in cut {
            let slice = Slice { axis: 0, start, len };
            start += len;
            let parts = [logits, targets, weights].map(|v| self.graph.apply("rows", slice.clone(), &[v]).unwrap());
            let part = self.graph.apply("loss", CrossEntropy, &parts).unwrap();
            loss = Some(self.add_to(loss, part));
        }
        if self.rng.size(0, 2) == 0 {
            let pick = self.pick();
            let n = self.graph.ty(pick).elements();
            let flat = self.apply("flat", Reshape { shape: vec![n] }, &[pick]);
            let sum = self.apply("penalty", Sum { axis: 0 }, &[flat]);
            let small = self.apply("penalty.small", Scale(0.01), &[sum]);
            loss = Some(self.add_to(loss, small));
        }
        let loss = loss.unwrap();
        self.graph.keep(loss);
        loss
    }

    fn add_to(&mut self, total: Option<ValueId>, part: ValueId) -> ValueId {
        match total {
            None => part,
            Some(total) => self.apply("total", Binary::ADD, &[total, part]),
        }
    }

    fn apply(
        &mut self,
        name: &str,
        op: impl plimsoll_core::graph::Differentiable + 'static,
        inputs: &[ValueId],
    ) -> ValueId {
        self.graph.apply(name, op, inputs).unwrap()
    }

    fn parameter(&mut self, shape: &[usize]) -> ValueId {
        self.weights += 1;
        let name = format!("w{}", self.weights);
        if self.rng.size(0, 9) == 0 {
            let frozen = InputKind::Parameter { trained: false, decay: false, init: Init::Normal(0.3) };
            let name = self.graph.path(&name);
            return self.graph.input(&name, Type::new(DType::F32, shape), frozen).unwrap();
        }
        // Now and then a tied weight: a parameter of this shape that exists already.
        let tied = self.graph.trained().into_iter().find(|&w| self.graph.shape(w) == shape);
        match tied.filter(|_| self.rng.size(0, 3) == 0) {
            Some(weight) => weight,
            None => self.graph.parameter(&name, shape, Init::Normal(0.3), true).unwrap(),
        }
    }

    fn width(&self, value: ValueId) -> usize {
        self.graph.shape(value)[1]
    }

    /// Mostly a recent value, sometimes any.
    fn pick(&mut self) -> ValueId {
        let n = self.pool.len();
        let low = if self.rng.size(0, 3) == 0 { 0 } else { n.saturating_sub(2) };
        self.pool[self.rng.size(low, n - 1)]
    }

    fn linear(&mut self, x: ValueId, out: usize) -> ValueId {
        let weight = self.parameter(&[out, self.width(x)]);
        if self.rng.size(0, 1) == 0 {
            return self.apply("proj", MatMul::TRANSPOSED, &[x, weight]);
        }
        let bias = self.parameter(&[out]);
        let activation = if self.rng.size(0, 3) == 0 { Activation::Silu } else { Activation::None };
        self.apply("linear", MatMul { activation, ..MatMul::LINEAR }, &[x, weight, bias])
    }

    /// A divisor of the width between 1 and itself.
    fn divisor(&mut self, width: usize) -> usize {
        let divisors: Vec<usize> = (1..=width).filter(|d| width.is_multiple_of(*d)).collect();
        divisors[self.rng.size(0, divisors.len() - 1)]
    }

    fn random_op(&mut self) {
        let x = self.pick();
        let (rows, width) = (self.graph.shape(x)[0], self.width(x));
        let result = match self.rng.size(0, 10) {
            0 | 1 => {
                let out = self.rng.size(1, MAX_WIDTH);
                self.linear(x, out)
            }
            2 => self.combine(x),
            3 => {
                let scale = self.parameter(&[width]);
                self.apply("gain", Binary::MUL, &[x, scale])
            }
            4 => {
                let kinds = [Activation::Relu, Activation::Gelu, Activation::GeluTanh, Activation::Sigmoid];
                let kind = kinds[self.rng.size(0, 3)];
                self.apply("act", Activate(kind), &[x])
            }
            5 => self.apply("scale", Scale(-0.7), &[x]),
            6 => self.shuffle(x, rows, width),
            7 => {
                let len = self.rng.size(1, width);
                let start = self.rng.size(0, width - len);
                self.apply("cut", Slice { axis: 1, start, len }, &[x])
            }
            8 => self.split_and_join(x, width),
            9 => {
                let d = self.divisor(width);
                let cube = self.apply("cube", Reshape { shape: vec![rows, d, width / d] }, &[x]);
                let axis = self.rng.size(1, 2);
                self.apply("sum", Sum { axis }, &[cube])
            }
            _ => self.scores(x, rows, width),
        };
        // Bounded, so that no product grows without limit.
        let result = self.apply("tame", Activate(Activation::Tanh), &[result]);
        self.pool.push(result);
    }

    /// `x ∘ other` with a value of the same shape, possibly itself.
    fn combine(&mut self, x: ValueId) -> ValueId {
        let alike: Vec<ValueId> =
            self.pool.iter().copied().filter(|&v| self.graph.shape(v) == self.graph.shape(x)).collect();
        let other = alike[self.rng.size(0, alike.len() - 1)];
        let op = [Binary::ADD, Binary::SUB, Binary::MUL][self.rng.size(0, 2)].clone();
        self.apply("combine", op, &[x, other])
    }

    fn shuffle(&mut self, x: ValueId, rows: usize, width: usize) -> ValueId {
        let d = self.divisor(width);
        let cube = self.apply("cube", Reshape { shape: vec![rows, d, width / d] }, &[x]);
        let turned = self.apply("turned", Permute { order: vec![0, 2, 1] }, &[cube]);
        self.apply("flat", Reshape { shape: vec![rows, width] }, &[turned])
    }

    /// Parts in another order; one part may be left out, so that its gradient is zero.
    fn split_and_join(&mut self, x: ValueId, width: usize) -> ValueId {
        let first = self.rng.size(0, width);
        let middle = self.rng.size(0, width - first);
        let lens = [first, middle, width - first - middle];
        let lens: Vec<usize> = lens.into_iter().filter(|&len| len > 0).collect();
        let parts = self.graph.apply_all("split", Split { axis: 1, lens: lens.clone() }, &[x]).unwrap();
        let skip = (parts.len() > 1 && self.rng.size(0, 1) == 0) as usize;
        let chosen: Vec<usize> = (skip..parts.len()).rev().collect();
        let inputs: Vec<ValueId> = chosen.iter().map(|&i| parts[i]).collect();
        self.apply("join", Concat::of(1, chosen.iter().map(|&i| lens[i]).collect()), &inputs)
    }

    /// A batched product of the value with itself, as attention scores are.
    fn scores(&mut self, x: ValueId, rows: usize, width: usize) -> ValueId {
        let d = (1..=6).rev().find(|d| width.is_multiple_of(*d)).unwrap_or(1);
        let cube = self.apply("heads", Reshape { shape: vec![rows, d, width / d] }, &[x]);
        let scores = self.apply("scores", MatMul::TRANSPOSED, &[cube, cube]);
        self.apply("scores.flat", Reshape { shape: vec![rows, d * d] }, &[scores])
    }
}

/// Runs two whole steps from values that depend only on names, and returns the bits of every resident and kept value.
pub(crate) fn bits_after_two_steps(program: &Program, layout: &Layout, poison: bool) -> Vec<(String, Vec<u32>)> {
    let mut executor = CpuExecutor::new(program, layout, TARGET.threads).unwrap();
    if poison {
        executor.poison_dead_slots();
    }
    fill_residents(program, &mut executor);
    let mut bits = Vec::new();
    for step in 0..2u64 {
        for (index, phase) in program.phases.iter().enumerate() {
            for run in 0..phase.repeat as u64 {
                fill_inputs(&phase.graph, index, &mut executor, 10 * step + run);
                executor.run(index);
                for &kept in phase.graph.kept() {
                    let name = &phase.graph.value(kept).name;
                    let values = executor.output::<f32>(index, name).unwrap();
                    bits.push((format!("{name} in step {step}, run {run}"), to_bits(values)));
                }
            }
        }
    }
    let residents = program.residents.iter();
    bits.extend(residents.map(|r| (r.name.clone(), to_bits(executor.resident::<f32>(&r.name).unwrap()))));
    // Programs of different decisions list residents in different orders.
    bits.sort();
    bits
}

fn to_bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

fn named_rng(name: &str, salt: u64) -> SampleRng {
    let seed = name.bytes().fold(salt, |h, b| h.wrapping_mul(1099511628211).wrapping_add(b as u64));
    SampleRng::new(seed)
}

fn fill_residents(program: &Program, executor: &mut CpuExecutor) {
    for resident in &program.residents {
        let mut rng = named_rng(&resident.name, 1);
        let values = executor.resident_mut::<f32>(&resident.name).unwrap();
        match resident.name.as_str() {
            "seed" => values.fill(0.25),
            "lr" => values.fill(1e-2),
            "correction1" | "correction2" => values.fill(0.1),
            "factor" => values.fill(1.0),
            _ if resident.is_parameter => values.iter_mut().for_each(|x| *x = 0.3 * rng.normal() as f32),
            _ => values.fill(0.0),
        }
    }
}

fn fill_inputs(graph: &Graph, phase: usize, executor: &mut CpuExecutor, salt: u64) {
    let data = graph.values().iter().filter(|v| matches!(v.input, Some(InputKind::Data)));
    for value in data {
        let mut rng = named_rng(&value.name, salt);
        if value.ty.dtype == DType::I32 {
            let ids = executor.input_mut::<i32>(phase, &value.name).unwrap();
            ids.iter_mut().for_each(|x| *x = rng.size(0, CLASSES - 1) as i32);
        } else {
            let values = executor.input_mut::<f32>(phase, &value.name).unwrap();
            values.iter_mut().for_each(|x| *x = rng.normal() as f32);
        }
    }
}
