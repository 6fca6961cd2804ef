//! The program of a training run: micro-step × k → update, or one step where nothing is accumulated; evaluation and
//! text sampling beside it.

use super::scaling;
use super::update::Update;
use plimsoll_core::autodiff::gradients;
use plimsoll_core::graph::{Component, Graph, GraphError, Init, InputKind, Role, ValueId};
use plimsoll_core::ops::{Accumulate, AccumulateStochastic, Rounding};
use plimsoll_core::plan::{
    Offload, Phase, PlanError, Program, Recompute, add_landing, offload, offloaded_values, recompute, recomputed_nodes,
};
use plimsoll_core::types::{DType, Type};
use plimsoll_models::families::layers::rng;
use plimsoll_models::families::{AttentionForm, Build, Contrast, Family, FeedForwardForm, GenerationShape, Outputs};
use serde::{Deserialize, Serialize};

/// Phase names.
pub const STEP: &str = "step";
pub const MICRO_STEP: &str = "micro-step";
pub const UPDATE: &str = "update";
pub const EVALUATE: &str = "evaluate";
pub const NEXT_TOKEN: &str = "next-token";

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UpdateRule {
    AdamW { beta1: f64, beta2: f64, eps: f64 },
    Sgd { momentum: f64 },
    Adafactor,
}

/// What learning sees.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSpec {
    pub effective_batch: usize,
    /// The longest batch; shorter ones get phases of their own when they come.
    pub length: usize,
    /// The same for what a decoder writes; 0 without one.
    pub target_length: usize,
    pub rule: UpdateRule,
    pub weight_decay: f64,
    /// Decay biases and norms too.
    pub decay_all: bool,
    pub clip_norm: Option<f64>,
    /// Largest batch of the evaluation; none without one.
    pub evaluate_batch: Option<usize>,
    /// Whether text is sampled during the run.
    pub samples_text: bool,
    /// What an encoder–decoder writes during the run.
    pub generation: Option<GenerationShape>,
    /// Element type of activations.
    pub float: DType,
    /// Element type of weights and their gradients.
    pub master: DType,
    /// Element type of the optimizer's moments.
    pub state: DType,
    /// Whether inputs land on the device while it is still at the micro-step before.
    pub lands_inputs: bool,
}

impl StepSpec {
    /// Rows of the loss per sample, where each token is one.
    pub(crate) fn loss_length(&self) -> usize {
        if self.target_length > 0 { self.target_length } else { self.length }
    }

    /// Gradients in f16 have so small a range that the loss is scaled, and a step that overflows is skipped.
    pub(crate) fn scales_loss(&self) -> bool {
        self.float == DType::F16
    }
}

/// How it is computed: what a plan may move.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Settings {
    pub micro_batch: usize,
    pub accumulation: usize,
    pub recompute: Recompute,
    pub attention: AttentionForm,
    pub block_group: usize,
    pub loss_chunk: usize,
    #[serde(default)]
    pub feed_forward: FeedForwardForm,
    pub sharing: bool,
    #[serde(default)]
    pub offload: Offload,
}

impl Settings {
    pub fn build(&self, batch: usize, spec: &StepSpec, training: bool) -> Build {
        let &Settings { attention, block_group, loss_chunk, feed_forward, .. } = self;
        let StepSpec { length, target_length, .. } = *spec;
        Build { batch, length, target_length, training, attention, block_group, loss_chunk, feed_forward }
    }
}

/// All phases of a run.
pub fn program(family: &dyn Family, spec: &StepSpec, settings: &Settings) -> Result<Program, PlanError> {
    program_of(training_phases(family, spec, settings)?, family, spec, settings)
}

/// The same where the graph that learns was built already.
pub(crate) fn program_around(
    graph: Graph,
    family: &dyn Family,
    spec: &StepSpec,
    settings: &Settings,
) -> Result<Program, PlanError> {
    program_of(phases_around(graph, spec, settings)?, family, spec, settings)
}

fn program_of(
    mut training: Vec<Phase>,
    family: &dyn Family,
    spec: &StepSpec,
    settings: &Settings,
) -> Result<Program, PlanError> {
    if spec.lands_inputs {
        add_landing(&mut training)?;
    }
    training.extend(other_phases(family, spec, settings)?);
    Program::new(training)
}

/// The phases of a step, but for the place that their inputs land in.
pub(crate) fn training_phases(
    family: &dyn Family,
    spec: &StepSpec,
    settings: &Settings,
) -> Result<Vec<Phase>, PlanError> {
    match (family.contrast(), settings.accumulation) {
        (_, 1) => phases_around(step(family, spec, settings)?, spec, settings),
        (Some(towers), _) => super::contrastive::phases(towers, spec, settings),
        (None, _) => phases_around(micro_step(family, spec, settings)?, spec, settings),
    }
}

