//! Plans of suggestions, before they are trials. Suggestions that planning cannot tell apart share one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use plimsoll::search::Search;
use plimsoll::{Attempt, Device, Draft, Progress, Recipe, attempt, attempts, budget_bytes, expected, planning_key};

use crate::error::{Error, Result};

/// What is known of a training before it is run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outlook {
    pub fits: bool,
    /// The device's memory at the peak, or the least there is a plan for.
    pub peak_bytes: u64,
    pub micro_batch: usize,
    pub recompute: &'static str,
    pub offload: &'static str,
    pub step_ms: f64,
    /// What its model takes on disk, and what a checkpoint does.
    pub model_bytes: u64,
    pub checkpoint_bytes: u64,
    /// Why it cannot be planned at all.
    pub refused: Option<String>,
}

impl Outlook {
    fn of(attempt: Attempt) -> Outlook {
        let plan = attempt.plan;
        Outlook {
            fits: attempt.fits,
            peak_bytes: plan.as_ref().map_or(0, |plan| plan.planned_peak_bytes),
            micro_batch: plan.as_ref().map_or(0, |plan| plan.micro_batch),
            recompute: plan.as_ref().map_or("none", |plan| plan.recompute),
            offload: plan.as_ref().map_or("none", |plan| plan.offload),
            step_ms: plan.as_ref().map_or(0.0, |plan| plan.predicted_step_ms),
            model_bytes: attempt.model_bytes,
            checkpoint_bytes: attempt.checkpoint_bytes,
            refused: attempt.refused,
        }
    }
}

/// Plans recipes of one draft on one device, each kind once.
pub struct Plans {
    draft: Draft,
    known: HashMap<String, Arc<Outlook>>,
    /// Training samples by what decides them.
    samples: HashMap<String, Option<plimsoll::Expected>>,
}

impl Plans {
    pub fn new(draft: Draft) -> Plans {
        Plans { draft, known: HashMap::new(), samples: HashMap::new() }
    }

    /// The recipe under these settings.
    pub fn recipe(&self, settings: &[String]) -> Result<Recipe> {
        self.draft.with(settings).map_err(|error| Error::Input(error.to_string()))
    }

    /// What a budget of the study is.
    pub(crate) fn budget(&self, device: &Device) -> Result<u64> {
        Ok(budget_bytes(&self.recipe(&[])?, device))
    }

    /// How many different plans were made.
    pub(crate) fn made(&self) -> usize {
        self.known.len()
    }

    /// The best plan inside the recipe's own budget.
    pub(crate) fn outlook(&mut self, recipe: &Recipe, device: &Device) -> Result<Arc<Outlook>> {
        let key = key_of(recipe, device);
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let made = Arc::new(planned(recipe, device)?);
        self.known.insert(key, made.clone());
        Ok(made)
    }

    /// Makes all plans that are not known yet, on all cores.
    pub(super) fn plan_all(&mut self, recipes: &[&Recipe], device: &Device, done: Progress<'_>) -> Result<()> {
        let mut queued = HashSet::new();
        let keyed = recipes.iter().map(|recipe| (key_of(recipe, device), *recipe));
        let is_fresh = |(key, _): &(String, &Recipe)| !self.known.contains_key(key) && queued.insert(key.clone());
        let (keys, fresh): (Vec<String>, Vec<&Recipe>) = keyed.filter(is_fresh).unzip();
        let made = attempts(&fresh, device, done).map_err(unplanned)?;
        self.known.extend(keys.into_iter().zip(made.into_iter().map(|attempt| Arc::new(Outlook::of(attempt)))));
        Ok(())
    }

    /// Updates of a training, where its data is cheap to count.
    pub fn steps(&mut self, recipe: &Recipe) -> Option<usize> {
        let key = format!("{:?} {:?} {:?}", recipe.data, recipe.dir, recipe.train.task);
        let counted = self.samples.entry(key).or_insert_with(|| expected(recipe));
        counted.map(|data| data.steps(recipe))
    }

    /// Whether a training fits as it was asked for.
    pub(crate) fn fits_as_asked(&mut self, settings: &[String], asked: &Asked, device: &Device) -> Result<bool> {
        match self.recipe(&asked.pinned(settings)) {
            Ok(recipe) => self.outlook(&recipe, device).map(|outlook| outlook.fits),
            // What cannot be pinned so was not asked for so.
            Err(_) => Ok(true),
        }
    }
}

