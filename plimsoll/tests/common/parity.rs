//! One golden file of PyTorch against plimsoll: outputs, gradients, ten losses. Used by the parity test on the files in
//! the repo and by the example `parity` on fresh ones.

use plimsoll::autodiff::gradients;
use plimsoll::exec::cpu::{CpuExecutor, Element};
use plimsoll::graph::{DType, Graph};
use plimsoll::models::{AttentionForm, Build, Family};
use plimsoll::ops::Target;
use plimsoll::plan::{LayoutOptions, Phase, Program, Recompute, lay_out};
use plimsoll::recipe::{Model, Recipe};
use plimsoll::train::{STEP, Settings, StepSpec, UpdateRule, family, program};
use safetensors::{Dtype, SafeTensors};
use std::path::Path;

const OPTIONS: LayoutOptions = LayoutOptions { target: Target { threads: 2 }, sharing: true };

/// What a comparison found. Every figure is to stay at or below 1: it is divided by what is allowed.
pub struct Verdict {
    pub name: String,
    /// ‖logits − reference‖ / ‖reference‖ over 1e-5.
    pub outputs: f64,
    /// The worst parameter: ‖a − b‖ over max(‖b‖, 1e-3 · global norm), over 1e-4.
    pub gradients: f64,
    pub worst_gradient: String,
    /// The largest |loss − f64 loss| over three times PyTorch's own: the largest of its f32 runs, in which the rows of
    /// the batch are rotated. One run alone can hit the f64 losses by luck.
    pub losses: f64,
    /// Running statistics and evaluation outputs, relative, over 1e-5.
    pub evaluation: f64,
}

impl Verdict {
    pub fn holds(&self) -> bool {
        // Written so that NaN does not hold.
        [self.outputs, self.gradients, self.losses, self.evaluation].iter().all(|&x| x <= 1.0)
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Verdict { name, outputs, gradients, worst_gradient, losses, evaluation } = self;
        write!(f, "{} {name:28} of what is allowed: ", if self.holds() { "ok  " } else { "FAIL" })?;
        write!(
            f,
            "outputs {outputs:.3}, gradients {gradients:.3} ({worst_gradient}), losses {losses:.3}, evaluation {evaluation:.3}"
        )
    }
}

struct Golden<'f> {
    file: SafeTensors<'f>,
    family: Box<dyn Family>,
    batch: usize,
    length: usize,
}

pub fn compare(path: &Path) -> Verdict {
    let bytes = std::fs::read(path).unwrap();
    let golden = Golden::new(&bytes);
    let (outputs, gradients, worst_gradient) = golden.compare_pass();
    let (losses, evaluation) = golden.compare_steps();
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    let folder = path.parent().and_then(Path::file_name).map_or(String::new(), |n| n.to_string_lossy().into_owned());
    Verdict { name: format!("{folder}/{name}"), outputs, gradients, worst_gradient, losses, evaluation }
}

impl<'f> Golden<'f> {
    fn new(bytes: &'f [u8]) -> Self {
        let file = SafeTensors::deserialize(bytes).unwrap();
        let (_, header) = SafeTensors::read_metadata(bytes).unwrap();
        let config: serde_json::Value = serde_json::from_str(&header.metadata().as_ref().unwrap()["config"]).unwrap();
        let is_text = file.tensor("ids").is_ok();
        let shape = file.tensor(if is_text { "ids" } else { "x" }).unwrap().shape().to_vec();
        let recipe = recipe(&config["model"], shape[0], is_text);
        let family = family(&recipe.model);
        Golden { file, family, batch: shape[0], length: shape[1] }
    }

