//! A plan for using a model: forward passes and what writes text, without gradients and optimizer. It fits wherever the
//! training did, and mostly in far less.

use super::setup::{self, Planned, budget_bytes, budget_for, evaluate_batch};
use crate::Device;
use crate::PlanFailure;
use crate::choose::{Choice, settings};
use crate::program::generation;
use crate::program::{EVALUATE, Settings, StepSpec, evaluate, phase};
use plimsoll_core::graph::Graph;
use plimsoll_core::plan::{LayoutOptions, PlanError, Program, Resident, lay_out};
use plimsoll_models::families::{Family, GenerationShape};
use plimsoll_models::recipe::Recipe;

/// The phase that gives the embeddings of images and texts.
pub const EMBEDDINGS: &str = "embeddings";

/// Samples at a time where the recipe says nothing.
const USUAL_BATCH: usize = 32;

/// Samples that a trained model is asked about at a time, where there is room for so many.
pub fn used_batch(recipe: &Recipe) -> usize {
    evaluate_batch(recipe).unwrap_or(recipe.train.effective_batch.min(USUAL_BATCH))
}

/// Plans the use of a recipe's model: evaluation and prediction, and writing if `writes` says how much.
pub fn plan_use(recipe: &Recipe, device: &Device, writes: Option<GenerationShape>) -> Result<Planned, PlanFailure> {
    let (family, spec, pins) =
        (setup::family(&recipe.model), setup::spec(recipe, device), setup::pins(recipe, device)?);
    let options = LayoutOptions { target: device.target, sharing: true };
    let usual = device.reserve_for(recipe);
    let mut batch = used_batch(recipe);
    loop {
        let spec = StepSpec { evaluate_batch: Some(batch), generation: writes, ..spec.clone() };
        let settings = settings(family.as_ref(), &spec, &pins, batch);
        let program = program(family.as_ref(), &spec, &settings)?;
        let layout = lay_out(&program, options)?;
        let reserve_bytes = usual.saturating_add(device.reserve_of(recipe, &program, &layout));
        let peak = reserve_bytes + layout.arena_bytes as u64;
        // The number of samples at a time has no influence on the answers.
        let is_smallest = batch == 1;
        let budget = if is_smallest { budget_for(peak, recipe, device) } else { budget_bytes(recipe, device) };
        let decisions = Vec::new();
        let planned = Planned {
            choice: Choice {
                settings,
                program,
                layout,
                options,
                decisions,
                predicted_step_ms: 0.0,
                evaluate_batch: spec.evaluate_batch,
            },
            spec,
            device: device.clone(),
            budget_bytes: budget,
            reserve_bytes,
            headroom_bytes: budget as i64 - peak as i64,
        };
        match (peak <= budget, is_smallest) {
            (true, _) => return Ok(planned),
            (false, true) => return Err(PlanFailure::DoesNotFit(Box::new(planned))),
            _ => batch = batch.div_ceil(2),
        }
    }
}

/// The parameters of a recipe's model, without a plan for anything.
pub fn parameters(recipe: &Recipe, device: &Device) -> Result<Vec<Resident>, PlanFailure> {
    let (family, spec, pins) =
        (setup::family(&recipe.model), setup::spec(recipe, device), setup::pins(recipe, device)?);
    let settings = settings(family.as_ref(), &spec, &pins, 1);
    let graph = evaluate(family.as_ref(), &spec, &settings, 1)?;
    let Program { residents, .. } = Program::new(vec![phase(EVALUATE, graph, 1)])?;
    Ok(residents.into_iter().filter(|resident| resident.is_parameter).collect())
}

fn program(family: &dyn Family, spec: &StepSpec, settings: &Settings) -> Result<Program, PlanError> {
    let batch = spec.evaluate_batch.unwrap_or(1);
    let mut phases = vec![phase(EVALUATE, evaluate(family, spec, settings, batch)?, 1)];
    if let (Some(decoder), Some(shape)) = (family.decoder(), &spec.generation) {
        phases.extend(generation::phases(decoder, shape, spec.float, spec.master)?);
    }
    if let Some(towers) = family.contrast() {
        let mut graph = Graph::mixed(EMBEDDINGS, spec.float, spec.master);
        let (image, text) = towers.embed(&mut graph, &settings.build(batch, spec, false))?;
        graph.keep(image);
        graph.keep(text);
        phases.push(phase(EMBEDDINGS, graph, 0));
    }
    Program::new(phases)
}
