//! One step up or down of each lever, everything else as planned.

use super::parallel::{Progress, on_all_cores};
use crate::PlanFailure;
use crate::choose::{Choice, ChooseError, Pins, Planned, RecomputePin, choose, divisors, family, pins, profile, spec};
use crate::choose::{SMALLEST_LOSS_CHUNK, loss_rows};
use crate::program::{Settings, StepSpec, program};
use plimsoll_core::plan::{Profile, lay_out, predicted_ms};
use plimsoll_models::families::{AttentionForm, Family};
use plimsoll_models::recipe::Recipe;
use schemars::JsonSchema;
use serde::Serialize;

/// The plan that one step of one lever leads to, against the plan that was chosen.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Neighbour {
    pub lever: &'static str,
    pub from: String,
    pub to: String,
    /// What it takes more; negative where it takes less.
    pub extra_bytes: i64,
    pub extra_ms: f64,
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

/// One lever by one step.
struct Move {
    lever: &'static str,
    from: String,
    to: String,
    target: Target,
}

enum Target {
    Settings(Settings),
    /// The fastest plan with this much recompute: how it is done is the search's to say.
    Recompute(RecomputePin),
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

const RECOMPUTE: [(&str, RecomputePin); 4] = [
    ("none", RecomputePin::None),
    ("cheap", RecomputePin::Cheap),
    ("some", RecomputePin::Some),
    ("layers", RecomputePin::Layers),
];

impl Here<'_> {
    fn choice(&self) -> &Choice {
        &self.planned.choice
    }

    fn moves(&self) -> Vec<Move> {
        let levers =
            [self.micro_batches(), self.recompute(), self.attention(), self.block_groups(), self.loss_chunks()];
        levers.into_iter().flatten().collect()
    }

    fn micro_batches(&self) -> Vec<Move> {
        if self.family.batch_norm().is_some() && !self.pins.micro_statistics {
            return Vec::new();
        }
        let (settings, effective) = (&self.choice().settings, self.spec.effective_batch);
        let words = |micro: usize| format!("{micro} × {}", effective.div_ceil(micro));
        let to = |micro_batch: usize| {
            let accumulation = effective.div_ceil(micro_batch);
            let (rows, rows_now) = (self.loss_rows(micro_batch), self.loss_rows(settings.micro_batch));
            // What was not cut stays uncut.
            let loss_chunk = if settings.loss_chunk >= rows_now { rows } else { settings.loss_chunk.min(rows) };
            Settings { micro_batch, accumulation, loss_chunk, ..settings.to_owned() }
        };
        let divisors = divisors(effective);
        let step = |micro: usize| self.to_settings("micro_batch", words(settings.micro_batch), words(micro), to(micro));
        steps_beside(&divisors, settings.micro_batch).map(step).collect()
    }

    fn recompute(&self) -> Vec<Move> {
        let name = self.choice().settings.recompute.name();
        let at = RECOMPUTE.iter().position(|(other, _)| *other == name).unwrap_or(0);
        let beside = [at.checked_sub(1), Some(at + 1)].into_iter().flatten().filter_map(|i| RECOMPUTE.get(i));
        let step = |(to, pin): &(&'static str, RecomputePin)| Move {
            lever: "recompute",
            from: name.into(),
            to: (*to).into(),
            target: Target::Recompute(*pin),
        };
        beside.map(step).collect()
    }

    fn attention(&self) -> Vec<Move> {
        if !self.family.has_attention_forms() {
            return Vec::new();
        }
        let settings = &self.choice().settings;
        let (from, to, attention) = match settings.attention {
            AttentionForm::Fused => ("fused", "materialized", AttentionForm::Materialized),
            AttentionForm::Materialized => ("materialized", "fused", AttentionForm::Fused),
        };
        let other = Settings { attention, ..settings.to_owned() };
        vec![self.to_settings("attention", from.into(), to.into(), other)]
    }

    fn block_groups(&self) -> Vec<Move> {
        let settings = &self.choice().settings;
        let groups = divisors(self.family.blocks());
        let step = |block_group: usize| {
            let other = Settings { block_group, ..settings.to_owned() };
            self.to_settings("block_group", settings.block_group.to_string(), block_group.to_string(), other)
        };
        steps_beside(&groups, settings.block_group).map(step).collect()
    }

    fn loss_chunks(&self) -> Vec<Move> {
        if !self.family.has_loss_chunks() {
            return Vec::new();
        }
        let settings = &self.choice().settings;
        let (rows, now) = (self.loss_rows(settings.micro_batch), settings.loss_chunk);
        let sizes = [(now / 2).max(SMALLEST_LOSS_CHUNK.min(now)), now, now.saturating_mul(2).min(rows).max(now)];
        let step = |loss_chunk: usize| {
            let other = Settings { loss_chunk, ..settings.to_owned() };
            self.to_settings("loss_chunk", now.to_string(), loss_chunk.to_string(), other)
        };
        steps_beside(&sizes, now).map(step).collect()
    }

    fn loss_rows(&self, micro_batch: usize) -> usize {
        loss_rows(self.family.as_ref(), &self.spec, micro_batch)
    }

    fn to_settings(&self, lever: &'static str, from: String, to: String, settings: Settings) -> Move {
        Move { lever, from, to, target: Target::Settings(settings) }
    }

    fn take(&self, step: &Move) -> Result<Neighbour, PlanFailure> {
        let (arena, ms) = match &step.target {
            Target::Settings(settings) => self.plan_settings(settings)?,
            Target::Recompute(pin) => self.plan_recompute(*pin)?,
        };
        let choice = self.choice();
        Ok(Neighbour {
            lever: step.lever,
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

    fn plan_recompute(&self, level: RecomputePin) -> Result<(usize, f64), PlanFailure> {
        let (choice, settings) = (self.choice(), &self.choice().settings);
        let pins = Pins {
            micro_batch: Some(settings.micro_batch),
            recompute: Some(level),
            attention: Some(settings.attention),
            block_group: Some(settings.block_group),
            loss_chunk: Some(settings.loss_chunk),
            ..self.pins.to_owned()
        };
        match choose(self.family.as_ref(), &self.spec, &pins, choice.options, usize::MAX, &self.profile) {
            Ok(choice) => Ok((choice.layout.arena_bytes, choice.predicted_step_ms)),
            Err(ChooseError::DoesNotFit { smallest, .. }) => {
                Ok((smallest.layout.arena_bytes, smallest.predicted_step_ms))
            }
            Err(ChooseError::Refused { cause, hint }) => Err(PlanFailure::Refused { cause, hint }),
            Err(ChooseError::Plan(error)) => Err(error.into()),
        }
    }
}

/// The next larger and the next smaller of some sizes.
fn steps_beside(sizes: &[usize], now: usize) -> impl Iterator<Item = usize> {
    let up = sizes.iter().copied().filter(|&size| size > now).min();
    let down = sizes.iter().copied().filter(|&size| size < now).max();
    up.into_iter().chain(down)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use crate::cards::card;
    use crate::choose::plan;

    use std::path::Path;

    #[test]
    fn steps_are_the_nearest_on_either_side() {
        assert_eq!(steps_beside(&divisors(12), 4).collect::<Vec<_>>(), [6, 3]);
        assert_eq!(steps_beside(&divisors(12), 5).collect::<Vec<_>>(), [6, 4]);
        assert_eq!(steps_beside(&divisors(12), 12).collect::<Vec<_>>(), [6]);
        assert!(steps_beside(&divisors(1), 1).next().is_none());
    }

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
