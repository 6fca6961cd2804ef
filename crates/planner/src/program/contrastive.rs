//! Exact accumulation of a contrastive loss: the gradient of the whole effective batch, in the memory of a micro-batch.
//!
//! Every sample is compared with all others, so losses of micro-batches do not add up to the loss of the batch. Instead
//!
//! 1. `embed` × k: both towers forward, nothing kept; the embeddings go into tables of k · m rows;
//! 2. `contrast` × 1: the loss over the tables, which it overwrites with their own gradients;
//! 3. `replay` × k: the towers forward once more and backward from the rows of these gradients;
//! 4. `update` × 1.
//!
//! # What the host writes
//! - before each `embed` and each `replay`: the micro-batch's `pixels`, `ids` and `eos` (counted inside the micro-batch),
//!   and the resident `rng` = (seed, step, index of its first sample in the effective batch). Both read the same `rng`,
//!   so dropout is the same in both; its last number is also the row of the tables where the micro-batch begins.
//! - before `contrast`: its input `weight`, all k · m rows of it, 0 for rows that hold no sample (micro-batches that are
//!   not there at all need not be run), and the resident `loss.scale` = 1 / Σ weight.
//!
//! The metrics are added to by `contrast` alone.

use super::scaling;
use super::step::{
    Settings, StepSpec, UPDATE, accumulate, add_metric, apply_offload, apply_recompute, phase, update_phase,
};
use plimsoll_core::autodiff::{gradients, gradients_from};
use plimsoll_core::graph::{Component, Graph, GraphError, Init, Role, ValueId};
use plimsoll_core::ops::{ReadRows, Slice, WriteRows};
use plimsoll_core::plan::{Phase, PlanError};
use plimsoll_core::types::Type;
use plimsoll_models::families::{Build, Contrast, layers};

/// Phase names.
pub const EMBED: &str = "embed";
pub const CONTRAST: &str = "contrast";
pub const REPLAY: &str = "replay";

/// The phases of one update where the effective batch is more than one micro-batch.
pub fn phases(towers: &dyn Contrast, spec: &StepSpec, settings: &Settings) -> Result<Vec<Phase>, PlanError> {
    let count = settings.accumulation;
    let contrast = contrast(towers, spec, settings)?;
    let replay = replay(towers, spec, settings)?;
    let update = update_phase(&[&replay, &contrast], spec, settings)?;
    Ok(vec![
        phase(EMBED, embed(towers, spec, settings)?, count),
        phase(CONTRAST, contrast, 1),
        phase(REPLAY, replay, count),
        phase(UPDATE, update, 1),
    ])
}

/// The two towers.
#[derive(Clone, Copy)]
enum Side {
    Images,
    Texts,
}

impl Side {
    const BOTH: [Side; 2] = [Side::Images, Side::Texts];

    fn embed(self, towers: &dyn Contrast, graph: &mut Graph, build: &Build) -> Result<ValueId, GraphError> {
        match self {
            Side::Images => towers.embed_images(graph, build),
            Side::Texts => towers.embed_texts(graph, build),
        }
    }

    /// Embeddings of the whole effective batch, from `contrast` on their gradients: (k · m, P).
    fn table(self, towers: &dyn Contrast, graph: &mut Graph, settings: &Settings) -> Result<ValueId, GraphError> {
        let name = match self {
            Side::Images => "contrastive.images",
            Side::Texts => "contrastive.texts",
        };
        let ty = Type::new(graph.float, &[table_rows(settings), towers.width()]);
        graph.resident(name, ty, Component::Activations, Init::Zeros)
    }
}

fn table_rows(settings: &Settings) -> usize {
    settings.accumulation * settings.micro_batch
}

/// The row of the tables where the micro-batch begins.
fn first_row(graph: &mut Graph) -> Result<ValueId, GraphError> {
    let rng = layers::rng(graph)?;
    graph.apply("first_row", Slice { axis: 0, start: 2, len: 1 }, &[rng])
}

/// Both towers forward, as in training, into the tables.
fn embed(towers: &dyn Contrast, spec: &StepSpec, settings: &Settings) -> Result<Graph, PlanError> {
    let mut graph = Graph::mixed(EMBED, spec.float, spec.master);
    let build = settings.build(settings.micro_batch, spec, true);
    let first = first_row(&mut graph)?;
    for side in Side::BOTH {
        let embedding = side.embed(towers, &mut graph, &build)?;
        let table = side.table(towers, &mut graph, settings)?;
        graph.add("embedding.keep", WriteRows, &[embedding, first, table])?;
    }
    Ok(graph)
}

/// The loss over all rows and its gradients; those of the tables are written over them.
fn contrast(towers: &dyn Contrast, spec: &StepSpec, settings: &Settings) -> Result<Graph, PlanError> {
    let mut graph = Graph::mixed(CONTRAST, spec.float, spec.master);
    let [images, texts] = Side::BOTH.map(|side| side.table(towers, &mut graph, settings));
    let tables = [images?, texts?];
    let weight = graph.data("weight", Type::new(graph.float.wide(), &[table_rows(settings)]))?;
    let outputs = towers.contrast(&mut graph, tables[0], tables[1], weight)?;
    add_metric(&mut graph, "metrics.loss", outputs.loss)?;
    if let Some(correct) = outputs.correct {
        add_metric(&mut graph, "metrics.correct", correct)?;
    }
    let seed = scaling::seed(&mut graph, spec)?;
    let wanted: Vec<ValueId> = tables.into_iter().chain(graph.trained()).collect();
    let computed: Vec<ValueId> = wanted.iter().map(|&value| graph.computed(value)).collect();
    for (value, grad) in wanted.iter().zip(gradients(&mut graph, outputs.loss, seed, &computed)?) {
        let missing = || PlanError::Broken(format!("the loss does not depend on {}", graph.value(*value).name));
        let grad = grad.ok_or_else(missing)?;
        match tables.contains(value) {
            true => {
                graph.with_role(Role::Update, |g| g.add("gradient.keep", WriteRows, &[grad, *value]))?;
            }
            false => accumulate(&mut graph, *value, grad)?,
        }
    }
    Ok(graph)
}

/// Both towers forward again, and backward from their rows of the tables' gradients. A tower's gradients can run as
/// soon as it has: the activations of only one tower exist at a time.
fn replay(towers: &dyn Contrast, spec: &StepSpec, settings: &Settings) -> Result<Graph, PlanError> {
    let mut graph = Graph::mixed(REPLAY, spec.float, spec.master);
    let build = settings.build(settings.micro_batch, spec, true);
    let first = first_row(&mut graph)?;
    let mut seeds = Vec::new();
    for side in Side::BOTH {
        let embedding = side.embed(towers, &mut graph, &build)?;
        let table = side.table(towers, &mut graph, settings)?;
        let rows = ReadRows { len: settings.micro_batch };
        seeds.push((embedding, graph.add("embedding.gradient", rows, &[table, first])?[0]));
    }
    let trained = graph.trained();
    let computed: Vec<ValueId> = trained.iter().map(|&p| graph.computed(p)).collect();
    let grads = gradients_from(&mut graph, &seeds, &computed)?;
    for (parameter, grad) in trained.into_iter().zip(grads) {
        if let Some(grad) = grad {
            accumulate(&mut graph, parameter, grad)?;
        }
    }
    apply_offload(apply_recompute(graph, settings)?, settings)
}