pub(super) fn key_of(recipe: &Recipe, device: &Device) -> String {
    format!("{} {} {}", device.name, device.target.threads, planning_key(recipe, device))
}

fn planned(recipe: &Recipe, device: &Device) -> Result<Outlook> {
    attempt(recipe, device).map(Outlook::of).map_err(unplanned)
}

fn unplanned(error: plimsoll::PlanFailure) -> Error {
    Error::Input(plimsoll::Explain::message(&error))
}

/// How a training would be run in PyTorch: so many samples at a time, nothing recomputed and nothing kept in host memory
/// that was not asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub micro_batch: usize,
    pub recomputes: bool,
    pub offloads: bool,
}

impl Asked {
    /// The first factor of the effective batch where it is a product, else all of it.
    pub(crate) fn of(search: &Search, values: &plimsoll::search::Values, recipe: &Recipe) -> Asked {
        let is_factor = |effect: &plimsoll::search::Effect| matches!(effect, plimsoll::search::Effect::Factor(key) if key == "train.effective_batch");
        let factor = search.parameters.iter().find(|parameter| is_factor(&parameter.effect));
        let written = factor.and_then(|factor| values.get(&factor.name)?.as_integer());
        let memory = &recipe.memory;
        let whole = recipe.train.effective_batch;
        let pinned = memory.micro_batch.pinned();
        Asked {
            micro_batch: pinned.or(written.map(|n| n.max(1) as usize)).unwrap_or(whole).min(whole),
            recomputes: memory.recompute.pinned().is_some(),
            offloads: memory.offload.pinned().is_some(),
        }
    }

    /// Whether a plan may do something that was not asked for; whether it must, [`Plans::fits_as_asked`] knows.
    pub(crate) fn may_differ(&self, outlook: &Outlook) -> bool {
        outlook.micro_batch < self.micro_batch
            || (outlook.recompute != "none" && !self.recomputes)
            || (outlook.offload != "none" && !self.offloads)
    }

    /// Settings that allow nothing but what was asked for.
    pub(crate) fn pinned(&self, settings: &[String]) -> Vec<String> {
        let mut settings = settings.to_vec();
        settings.push(format!("memory.micro_batch={}", self.micro_batch));
        if !self.recomputes {
            settings.push("memory.recompute=\"none\"".into());
        }
        if !self.offloads {
            settings.push("memory.offload=\"none\"".into());
        }
        settings
    }

    /// In words, how a training is run that does not fit as it was asked for; learning is the same.
    pub(crate) fn adaptation(&self, outlook: &Outlook) -> String {
        let mut words = Vec::new();
        if outlook.micro_batch != self.micro_batch {
            words.push(format!("micro-batch {} instead of {}", outlook.micro_batch, self.micro_batch));
        }
        for (lever, choice) in [("recompute", outlook.recompute), ("offload", outlook.offload)] {
            if choice != "none" {
                words.push(format!("{lever} {choice}"));
            }
        }
        words.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_that_nobody_asked_for_is_named() {
        let asked = Asked { micro_batch: 16, recomputes: false, offloads: false };
        let plan = |micro_batch, recompute, offload| Outlook {
            fits: true,
            peak_bytes: 1,
            micro_batch,
            recompute,
            offload,
            step_ms: 1.0,
            model_bytes: 0,
            checkpoint_bytes: 0,
            refused: None,
        };
        assert!(!asked.may_differ(&plan(16, "none", "none")) && !asked.may_differ(&plan(32, "none", "none")));
        for (helped, words) in [
            (plan(8, "none", "none"), "micro-batch 8 instead of 16"),
            (plan(16, "some", "none"), "recompute some"),
            (plan(8, "none", "optimizer"), "micro-batch 8 instead of 16, offload optimizer"),
        ] {
            assert!(asked.may_differ(&helped));
            assert_eq!(asked.adaptation(&helped), words);
        }
        let generous = Asked { recomputes: true, offloads: true, ..asked };
        assert!(!generous.may_differ(&plan(16, "layers", "optimizer")));
    }
}
