//! One step up or down of each lever, everything else as planned.

#![deny(missing_docs)]

use super::parallel::{Progress, on_all_cores};
use crate::PlanFailure;
use crate::choose::{
    Choice, ChooseError, LEVERS, Lever, Memo, Move, Pins, Planned, Situation, Target, choose, family, pins, profile,
    spec,
};
use crate::program::{Settings, StepSpec, program};
use plimsoll_core::plan::{Profile, lay_out, predicted_ms};
use plimsoll_models::families::Family;
use plimsoll_models::recipe::{Recipe, RecomputeLevel};
use schemars::JsonSchema;
use serde::Serialize;

/// The plan that one step of one lever leads to, against the plan that was chosen.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Neighbour {
    /// Which lever is moved.
    pub lever: &'static str,
    /// What the plan has.
    pub from: String,
    /// What the neighbour has.
    pub to: String,
    /// What it takes more; negative where it takes less.
    pub extra_bytes: i64,
    /// The same of an update, in milliseconds.
    pub extra_ms: f64,
    /// Whether it is inside the budget.
    pub fits: bool,
}

/// Moves that the recipe pins are shown too: what a pin costs is worth knowing.
pub fn neighbours(recipe: &Recipe, planned: &Planned, done: Progress<'_>) -> Result<Vec<Neighbour>, PlanFailure> {
    let here = Here {
        family: family(&recipe.model),
        spec: spec(recipe, &planned.device),
        pins: pins(recipe, &planned.device)?,
        profile: profile(recipe, &planned.device),
        planned,
    };
    let moves = here.moves();
    on_all_cores(&moves, done, |step| here.take(step)).into_iter().collect()
}

/// Where the steps start from.
struct Here<'a> {
    family: Box<dyn Family>,
    spec: StepSpec,
    pins: Pins,
    /// In the precision of the recipe, as the plan itself was timed.
    profile: Profile,
    planned: &'a Planned,
}

impl Here<'_> {
    fn choice(&self) -> &Choice {
        &self.planned.choice
    }

    fn moves(&self) -> Vec<(&'static str, Move)> {
        let at = Situation { family: self.family.as_ref(), spec: &self.spec, pins: &self.pins };
        let of = |lever: &&dyn Lever| {
            let (key, moves) = (lever.key(), lever.neighbours(&at, &self.choice().settings));
            moves.into_iter().map(move |step| (key, step)).collect::<Vec<_>>()
        };
        LEVERS.iter().flat_map(of).collect()
    }

    fn take(&self, (lever, step): &(&'static str, Move)) -> Result<Neighbour, PlanFailure> {
        let (arena, ms) = match &step.target {
            Target::Settings(settings) => self.plan_settings(settings)?,
            Target::Recompute(pin) => self.plan_recompute(*pin)?,
        };
        let choice = self.choice();
        Ok(Neighbour {
            lever,
            from: step.from.clone(),
            to: step.to.clone(),
            extra_bytes: arena as i64 - choice.layout.arena_bytes as i64,
            extra_ms: ms - choice.predicted_step_ms,
            fits: self.planned.reserve_bytes.saturating_add(arena as u64) <= self.planned.budget_bytes,
        })
    }

    /// Bytes of the arena and milliseconds of exactly these settings.
    fn plan_settings(&self, settings: &Settings) -> Result<(usize, f64), PlanFailure> {
        let program = program(self.family.as_ref(), &self.spec, settings)?;
        let layout = lay_out(&program, self.choice().options)?;
        Ok((layout.arena_bytes, predicted_ms(&program, &self.profile)))
    }

    fn plan_recompute(&self, level: RecomputeLevel) -> Result<(usize, f64), PlanFailure> {
        let (choice, settings) = (self.choice(), &self.choice().settings);
        let pins = Pins {
            micro_batch: Some(settings.micro_batch),
            recompute: Some(level),
            attention: Some(settings.attention),
            block_group: Some(settings.block_group),
            loss_chunk: Some(settings.loss_chunk),
            ..self.pins.to_owned()
        };
        match choose(
            &Memo::default(),
            self.family.as_ref(),
            &self.spec,
            &pins,
            choice.options,
            usize::MAX,
            &self.profile,
        ) {
            Ok(choice) => Ok((choice.layout.arena_bytes, choice.predicted_step_ms)),
            Err(ChooseError::DoesNotFit { smallest, .. }) => {
                Ok((smallest.layout.arena_bytes, smallest.predicted_step_ms))
            }
            Err(ChooseError::Refused { cause, hint }) => Err(PlanFailure::Refused { cause, hint }),
            Err(ChooseError::Plan(error)) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use crate::cards::card;
    use crate::choose::plan;

    use std::path::Path;

    /// A step and the plan that it leads to are timed alike, in tf32 too, where products are several times as fast.
    #[test]
    fn a_step_takes_as_long_as_the_plan_that_it_leads_to() {
        let card = card("h200").unwrap();
        let device = Device {
            profile: card.profile(),
            target: plimsoll_core::graph::Target::CUDA,
            runs: false,
            ..Device::cpu(1, card.total_bytes)
        };
        let pins = ["model.num_hidden_layers=2", "memory.recompute=none", "memory.attention=fused"];
        for precision in ["memory.precision=f32", "memory.precision=tf32"] {
            let with = |micro: &str| {
                let sets: Vec<String> = pins.into_iter().chain([precision, micro]).map(String::from).collect();
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/encoder.toml");
                let recipe = Recipe::load(&path, &sets).unwrap();
                let planned = plan(&recipe, &device).unwrap();
                (recipe, planned)
            };
            let ((recipe, here), (_, there)) = (with("memory.micro_batch=16"), with("memory.micro_batch=24"));
            let steps = neighbours(&recipe, &here, &|_, _| ()).unwrap();
            let step = steps.iter().find(|step| step.to == "24 × 8").unwrap();
            let extra = there.choice.predicted_step_ms - here.choice.predicted_step_ms;
            assert!((step.extra_ms - extra).abs() < 1e-9, "{precision}: {} instead of {extra}", step.extra_ms);
        }
    }
}
