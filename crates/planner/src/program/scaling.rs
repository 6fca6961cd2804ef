//! Scaling of the loss for gradients in f16: its state lives in the arena, so a step never waits for the host, and in
//! checkpoints, so a resumed run goes on with it.

use super::step::{StepSpec, UpdateRule};
use plimsoll_core::graph::{Component, Graph, GraphError, Init, Role, ValueId};
use plimsoll_core::ops::{Binary, ClipNorm, LossScale};
use plimsoll_core::types::Type;

/// The resident that holds the scale.
pub const SCALE: &str = "scaling.scale";

/// Whether a tensor of a checkpoint is state of the scaling.
pub fn is_state(name: &str) -> bool {
    name.starts_with("scaling.")
}

/// What the gradient of the loss starts from: 1/N, times the scale where there is one.
pub(crate) fn seed(graph: &mut Graph, spec: &StepSpec) -> Result<ValueId, GraphError> {
    let mean = graph.scalar("loss.scale")?;
    if !spec.scales_loss() {
        return Ok(mean);
    }
    let scale = resident(graph, SCALE, LossScale::FIRST)?;
    Ok(graph.with_role(Role::Backward, |graph| graph.add("loss.scaled", Binary::MUL, &[mean, scale]))?[0])
}

/// What an update knows once the norm of all gradients is known.
pub struct Scaled {
    /// The norm of the gradients themselves.
    pub norm: ValueId,
    /// What gradients are multiplied by; NaN if the step is to be skipped.
    pub factor: ValueId,
    /// Adam's, over the steps that were taken.
    pub corrections: [ValueId; 2],
    /// How many steps were taken, this one included.
    pub taken: ValueId,
}

/// Takes the scale back and moves it.
pub(crate) fn unscale(graph: &mut Graph, spec: &StepSpec, grads: &[ValueId]) -> Result<Scaled, GraphError> {
    let norm = graph.add("norm", ClipNorm { max_norm: None }, grads)?[0];
    let state = [(SCALE, LossScale::FIRST), ("scaling.good", 0.0), ("scaling.taken", 0.0)];
    let mut inputs = vec![norm];
    for (name, first) in state {
        inputs.push(resident(graph, name, first)?);
    }
    let betas = match spec.rule {
        UpdateRule::AdamW { beta1, beta2, .. } => [beta1, beta2],
        _ => [0.0; 2],
    };
    let outputs = graph.add("scaling", LossScale { max_norm: spec.clip_norm, betas }, &inputs)?;
    let corrections = [outputs[2], outputs[3]];
    Ok(Scaled { norm: outputs[0], factor: outputs[1], corrections, taken: outputs[6] })
}

/// It counts as the optimizer's, which is what checkpoints keep.
fn resident(graph: &mut Graph, name: &str, first: f64) -> Result<ValueId, GraphError> {
    let ty = Type::scalar(graph.float.wide());
    graph.resident(name, ty, Component::Optimizer, Init::Constant(first))
}