    fn floats(&self, name: &str) -> Vec<f64> {
        let tensor = self.file.tensor(name).unwrap_or_else(|_| panic!("the golden file has no {name}"));
        let data = tensor.data();
        match tensor.dtype() {
            Dtype::F64 => data.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect(),
            Dtype::F32 => data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()) as f64).collect(),
            Dtype::I64 => data.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as f64).collect(),
            other => panic!("{name} is {other:?}"),
        }
    }

    /// Weight of every row of the loss.
    fn row_weights(&self) -> Vec<f64> {
        if self.file.tensor("x").is_ok() {
            return vec![1.0; self.batch];
        }
        if self.file.tensor("weight").is_ok() {
            return self.floats("weight");
        }
        (0..self.batch * self.length).map(|i| ((i + 1) % self.length != 0) as u32 as f64).collect()
    }

    fn write_inputs(&self, executor: &mut CpuExecutor, phase: usize) {
        if self.file.tensor("x").is_ok() {
            fill(executor.input_mut::<f32>(phase, "x"), &self.floats("x"));
            fill(executor.input_mut::<i32>(phase, "label"), &self.floats("label"));
            return fill(executor.input_mut::<f32>(phase, "weight"), &self.row_weights());
        }
        let ids = self.floats("ids");
        let targets: Vec<f64> = (0..ids.len()).map(|i| *ids.get(i + 1).unwrap_or(&0.0)).collect();
        fill(executor.input_mut::<i32>(phase, "ids"), &ids);
        fill(executor.input_mut::<i32>(phase, "targets"), &targets);
        fill(executor.input_mut::<f32>(phase, "weights"), &self.row_weights());
    }

    fn write_parameters(&self, executor: &mut CpuExecutor, program: &Program) {
        for resident in &program.residents {
            match self.file.tensor(&format!("param.{}", resident.name)) {
                Ok(tensor) => {
                    assert_eq!(tensor.shape(), &resident.ty.shape[..], "{}", resident.name);
                    fill(
                        executor.resident_mut::<f32>(&resident.name),
                        &self.floats(&format!("param.{}", resident.name)),
                    );
                }
                Err(_) => assert!(!resident.is_parameter, "the golden file has no {}", resident.name),
            }
            if resident.name.ends_with("running_var") {
                executor.resident_mut::<f32>(&resident.name).unwrap().fill(1.0);
            }
        }
    }

    fn build(&self) -> Build {
        let (attention, rows) = (AttentionForm::Fused, self.batch * self.length);
        Build {
            batch: self.batch,
            length: self.length,
            target_length: 0,
            training: true,
            attention,
            block_group: usize::MAX,
            loss_chunk: rows,
        }
    }

    /// Logits and gradients of one pass at the initial weights.
    fn compare_pass(&self) -> (f64, f64, String) {
        let mut graph = Graph::new("pass", DType::F32);
        let outputs = self.family.forward(&mut graph, &self.build()).unwrap();
        let logits = outputs.logits.or_else(|| graph.find("head.logits")).unwrap();
        let logits_name = graph.value(logits).name.clone();
        graph.keep(logits);
        let scale = graph.scalar("loss.scale").unwrap();
        let trained = graph.trained();
        let grads = gradients(&mut graph, outputs.loss, scale, &trained).unwrap();
        let grads: Vec<_> =
            trained.iter().zip(grads).map(|(&p, g)| (p, g.expect("every parameter has a gradient"))).collect();
        grads.iter().for_each(|&(_, g)| graph.keep(g));
        let named = |(p, g): &(_, _)| (graph.value(*p).name.clone(), graph.value(*g).name.clone());
        let names: Vec<(String, String)> = grads.iter().map(named).collect();
        let program = Program::new(vec![Phase { name: "pass".into(), graph, repeat: 1 }]).unwrap();
        let mut executor = executor(&program);
        self.write_parameters(&mut executor, &program);
        self.write_inputs(&mut executor, 0);
        let weights = self.row_weights();
        let count: f64 = weights.iter().sum();
        executor.resident_mut::<f32>("loss.scale").unwrap()[0] = (1.0 / count) as f32;
        executor.run(0);
        let ours: Vec<f64> = executor.output::<f32>(0, &logits_name).unwrap().iter().map(|&x| x as f64).collect();
        let outputs = self.logits_error(&ours) / 1e-5;
        let reference: Vec<Vec<f64>> = names.iter().map(|(p, _)| self.floats(&format!("grad.{p}"))).collect();
        let global = reference.iter().flatten().map(|x| x * x).sum::<f64>().sqrt();
        let error = |((name, grad), expected): (&(String, String), &Vec<f64>)| {
            let ours: Vec<f64> = executor.output::<f32>(0, grad).unwrap().iter().map(|&x| x as f64).collect();
            (distance(&ours, expected) / norm(expected).max(1e-3 * global) / 1e-4, name.clone())
        };
        let worst = names.iter().zip(&reference).map(error).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        (outputs, worst.0, worst.1)
    }

    /// Relative error of the logits, at positions that hold real tokens.
    fn logits_error(&self, ours: &[f64]) -> f64 {
        let expected = self.floats("logits");
        let Ok(_) = self.file.tensor("length") else { return distance(ours, &expected) / norm(&expected) };
        let (lengths, vocab) = (self.floats("length"), expected.len() / (self.batch * self.length));
        let is_real = |i: usize| ((i / vocab % self.length) as f64) < lengths[i / vocab / self.length];
        let real = |v: &[f64]| v.iter().enumerate().filter(|(i, _)| is_real(*i)).map(|(_, &x)| x).collect::<Vec<_>>();
        distance(&real(ours), &real(&expected)) / norm(&real(&expected))
    }

    /// Ten updates as the trainer makes them, and the evaluation graph after the first pass's statistics.
    fn compare_steps(&self) -> (f64, f64) {
        let spec = StepSpec {
            effective_batch: self.batch,
            length: self.length,
            target_length: 0,
            rule: UpdateRule::AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8 },
            weight_decay: 0.01,
            decay_all: true,
            clip_norm: Some(1.0),
            evaluate_batch: None,
            samples_text: false,
            float: DType::F32,
            master: DType::F32,
            state: DType::F32,
        };
        let Build { attention, block_group, loss_chunk, .. } = self.build();
        let settings = Settings {
            micro_batch: self.batch,
            accumulation: 1,
            recompute: Recompute::None,
            attention,
            block_group,
            loss_chunk,
            sharing: true,
        };
        let program = program(self.family.as_ref(), &spec, &settings).unwrap();
        let phase = program.phase(STEP).unwrap();
        let mut executor = executor(&program);
        self.write_parameters(&mut executor, &program);
        let count: f64 = self.row_weights().iter().sum();
        let (mut losses, mut statistics) = (Vec::new(), 0.0f64);
        for step in 0..10 {
            let t = step + 1;
            let scalars = [
                ("lr", 1e-5),
                ("loss.scale", 1.0 / count),
                ("adam.correction1", 1.0 - 0.9f64.powi(t)),
                ("adam.correction2", 1.0 - 0.999f64.powi(t)),
                ("metrics.loss", 0.0),
                ("metrics.correct", 0.0),
                ("metrics.norm", 0.0),
            ];
            scalars.iter().for_each(|&(name, x)| executor.resident_mut::<f32>(name).unwrap()[0] = x as f32);
            self.write_inputs(&mut executor, phase);
            executor.run(phase);
            losses.push(executor.resident::<f32>("metrics.loss").unwrap()[0] as f64 / count);
            if step == 0 {
                statistics = self.statistics_error(&executor, &program);
            }
        }
        (self.losses_error(&losses), statistics.max(self.evaluation_error()) / 1e-5)
    }

    fn losses_error(&self, ours: &[f64]) -> f64 {
        let exact = self.floats("losses.f64");
        let furthest = |run: &[f64]| run.iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let mut allowed = furthest(&self.floats("losses.f32"));
        for run in self.floats("losses.f32_reordered").chunks(10) {
            allowed = allowed.max(furthest(run));
        }
        furthest(ours) / (3.0 * allowed)
    }

    fn statistics_error(&self, executor: &CpuExecutor, program: &Program) -> f64 {
        let stored = program.residents.iter().filter(|r| r.name.contains(".running_"));
        let error = |r: &plimsoll::plan::Resident| {
            let ours: Vec<f64> = executor.resident::<f32>(&r.name).unwrap().iter().map(|&x| x as f64).collect();
            let expected = self.floats(&format!("state.{}", r.name));
            distance(&ours, &expected) / norm(&expected).max(1e-3)
        };
        stored.map(error).fold(0.0, f64::max)
    }

    /// The evaluation graph with the initial weights and PyTorch's running statistics.
    fn evaluation_error(&self) -> f64 {
        if self.file.tensor("eval_logits").is_err() {
            return 0.0;
        }
        let mut graph = Graph::new("evaluate", DType::F32);
        let logits =
            self.family.forward(&mut graph, &Build { training: false, ..self.build() }).unwrap().logits.unwrap();
        let name = graph.value(logits).name.clone();
        graph.keep(logits);
        let program = Program::new(vec![Phase { name: "evaluate".into(), graph, repeat: 0 }]).unwrap();
        let mut executor = executor(&program);
        self.write_parameters(&mut executor, &program);
        for resident in program.residents.iter().filter(|r| r.name.contains(".running_")) {
            fill(executor.resident_mut::<f32>(&resident.name), &self.floats(&format!("state.{}", resident.name)));
        }
        self.write_inputs(&mut executor, 0);
        executor.run(0);
        let ours: Vec<f64> = executor.output::<f32>(0, &name).unwrap().iter().map(|&x| x as f64).collect();
        let expected = self.floats("eval_logits");
        distance(&ours, &expected) / norm(&expected)
    }
}