/// The same where one graph learns: the whole step, or a micro-step that an update follows.
fn phases_around(graph: Graph, spec: &StepSpec, settings: &Settings) -> Result<Vec<Phase>, PlanError> {
    if settings.accumulation == 1 {
        return Ok(vec![phase(STEP, graph, 1)]);
    }
    let update = update_phase(&[&graph], spec, settings)?;
    Ok(vec![phase(MICRO_STEP, graph, settings.accumulation), phase(UPDATE, update, 1)])
}

/// The phases beside a step: evaluation and writing. They do not depend on micro-batch and recompute.
fn other_phases(family: &dyn Family, spec: &StepSpec, settings: &Settings) -> Result<Vec<Phase>, PlanError> {
    let mut phases = Vec::from_iter(evaluation_phase(family, spec, settings)?);
    phases.extend(writing_phases(family, spec, settings)?);
    Ok(phases)
}

pub(crate) fn evaluation_phase(
    family: &dyn Family,
    spec: &StepSpec,
    settings: &Settings,
) -> Result<Option<Phase>, PlanError> {
    let evaluated = |batch| Ok(phase(EVALUATE, evaluate(family, spec, settings, batch)?, 0));
    spec.evaluate_batch.map(evaluated).transpose()
}

/// What writes texts has no loss: nor do these phases depend on how that is computed.
pub(crate) fn writing_phases(
    family: &dyn Family,
    spec: &StepSpec,
    settings: &Settings,
) -> Result<Vec<Phase>, PlanError> {
    let mut phases = Vec::new();
    if spec.samples_text
        && let Some(graph) = next_token(family, spec, settings)
    {
        phases.push(phase(NEXT_TOKEN, graph?, 0));
    }
    if let (Some(decoder), Some(shape)) = (family.decoder(), &spec.generation) {
        phases.extend(super::generation::phases(decoder, shape, spec.float, spec.master)?);
    }
    Ok(phases)
}

pub fn phase(name: &str, graph: Graph, repeat: usize) -> Phase {
    Phase { name: name.into(), graph, repeat }
}

/// Forward, backward and update in one: gradients are temporaries.
pub fn step(family: &dyn Family, spec: &StepSpec, settings: &Settings) -> Result<Graph, PlanError> {
    let mut graph = Graph::mixed(STEP, spec.float, spec.master);
    let (parameters, grads) = learn(family, spec, settings, &mut graph)?;
    let update = Update { spec, zero_gradient: false, from_host: settings.offload.optimizer };
    update.add(&mut graph, &parameters, &grads)?;
    apply_offload(apply_recompute(graph, settings)?, settings)
}

/// Forward and backward; gradients are added to accumulators that live until the update.
pub fn micro_step(family: &dyn Family, spec: &StepSpec, settings: &Settings) -> Result<Graph, PlanError> {
    let mut graph = Graph::mixed(MICRO_STEP, spec.float, spec.master);
    let (parameters, grads) = learn(family, spec, settings, &mut graph)?;
    parameters.iter().zip(&grads).try_for_each(|(&p, &grad)| accumulate(&mut graph, p, grad))?;
    apply_offload(apply_recompute(graph, settings)?, settings)
}

/// Adds a gradient to the accumulator of its parameter. One in bf16 is rounded stochastically, which no product can do that
/// adds into it directly.
pub fn accumulate(graph: &mut Graph, parameter: ValueId, grad: ValueId) -> Result<(), GraphError> {
    let total = accumulator(graph, parameter)?;
    let name = format!("{}.accumulate", graph.value(parameter).name);
    graph.with_role(Role::Update, |g| match Rounding::of(&name, &[g.ty(total).dtype]) {
        None => g.accumulate(&name, grad, total).map(drop),
        Some(rounding) => {
            let rng = rng(g)?;
            g.add(&name, AccumulateStochastic { rounding }, &[grad, total, rng]).map(drop)
        }
    })
}

pub(crate) fn apply_recompute(graph: Graph, settings: &Settings) -> Result<Graph, PlanError> {
    match &settings.recompute {
        Recompute::None => Ok(graph),
        choice => recomputed(&graph, choice),
    }
}

pub(crate) fn recomputed(graph: &Graph, choice: &Recompute) -> Result<Graph, PlanError> {
    recompute(graph, &recomputed_nodes(graph, choice))
}

/// Saved values that the settings want in host memory go there.
pub(crate) fn apply_offload(graph: Graph, settings: &Settings) -> Result<Graph, PlanError> {
    match settings.offload.activation_layers {
        0 => Ok(graph),
        layers => offload(&graph, &offloaded_values(&graph, layers)),
    }
}

