//! One golden file of PyTorch against plimsoll: outputs, gradients, ten losses. Used by the parity tests on the files in
//! the repo and by the example `parity` on fresh ones. Nothing here knows a family: inputs, parameters and gradients
//! are found by the names they have in the graph.

mod golden;

use golden::Golden;
use plimsoll_core::autodiff::gradients;
use plimsoll_core::graph::Target;
use plimsoll_core::graph::{Graph, GraphError, InputKind, ValueId};
use plimsoll_core::plan::{LayoutOptions, Offload, Phase, Program, Recompute, Resident, lay_out};
use plimsoll_core::types::DType;
use plimsoll_exec::cpu::CpuExecutor;
use plimsoll_exec::{Executor, floats};
use plimsoll_models::families::{
    AttentionForm, BatchNormMode, Build, Family, FeedForwardForm, Input, Outputs, Sizes, Task,
};
use plimsoll_models::recipe::{Model, Recipe};
use plimsoll_planner::choose::family;
use plimsoll_planner::program::{STEP, Settings, StepSpec, UpdateRule, program};
use std::path::Path;

/// Gives a program an executor.
pub(crate) type Take = dyn Fn(&Program) -> Box<dyn Executor>;

/// The CPU, where a stale read shows.
pub(crate) fn on_cpu(program: &Program) -> Box<dyn Executor> {
    let target = Target::cpu(2);
    let layout = lay_out(program, LayoutOptions { target, sharing: true }).unwrap();
    let mut executor = CpuExecutor::new(program, &layout, target.threads).unwrap();
    executor.poison_dead_slots();
    Box::new(executor)
}

/// What a comparison found. Every figure is to stay at or below 1: it is divided by what is allowed.
pub(crate) struct Verdict {
    pub name: String,
    /// ‖logits − reference‖ / ‖reference‖ over 1e-5.
    pub outputs: f64,
    /// The worst parameter: ‖a − b‖ over max(‖b‖, 1e-3 · global norm), over 1e-4.
    pub gradients: f64,
    pub worst_gradient: String,
    /// The largest |loss − f64 loss| over three times PyTorch's own: the largest of its f32 runs, in which the rows of
    /// the batch are rotated. One run alone can hit the f64 losses by luck.
    pub losses: f64,
    /// Running statistics, the outputs of the evaluation graph and embeddings, relative, over 1e-5.
    pub evaluation: f64,
}

impl Verdict {
    /// The larger of each figure; NaN is larger than anything.
    fn worse(self, other: Verdict) -> Verdict {
        let larger = |a: f64, b: f64| if b > a || b.is_nan() { b } else { a };
        let gradients = larger(self.gradients, other.gradients);
        let is_other = gradients.to_bits() == other.gradients.to_bits();
        Verdict {
            outputs: larger(self.outputs, other.outputs),
            gradients,
            worst_gradient: if is_other { other.worst_gradient } else { self.worst_gradient },
            losses: larger(self.losses, other.losses),
            evaluation: larger(self.evaluation, other.evaluation),
            name: self.name,
        }
    }

    pub(crate) fn holds(&self) -> bool {
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

/// The worse of all forms that the family's feed-forward has.
pub(crate) fn compare(path: &Path, take: &Take) -> Verdict {
    let bytes = std::fs::read(path).unwrap();
    let mut comparison = Comparison::new(Golden::new(&bytes), take);
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    let folder = path.parent().and_then(Path::file_name).map_or(String::new(), |n| n.to_string_lossy().into_owned());
    let name = format!("{folder}/{name}");
    let plain = comparison.verdict(&name);
    if !comparison.family.family.has_fused_feed_forward() {
        return plain;
    }
    comparison.build.feed_forward = FeedForwardForm::Fused;
    plain.worse(comparison.verdict(&name))
}

/// Compares every golden file of `tests/goldens/NAME`, of which there are at least so many.
#[allow(dead_code)] // The example compares another folder.
pub(crate) fn compare_folder(name: &str, at_least: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= at_least, "only {} golden files", files.len());
    let verdicts: Vec<_> = files.iter().map(|file| compare(file, &on_cpu)).collect();
    verdicts.iter().for_each(|v| println!("{v}"));
    assert!(verdicts.iter().all(Verdict::holds), "not equal to PyTorch, see above");
}

struct Comparison<'f> {
    golden: Golden<'f>,
    model: Model,
    family: Shaped,
    build: Build,
    take: &'f Take,
}

