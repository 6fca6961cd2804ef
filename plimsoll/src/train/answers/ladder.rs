//! What to climb when nothing fits. Each rung is planned; none is ever taken by itself.

use super::attempt::{Attempt, Outline, attempt};
use super::cards::{CardAnswer, smallest_card};
use super::parallel::{Progress, on_all_cores};
use super::rungs::{Kind, Step, kinds};
use crate::recipe::{Draft, Recipe};
use crate::train::{Device, Planned, TrainError};
use crate::units::format_bytes;
use serde::Serialize;

/// One change and where it leads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rung {
    pub kind: &'static str,
    pub change: String,
    /// What to pass to `--set`.
    pub set: Vec<String>,
    /// Whether what is learned changes, not only how it is computed.
    pub changes_learning: bool,
    /// What else to adjust.
    pub adjust: String,
    #[serde(flatten)]
    pub attempt: Attempt,
}

impl Rung {
    fn new(kind: &Kind, step: &Step, attempt: Attempt) -> Rung {
        Rung {
            kind: kind.name,
            change: step.change.clone(),
            set: step.set.clone(),
            changes_learning: kind.changes_learning,
            adjust: step.adjust.clone(),
            attempt,
        }
    }

    /// The settings as they are typed.
    pub fn flags(&self) -> String {
        let quoted = |set: &String| match set.strip_prefix("memory.budget=") {
            // The flag would win over the setting.
            Some(budget) => format!("--memory {budget}"),
            None if set.contains(['"', '{', ' ']) => format!("--set '{set}'"),
            None => format!("--set {set}"),
        };
        self.set.iter().map(quoted).collect::<Vec<_>>().join(" ")
    }

    /// The way out in a sentence; `None` where it does not fit.
    fn hint(&self) -> Option<String> {
        let fits = self.attempt.fitting_words()?;
        let pinned = self.change.strip_suffix(" not pinned").filter(|_| self.kind == "pin");
        Some(match (pinned, self.changes_learning) {
            (Some(key), _) => format!("without {key} pinned, {fits}"),
            (None, false) => format!("with {}, {fits}", self.flags()),
            (None, true) => format!("with {}, {fits}; it changes what is learned: {}", self.flags(), self.adjust),
        })
    }

    fn peak(&self) -> u64 {
        self.attempt.plan.as_ref().map_or(u64::MAX, |plan| plan.planned_peak_bytes)
    }
}

/// All ways out of a recipe that does not fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ladder {
    pub rungs: Vec<Rung>,
    /// The smallest card of the catalog that takes the recipe as it is.
    pub smallest_card: Option<CardAnswer>,
    /// The smallest plan of the recipe as it is.
    pub smallest: Outline,
}

impl Ladder {
    /// What fits, from the least to the most intrusive. The last is always a budget that is enough.
    pub fn hints(&self) -> Vec<String> {
        let card = self.smallest_card.as_ref().map(|answer| {
            let plan = &answer.plan;
            let (card, ms) = (&answer.card, plan.predicted_step_ms);
            format!("{card} is the smallest card of the catalog that takes it as it is: {} at {ms:.1} ms", plan.batch())
        });
        let enough = self.smallest.planned_peak_bytes;
        let budget = format!("--memory {enough} ({}) is enough for the smallest plan", format_bytes(enough));
        self.rungs.iter().filter_map(Rung::hint).chain(card).chain([budget]).collect()
    }
}

/// `smallest` is the smallest plan of the recipe, `cards` stand by memory.
pub fn ladder(
    draft: &Draft,
    device: &Device,
    smallest: &Planned,
    cards: &[Device],
    done: Progress<'_>,
) -> Result<Ladder, TrainError> {
    let recipe = draft.with(&[])?;
    let climb = Climb { draft, device, start: smallest.planned_peak_bytes() };
    let kinds = kinds(&recipe, device);
    let climbed = on_all_cores(&kinds, done, |kind| climb.kind(kind));
    let mut rungs = climbed.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    let harmless: Vec<Rung> = rungs.iter().filter(|rung| !rung.changes_learning).cloned().collect();
    if let Some(rung) = climb.together(&harmless)? {
        rungs.insert(harmless.len(), rung);
    }
    if let Some(rung) = climb.together(&rungs)? {
        rungs.push(rung);
    }
    Ok(Ladder { rungs, smallest_card: smallest_card(&recipe, cards)?, smallest: smallest.into() })
}

struct Climb<'a> {
    draft: &'a Draft,
    device: &'a Device,
    /// Bytes of the smallest plan without any rung.
    start: u64,
}

impl Climb<'_> {
    /// The steps of one kind up to the first that fits; those that lead nowhere are left out.
    fn kind(&self, kind: &Kind) -> Result<Vec<Rung>, TrainError> {
        let mut rungs: Vec<Rung> = Vec::new();
        for step in &kind.steps {
            let Some(attempt) = self.attempt(&step.set)? else { continue };
            let rung = Rung::new(kind, step, attempt);
            let lower = rung.peak() < rungs.last().map_or(self.start, Rung::peak);
            let fits = rung.attempt.fits;
            if lower || fits {
                rungs.push(rung);
            }
            if fits {
                break;
            }
        }
        Ok(rungs)
    }

    /// Where no rung is enough: the last of each kind, one upon the other, until they are.
    fn together(&self, rungs: &[Rung]) -> Result<Option<Rung>, TrainError> {
        if rungs.iter().any(|rung| rung.attempt.fits) {
            return Ok(None);
        }
        let last_of_kind = rungs.iter().enumerate().filter(|(i, rung)| {
            let next = rungs.get(i + 1);
            rung.kind == "pin" || next.is_none_or(|next| next.kind != rung.kind)
        });
        let mut taken: Vec<&Rung> = Vec::new();
        for (_, rung) in last_of_kind {
            taken.push(rung);
            let set: Vec<String> = taken.iter().flat_map(|rung| rung.set.clone()).collect();
            if let Some(attempt) = self.attempt(&set)?.filter(|attempt| attempt.fits && taken.len() > 1) {
                return Ok(Some(joined(&taken, set, attempt)));
            }
        }
        Ok(None)
    }

    /// `None` where the recipe does not allow these settings.
    fn attempt(&self, set: &[String]) -> Result<Option<Attempt>, TrainError> {
        let recipe: Recipe = match self.draft.with(set) {
            Ok(recipe) => recipe,
            Err(_) => return Ok(None),
        };
        let attempt = attempt(&recipe, self.device)?;
        Ok(Some(attempt).filter(|attempt| attempt.refused.is_none()))
    }
}

fn joined(rungs: &[&Rung], set: Vec<String>, attempt: Attempt) -> Rung {
    let words = |word: fn(&Rung) -> &str, between: &str| {
        let parts: Vec<&str> = rungs.iter().map(|rung| word(rung)).filter(|text| !text.is_empty()).collect();
        parts.join(between)
    };
    Rung {
        kind: "together",
        change: words(|rung| &rung.change, ", "),
        set,
        changes_learning: rungs.iter().any(|rung| rung.changes_learning),
        adjust: words(|rung| &rung.adjust, "; "),
        attempt,
    }
}