/// The forward and backward pass; the trained parameters the loss depends on, and their gradients, which in mixed
/// precision are of the type that is computed in.
fn learn(
    family: &dyn Family,
    spec: &StepSpec,
    settings: &Settings,
    graph: &mut Graph,
) -> Result<(Vec<ValueId>, Vec<ValueId>), PlanError> {
    let outputs = family.forward(graph, &settings.build(settings.micro_batch, spec, true))?;
    add_metric(graph, "metrics.loss", outputs.loss)?;
    if let Some(correct) = outputs.correct {
        add_metric(graph, "metrics.correct", correct)?;
    }
    let seed = scaling::seed(graph, spec)?;
    let trained = graph.trained();
    let computed: Vec<ValueId> = trained.iter().map(|&p| graph.computed(p)).collect();
    let grads = gradients(graph, outputs.loss, seed, &computed)?;
    Ok(trained.into_iter().zip(grads).filter_map(|(p, g)| Some((p, g?))).unzip())
}

/// Adds a sum of this batch to a resident that the host clears.
pub(crate) fn add_metric(graph: &mut Graph, name: &str, value: ValueId) -> Result<(), GraphError> {
    let total = graph.scalar(name)?;
    graph.add(&format!("{name}.add"), Accumulate, &[value, total])?;
    Ok(())
}

fn accumulator(graph: &mut Graph, parameter: ValueId) -> Result<ValueId, GraphError> {
    let (name, ty) = (["gradient.", &graph.value(parameter).name].concat(), graph.ty(parameter).clone());
    graph.resident(&name, ty, Component::Gradients, Init::Zeros)
}

/// The update on its own: reads the accumulators that `steps` add to and leaves them zero for the next step.
pub(crate) fn update_phase(steps: &[&Graph], spec: &StepSpec, settings: &Settings) -> Result<Graph, PlanError> {
    let mut graph = Graph::mixed(UPDATE, spec.float, spec.master);
    let (mut parameters, mut grads) = (Vec::new(), Vec::new());
    for (step, id) in steps.iter().flat_map(|step| step.trained().into_iter().map(move |id| (step, id))) {
        let value = step.value(id);
        if step.find(&format!("gradient.{}", value.name)).is_none() {
            continue;
        }
        let kind = value.input.clone().unwrap_or(InputKind::Data);
        let parameter = graph.input(&value.name, value.ty.clone(), kind)?;
        grads.push(accumulator(&mut graph, parameter)?);
        parameters.push(parameter);
    }
    let update = Update { spec, zero_gradient: true, from_host: settings.offload.optimizer };
    update.add(&mut graph, &parameters, &grads)?;
    Ok(graph)
}

/// The forward pass alone, with its own batch, adding to the same metrics.
pub fn evaluate(family: &dyn Family, spec: &StepSpec, settings: &Settings, batch: usize) -> Result<Graph, PlanError> {
    let mut graph = Graph::mixed(EVALUATE, spec.float, spec.master);
    let build = settings.build(batch, spec, false);
    let (outputs, kept) = match family.contrast() {
        Some(towers) => compared(&mut graph, towers, &build)?,
        None => {
            let outputs = family.forward(&mut graph, &build)?;
            let kept = outputs.logits.into_iter().collect();
            (outputs, kept)
        }
    };
    add_metric(&mut graph, "metrics.loss", outputs.loss)?;
    if let Some(correct) = outputs.correct {
        add_metric(&mut graph, "metrics.correct", correct)?;
    }
    kept.into_iter().for_each(|value| graph.keep(value));
    Ok(graph)
}

/// Images and texts are compared by the host, which has the embeddings of more than one batch: how many are evaluated at
/// a time must not change what each is sought among.
fn compared(graph: &mut Graph, towers: &dyn Contrast, build: &Build) -> Result<(Outputs, Vec<ValueId>), PlanError> {
    let (image, text) = towers.embed(graph, build)?;
    let weight = graph.data("weight", Type::new(graph.float.wide(), &[build.batch]))?;
    let outputs = towers.contrast(graph, image, text, weight)?;
    Ok((outputs, vec![image, text]))
}

pub(crate) fn next_token(
    family: &dyn Family,
    spec: &StepSpec,
    settings: &Settings,
) -> Option<Result<Graph, PlanError>> {
    let mut graph = Graph::mixed(NEXT_TOKEN, spec.float, spec.master);
    let logits = family.next_token(&mut graph, &settings.build(1, spec, false))?;
    Some(
        logits
            .map(|logits| {
                graph.keep(logits);
                graph
            })
            .map_err(PlanError::from),
    )
}