impl<'f> Comparison<'f> {
    fn new(golden: Golden<'f>, take: &'f Take) -> Self {
        let first = ["x", "ids", "pixels"];
        let batch = golden.extent(&first, 0).expect("the golden file has inputs");
        let length = golden.extent(&["x", "ids"], 1).unwrap_or(0);
        let target_length = golden.extent(&["decoder_ids"], 1).unwrap_or(0);
        let recipe = recipe(&golden.config["model"], batch);
        let build = Build {
            batch,
            length,
            target_length,
            training: true,
            attention: AttentionForm::Fused,
            block_group: usize::MAX,
            loss_chunk: usize::MAX,
            feed_forward: FeedForwardForm::Plain,
        };
        let family = Shaped { family: family(&recipe.model), target_length };
        Comparison { golden, model: recipe.model, family, build, take }
    }

    fn verdict(&self, name: &str) -> Verdict {
        let (outputs, gradients, worst_gradient) = self.compare_pass();
        let (losses, statistics) = self.compare_steps();
        let evaluation = statistics.max(self.evaluation_error()).max(self.embedding_error()) / 1e-5;
        Verdict { name: name.into(), outputs, gradients, worst_gradient, losses, evaluation }
    }

    /// Logits and gradients of one pass at the initial weights.
    fn compare_pass(&self) -> (f64, f64, String) {
        let mut graph = Graph::new("pass", DType::F32);
        let outputs = self.family.forward(&mut graph, &self.build).unwrap();
        let logits = outputs.logits.or_else(|| graph.find("head.logits")).unwrap();
        let logits_name = graph.value(logits).name.to_string();
        graph.keep(logits);
        let scale = graph.scalar("loss.scale").unwrap();
        let trained = graph.trained();
        let grads = gradients(&mut graph, outputs.loss, scale, &trained).unwrap();
        let grads: Vec<ValueId> = grads.into_iter().map(|g| g.expect("every parameter has a gradient")).collect();
        grads.iter().for_each(|&g| graph.keep(g));
        let mut run = self.run(graph, 1);
        run.write_resident("loss.scale", &[1.0 / self.golden.count()]);
        run.executor.run(0);
        let graph = &run.program.phases[0].graph;
        let expected = |&p: &ValueId| self.golden.parameter("grad", &graph.value(p).name, graph.shape(p));
        let reference: Vec<Vec<f64>> = trained.iter().map(expected).collect();
        let global = reference.iter().flatten().map(|x| x * x).sum::<f64>().sqrt();
        let error = |((&p, &g), expected): ((&ValueId, &ValueId), &Vec<f64>)| {
            let ours = run.output(&graph.value(g).name);
            (distance(&ours, expected) / norm(expected).max(1e-3 * global) / 1e-4, graph.value(p).name.to_string())
        };
        let worst = trained.iter().zip(&grads).zip(&reference).map(error).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        (self.logits_error(&run.output(&logits_name), "logits") / 1e-5, worst.0, worst.1)
    }

    /// Relative error of the logits. With an entry `length` (B), logits are (B, T, V) and count where t is below it.
    fn logits_error(&self, ours: &[f64], name: &str) -> f64 {
        let expected = self.golden.floats(name);
        if !self.golden.has("length") {
            return distance(ours, &expected) / norm(&expected);
        }
        let lengths = self.golden.floats("length");
        let [_, time, vocab] = self.golden.shape(name).unwrap()[..] else { panic!("{name} is not (B, T, V)") };
        let is_real = |i: usize| ((i / vocab % time) as f64) < lengths[i / vocab / time];
        let real = |v: &[f64]| v.iter().enumerate().filter(|(i, _)| is_real(*i)).map(|(_, &x)| x).collect::<Vec<_>>();
        distance(&real(ours), &real(&expected)) / norm(&real(&expected))
    }