/// The golden file's sizes as a recipe, so that the recipe's own reading of them is tested too.
fn recipe(model: &serde_json::Value, batch: usize, is_text: bool) -> Recipe {
    let lines = model.as_object().unwrap().iter().map(|(key, value)| format!("{key} = {value}\n"));
    // No file is opened: only the sizes are wanted.
    let data = match is_text {
        true => "train = \"corpus.txt\"\ntokenizer = \"tokenizer.json\"\n[train]\ntask = \"language-model\"",
        false => "source = \"synthetic:regimes\"\n[train]\ntask = \"series\"",
    };
    let model = lines.collect::<String>();
    let text = format!("[model]\n{model}[data]\n{data}\neffective_batch = {batch}\nepochs = 1\n");
    let mut recipe = Recipe::parse(&text, "golden.toml", &[]).unwrap_or_else(|e| panic!("{e}\n{text}"));
    if let Model::HybridCnnLstm(hybrid) = &mut recipe.model {
        hybrid.dropout = 0.0;
    }
    recipe
}

fn executor(program: &Program) -> CpuExecutor {
    let layout = lay_out(program, OPTIONS).unwrap();
    let mut executor = CpuExecutor::new(program, &layout, OPTIONS.target.threads).unwrap();
    executor.poison_dead_slots();
    executor
}

fn fill<T: Element + FromF64>(to: Option<&mut [T]>, from: &[f64]) {
    let to = to.expect("there is such a tensor");
    assert_eq!(to.len(), from.len());
    to.iter_mut().zip(from).for_each(|(to, &x)| *to = T::from_f64(x));
}

trait FromF64 {
    fn from_f64(x: f64) -> Self;
}
impl FromF64 for f32 {
    fn from_f64(x: f64) -> f32 {
        x as f32
    }
}
impl FromF64 for i32 {
    fn from_f64(x: f64) -> i32 {
        x as i32
    }
}

fn norm(v: &[f64]) -> f64 {
    v.iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum::<f64>().sqrt()
}
