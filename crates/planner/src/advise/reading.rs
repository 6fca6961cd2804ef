//! An error and what it means: all that its text tells, and which tensor of a recipe it was about.

#![deny(missing_docs)]

use super::cause::{Cause, causes};
use super::log::Log;
use super::oom::Oom;
use super::remedies::{Remedy, mentioned};
use super::settings::Advice;
use super::tensor::{Candidate, candidates};
use plimsoll_base::units::format_bytes;
use plimsoll_core::graph::GraphError;
use plimsoll_models::recipe::Recipe;
use serde::Serialize;

/// An error and what it means.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// What it says.
    #[serde(flatten)]
    pub oom: Oom,
    /// What the text around it tells.
    pub log: Log,
    /// Why it may have happened, the likeliest first. Never empty.
    pub causes: Vec<Cause>,
    /// Values of the recipe's step that have the size of the request.
    pub tensors: Vec<Candidate>,
    /// Folk remedies that the text speaks of.
    pub remedies: Vec<Remedy>,
}

impl Reading {
    /// Of the last out-of-memory error in a text, with the recipe of the run that died where that is known; `None` where
    /// the text has no such error.
    ///
    /// # Errors
    /// The model of the recipe cannot be built at all.
    pub fn of(text: &str, recipe: Option<&Recipe>) -> Result<Option<Reading>, GraphError> {
        let Some(oom) = Oom::find(text) else { return Ok(None) };
        let log = Log::read(text);
        let tensors = match (recipe, oom.asked.filter(|_| oom.is_on_card())) {
            (Some(recipe), Some(asked)) => candidates(recipe, asked)?,
            _ => Vec::new(),
        };
        Ok(Some(Reading { causes: causes(&oom, &log), remedies: mentioned(text), oom, log, tensors }))
    }

    /// Why the recipe that settings were found for cannot be the run that died, where it cannot. What the process had beside
    /// tensors is not the recipe's; an estimate may be off by a half, not by more.
    pub fn mismatch(&self, advice: &Advice) -> Option<String> {
        let alive = self.oom.allocated_bytes.filter(|_| self.oom.is_on_card())?;
        let most = advice.plain_bytes;
        (alive > most.saturating_add(most / 2).saturating_add(SLACK_BYTES)).then(|| {
            format!(
                "the recipe cannot be the run that died: {} were in tensors, and the recipe has {} at most; settings below \
                 are for the recipe. Was the model, the length, the batch or the precision another, or was something kept?",
                format_bytes(alive),
                format_bytes(most)
            )
        })
    }
}

/// Workspaces and leftovers of any run.
const SLACK_BYTES: u64 = 512 << 20;