    /// Ten updates as the trainer makes them: the losses' error, and that of the first pass's running statistics.
    fn compare_steps(&self) -> (f64, f64) {
        let Build { batch, length, attention, block_group, loss_chunk, feed_forward, .. } = self.build;
        let spec = StepSpec {
            effective_batch: batch,
            length,
            target_length: self.build.target_length,
            rule: UpdateRule::AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8 },
            weight_decay: 0.01,
            decay_all: true,
            clip_norm: Some(1.0),
            evaluate_batch: None,
            samples_text: false,
            generation: None,
            float: DType::F32,
            master: DType::F32,
            state: DType::F32,
            lands_inputs: false,
        };
        let settings = Settings {
            micro_batch: batch,
            accumulation: 1,
            recompute: Recompute::None,
            attention,
            block_group,
            loss_chunk,
            feed_forward,
            sharing: true,
            offload: Offload::NONE,
        };
        let mut run = Run::new(program(&self.family, &spec, &settings).unwrap(), &self.golden, self.take);
        let phase = run.program.phase(STEP).unwrap();
        let count = self.golden.count();
        let (mut losses, mut statistics) = (Vec::new(), 0.0f64);
        for step in 0..10 {
            run.write_scalars(step, count);
            run.write_inputs(phase, &self.golden);
            run.executor.run(phase);
            losses.push(run.resident("metrics.loss")[0] / count);
            if step == 0 {
                statistics = self.statistics_error(&run);
            }
        }
        (self.losses_error(&losses), statistics)
    }

    fn losses_error(&self, ours: &[f64]) -> f64 {
        let exact = self.golden.floats("losses.f64");
        let furthest = |run: &[f64]| run.iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let mut allowed = furthest(&self.golden.floats("losses.f32"));
        for run in self.golden.floats("losses.f32_reordered").chunks(10) {
            allowed = allowed.max(furthest(run));
        }
        furthest(ours) / (3.0 * allowed)
    }

    fn statistics_error(&self, run: &Run) -> f64 {
        let error = |r: &Resident| {
            let expected = self.golden.floats(&format!("state.{}", r.name));
            distance(&run.resident(&r.name), &expected) / norm(&expected).max(1e-3)
        };
        run.program.residents.iter().filter(|r| is_statistic(r)).map(error).fold(0.0, f64::max)
    }

    /// The evaluation graph with the initial weights and PyTorch's running statistics. Outputs that training does not
    /// change (no dropout, no statistics) are the training graph's.
    fn evaluation_error(&self) -> f64 {
        let mut graph = Graph::new("evaluate", DType::F32);
        let outputs = self.family.forward(&mut graph, &Build { training: false, ..self.build }).unwrap();
        let Some(logits) = outputs.logits else { return 0.0 };
        let name = graph.value(logits).name.to_string();
        graph.keep(logits);
        let mut run = self.run(graph, 0);
        let statistics: Vec<String> =
            run.program.residents.iter().filter(|r| is_statistic(r)).map(|r| r.name.clone()).collect();
        for name in statistics {
            run.write_resident(&name, &self.golden.floats(&format!("state.{name}")));
        }
        run.executor.run(0);
        let reference = if self.golden.has("eval_logits") { "eval_logits" } else { "logits" };
        self.logits_error(&run.output(&name), reference)
    }

    /// Embeddings of the texts by the family without its head.
    fn embedding_error(&self) -> f64 {
        let mut graph = Graph::new("embed", DType::F32);
        let build = Build { training: false, ..self.build };
        let embedding = self.model.family().text_embedding(&mut graph, &build);
        assert_eq!(embedding.is_some(), self.golden.has("embedding"), "only one side makes embeddings");
        let Some(embedding) = embedding else { return 0.0 };
        let embedding = embedding.unwrap();
        let name = graph.value(embedding).name.to_string();
        graph.keep(embedding);
        let mut run = self.run(graph, 0);
        run.executor.run(0);
        let expected = self.golden.floats("embedding");
        distance(&run.output(&name), &expected) / norm(&expected)
    }

    /// A graph on its own, with the golden file's weights and inputs.
    fn run(&self, graph: Graph, repeat: usize) -> Run {
        let program = Program::new(vec![Phase { name: graph.name.clone(), graph, repeat }]).unwrap();
        let mut run = Run::new(program, &self.golden, self.take);
        run.write_inputs(0, &self.golden);
        run
    }
}

/// A program on an executor, its parameters those of a golden file.
struct Run {
    program: Program,
    executor: Box<dyn Executor>,
}

impl Run {
    fn new(program: Program, golden: &Golden, take: &Take) -> Run {
        let mut run = Run { executor: take(&program), program };
        for Resident { name, ty, is_parameter, .. } in run.program.residents.clone() {
            if is_parameter || golden.has_parameter(&name) {
                run.write_resident(&name, &golden.parameter("param", &name, &ty.shape));
            } else {
                let initial = if name.ends_with("running_var") { 1.0 } else { 0.0 };
                run.executor.write_resident(&name, &bytes(ty.dtype, &vec![initial; ty.elements()])).unwrap();
            }
        }
        run
    }

    fn write_resident(&mut self, name: &str, values: &[f64]) {
        self.executor.write_resident(name, &bytes(DType::F32, values)).unwrap();
    }

    /// Everything that the host writes before the phase runs, by its name.
    fn write_inputs(&mut self, phase: usize, golden: &Golden) {
        let graph = &self.program.phases[phase].graph;
        for value in graph.values().iter().filter(|v| v.input == Some(InputKind::Data)) {
            let from = bytes(value.ty.dtype, &golden.floats(&format!("input.{}", value.name)));
            self.executor.write_input(phase, &value.name, &from).unwrap();
        }
    }

    /// What the host sets before update `step` (from 0).
    fn write_scalars(&mut self, step: i32, count: f64) {
        let scalars = [
            ("lr", 1e-5),
            ("loss.scale", 1.0 / count),
            ("adam.correction1", 1.0 - 0.9f64.powi(step + 1)),
            ("adam.correction2", 1.0 - 0.999f64.powi(step + 1)),
            ("metrics.loss", 0.0),
            ("metrics.correct", 0.0),
            ("metrics.norm", 0.0),
        ];
        // A family without right answers has no such metric.
        let there = |name: &str| self.program.residents.iter().any(|resident| resident.name == name);
        for (name, value) in scalars.into_iter().filter(|(name, _)| there(name)) {
            self.executor.write_resident(name, &bytes(DType::F32, &[value])).unwrap();
        }
    }

    fn output(&self, name: &str) -> Vec<f64> {
        self.executor.read_floats(0, name).unwrap().iter().map(|x| f64::from(*x)).collect()
    }

    fn resident(&self, name: &str) -> Vec<f64> {
        let bytes = self.executor.read_resident(name).unwrap();
        floats(DType::F32, &bytes).into_iter().map(f64::from).collect()
    }
}

/// Values as a tensor of this type holds them.
fn bytes(dtype: DType, values: &[f64]) -> Vec<u8> {
    match dtype {
        DType::I32 => values.iter().flat_map(|&x| (x as i32).to_ne_bytes()).collect(),
        DType::I64 => values.iter().flat_map(|&x| (x as i64).to_ne_bytes()).collect(),
        _ => values.iter().flat_map(|&x| (x as f32).to_ne_bytes()).collect(),
    }
}

/// A family whose decoder always writes as many tokens as the golden file's.
#[derive(Debug)]
struct Shaped {
    family: Box<dyn Family>,
    target_length: usize,
}

impl Sizes for Shaped {
    fn tasks(&self) -> &'static [Task] {
        self.family.tasks()
    }
    fn input(&self) -> Input {
        self.family.input()
    }
    fn parameters(&self) -> Option<u64> {
        self.family.parameters()
    }
    fn largest_value(&self) -> Option<u64> {
        self.family.largest_value()
    }
    fn groups(&self) -> usize {
        self.family.groups()
    }
    fn batch_norm(&self) -> Option<BatchNormMode> {
        self.family.batch_norm()
    }
}

impl Family for Shaped {
    fn forward(&self, graph: &mut Graph, build: &Build) -> Result<Outputs, GraphError> {
        self.family.forward(graph, &Build { target_length: self.target_length, ..*build })
    }
    fn layers(&self) -> usize {
        self.family.layers()
    }
    fn rows_per_sample(&self, length: usize) -> usize {
        self.family.rows_per_sample(length)
    }
}

/// The golden file's sizes as a recipe, so that the recipe's own reading of them is tested too.
fn recipe(model: &serde_json::Value, batch: usize) -> Recipe {
    let family = model["family"].as_str().unwrap();
    let model = toml::to_string(&serde_json::json!({ "model": model })).unwrap();
    // No file is opened: only the sizes are wanted.
    let data = match family {
        "hybrid-cnn-lstm" => "source = \"synthetic:regimes\"",
        _ => "train = \"data.jsonl\"\ntokenizer = \"tokenizer.json\"",
    };
    let text = format!("{model}\n[data]\n{data}\n[train]\neffective_batch = {batch}\nepochs = 1\n");
    Recipe::parse(&text, "golden.toml", &[]).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn is_statistic(resident: &Resident) -> bool {
    resident.name.contains(".running_")
}

fn norm(v: &[f64]) -> f64 {
    v.iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum::<f64>().sqrt()
}
