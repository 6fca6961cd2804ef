//! What to climb when nothing fits. Each rung is planned; none is ever taken by itself.

#![deny(missing_docs)]

use super::attempt::{Attempt, Outline, attempt_among};
use super::cards::{CardAnswer, smallest_card_beside};
use super::parallel::{Progress, on_all_cores};
use super::rungs::{RungKind, Step, Tier, kinds};
use crate::Device;
use crate::PlanFailure;
use crate::choose::{Memos, Planned};
use plimsoll_models::recipe::Draft;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// One change and where it leads.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Rung {
    /// Which way out it belongs to.
    pub kind: &'static str,
    /// What is given up, in words.
    pub change: String,
    /// What to pass to `--set`.
    pub set: Vec<String>,
    /// Whether what is learned changes, not only how it is computed.
    pub changes_learning: bool,
    /// What else to adjust.
    pub adjust: String,
    /// What becomes of the recipe then.
    #[serde(flatten)]
    pub attempt: Attempt,
}

impl Rung {
    fn new(kind: &RungKind, step: &Step, attempt: Attempt) -> Rung {
        Rung {
            kind: kind.name,
            change: step.change.clone(),
            set: step.set.clone(),
            changes_learning: kind.tier > Tier::Computing,
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
}

/// All ways out of a recipe that does not fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ladder {
    /// By how much they intrude.
    pub rungs: Vec<Rung>,
    /// The smallest card of the catalog that takes the recipe as it is.
    pub smallest_card: Option<CardAnswer>,
    /// The smallest plan of the recipe as it is.
    pub smallest: Outline,
    /// What would be enough for that, in words.
    pub enough: String,
}

impl Ladder {
    /// What fits, from the least to the most intrusive. The last is always how much memory would be enough.
    pub fn hints(&self) -> Vec<String> {
        let card = self.smallest_card.as_ref().map(|answer| {
            let plan = &answer.plan;
            let (card, ms) = (&answer.card, plan.predicted_step_ms);
            format!("{card} is the smallest card of the catalog that takes it as it is: {} at {ms:.1} ms", plan.batch())
        });
        self.rungs.iter().filter_map(Rung::hint).chain(card).chain([self.enough.clone()]).collect()
    }
}

/// `smallest` is the smallest plan of the recipe, `cards` stand by memory.
pub fn ladder(
    draft: &Draft,
    device: &Device,
    smallest: &Planned,
    cards: &[Device],
    done: Progress<'_>,
) -> Result<Ladder, PlanFailure> {
    let recipe = draft.with(&[])?;
    let start = Attempt::from((false, smallest));
    let climb = Climb { draft, device, start, memos: Memos::to_compare(), known: Mutex::default() };
    let kinds = kinds(&recipe, device);
    let (climbed, smallest_card) = climb.all(&kinds, &|| smallest_card_beside(&recipe, smallest, cards), done)?;
    let mut rungs: Vec<Rung> = Vec::new();
    for tier in Tier::ALL {
        rungs.extend(kinds.iter().zip(&climbed).filter(|(kind, _)| kind.tier == tier).flat_map(|(_, r)| r.clone()));
        if !rungs.iter().any(|rung| rung.attempt.fits) {
            rungs.extend(climb.together(kinds.iter().filter(|kind| kind.tier <= tier))?);
        }
    }
    Ok(Ladder { rungs, smallest_card, smallest: smallest.into(), enough: smallest.enough() })
}

/// The rungs of every kind, and the smallest card.
type Climbed = (Vec<Vec<Rung>>, Option<CardAnswer>);

struct Climb<'a> {
    draft: &'a Draft,
    device: &'a Device,
    /// The recipe as it is.
    start: Attempt,
    memos: Memos,
    /// What became of settings that were tried: those of one tier come again under the next.
    known: Mutex<HashMap<Vec<String>, Option<Attempt>>>,
}

impl Climb<'_> {
    /// Everything that can be asked at once: the kinds, and beside them which card would do, which takes longest.
    fn all(
        &self,
        kinds: &[RungKind],
        card: &(dyn Fn() -> Result<Option<CardAnswer>, PlanFailure> + Sync),
        done: Progress<'_>,
    ) -> Result<Climbed, PlanFailure> {
        // What takes longest first: other models, which mostly fit.
        let questions: Vec<Option<&RungKind>> = [None].into_iter().chain(kinds.iter().rev().map(Some)).collect();
        let answers = on_all_cores(&questions, done, |question| match question {
            Some(kind) => Ok((self.kind(kind)?, None)),
            None => Ok((Vec::new(), card()?)),
        });
        let mut answers = answers.into_iter().collect::<Result<Vec<_>, PlanFailure>>()?;
        let (_, smallest_card) = answers.remove(0);
        Ok((answers.into_iter().rev().map(|(rungs, _)| rungs).collect(), smallest_card))
    }

    /// The steps of one kind up to the first that fits; those that gain next to nothing are left out. Where not even the
    /// largest fits, it stands for all.
    fn kind(&self, kind: &RungKind) -> Result<Vec<Rung>, PlanFailure> {
        let mut rungs: Vec<Rung> = Vec::new();
        for step in &kind.steps[self.first_of_use(kind)?..] {
            let Some(attempt) = self.attempt(&step.set)? else { continue };
            let before = rungs.last().map_or(&self.start, |rung| &rung.attempt);
            let fits = attempt.fits;
            if fits || gains(&attempt, before) {
                rungs.push(Rung::new(kind, step, attempt));
            }
            if fits {
                break;
            }
        }
        Ok(rungs)
    }

    /// The first step, or the largest that the recipe allows where not even that fits. Models are so far apart that the
    /// next smaller one mostly fits.
    fn first_of_use(&self, kind: &RungKind) -> Result<usize, PlanFailure> {
        if kind.tier == Tier::Model {
            return Ok(0);
        }
        for (at, step) in kind.steps.iter().enumerate().rev() {
            if let Some(attempt) = self.attempt(&step.set)? {
                return Ok(if attempt.fits { 0 } else { at });
            }
        }
        Ok(kind.steps.len())
    }

    /// Where nothing alone is enough: the largest step of each kind upon the other, and of the last only as much as it
    /// takes.
    fn together<'k>(&self, kinds: impl Iterator<Item = &'k RungKind>) -> Result<Option<Rung>, PlanFailure> {
        let (mut taken, mut reached) = (Vec::new(), self.start.clone());
        for kind in kinds {
            let Some(largest) = kind.steps.last() else { continue };
            let Some(attempt) = self.attempt(&upon(&taken, largest))? else { continue };
            if attempt.fits {
                return self.enough(&taken, kind);
            }
            if gains(&attempt, &reached) {
                taken.push((kind, largest));
                reached = attempt;
            }
        }
        Ok(None)
    }

    /// The first step of a kind that fits upon others.
    fn enough(&self, taken: &[(&RungKind, &Step)], kind: &RungKind) -> Result<Option<Rung>, PlanFailure> {
        for step in &kind.steps {
            if let Some(attempt) = self.attempt(&upon(taken, step))?.filter(|attempt| attempt.fits) {
                return Ok((!taken.is_empty()).then(|| joined(&[taken, &[(kind, step)]].concat(), attempt)));
            }
        }
        Ok(None)
    }

    /// `None` where the recipe does not allow these settings.
    fn attempt(&self, set: &[String]) -> Result<Option<Attempt>, PlanFailure> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tried) = known().get(set) {
            return Ok(tried.clone());
        }
        let tried = self.try_out(set)?;
        known().insert(set.to_vec(), tried.clone());
        Ok(tried)
    }

    fn try_out(&self, set: &[String]) -> Result<Option<Attempt>, PlanFailure> {
        let Ok(recipe) = self.draft.with(set) else { return Ok(None) };
        let attempt = attempt_among(&self.memos, &recipe, self.device)?;
        Ok(Some(attempt).filter(|attempt| attempt.refused.is_none()))
    }
}

/// Whether the smallest plan comes closer to the budget by more than a hundredth of its arena.
fn gains(attempt: &Attempt, before: &Attempt) -> bool {
    let missing = |attempt: &Attempt| {
        let peak = attempt.plan.as_ref().map_or(u64::MAX, |plan| plan.planned_peak_bytes);
        peak.saturating_sub(attempt.budget_bytes)
    };
    let little = before.plan.as_ref().map_or(0, |plan| plan.arena_bytes / 100);
    missing(attempt).saturating_add(little) < missing(before)
}

fn upon(taken: &[(&RungKind, &Step)], step: &Step) -> Vec<String> {
    taken.iter().flat_map(|(_, step)| &step.set).chain(&step.set).cloned().collect()
}

fn joined(taken: &[(&RungKind, &Step)], attempt: Attempt) -> Rung {
    let words = |word: fn(&Step) -> &str, between: &str| {
        let parts: Vec<&str> = taken.iter().map(|(_, step)| word(step)).filter(|text| !text.is_empty()).collect();
        parts.join(between)
    };
    Rung {
        kind: "together",
        change: words(|step| &step.change, ", "),
        set: taken.iter().flat_map(|(_, step)| step.set.clone()).collect(),
        changes_learning: taken.iter().any(|(kind, _)| kind.tier > Tier::Computing),
        adjust: words(|step| &step.adjust, "; "),
        attempt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choose::plan;
    use crate::whatif::recipes::TEXT;
    use plimsoll_core::graph::Target;

    fn ladder_in(bytes: u64) -> Ladder {
        let (draft, device) = (Draft::of_text(TEXT, "text.toml"), Device { runs: false, ..Device::cpu(1, bytes) });
        let Err(PlanFailure::DoesNotFit(smallest)) = plan(&draft.with(&[]).unwrap(), &device) else {
            panic!("it fits in {bytes}");
        };
        ladder(&draft, &device, &smallest, &[], &|_, _| ()).unwrap()
    }

    fn smallest_bytes() -> u64 {
        ladder_in(1024).smallest.planned_peak_bytes
    }

    #[test]
    fn a_little_too_much_has_many_ways_out() {
        let ladder = ladder_in(smallest_bytes() * 99 / 95);
        let fitting: Vec<&str> = ladder.rungs.iter().filter(|r| r.attempt.fits).map(|r| r.kind).collect();
        assert!(
            fitting.contains(&"optimizer") && fitting.contains(&"batch") && fitting.contains(&"layers"),
            "{fitting:?}"
        );
        assert!(!fitting.contains(&"together") && !fitting.contains(&"precision"), "{fitting:?}");
        assert!(ladder.rungs.iter().all(|rung| rung.changes_learning || rung.kind == "evaluation"), "{ladder:?}");
        let hints = ladder.hints();
        assert!(hints[0].contains("--set 'train.optimizer={name=\"adafactor\""), "{hints:?}");
        assert!(
            hints.iter().any(|hint| hint.contains("train.optimizer.lr=") && hint.contains("changes what is learned"))
        );
    }

    #[test]
    fn where_nothing_alone_is_enough_changes_add_up() {
        let bytes = smallest_bytes() * 65 / 95;
        let ladder = ladder_in(bytes);
        let fitting: Vec<&Rung> = ladder.rungs.iter().filter(|rung| rung.attempt.fits).collect();
        let together = fitting[0];
        assert_eq!((fitting.len(), together.kind, together.changes_learning), (1, "together", true), "{ladder:?}");
        let recipe = Draft::of_text(TEXT, "text.toml").with(&together.set).unwrap();
        assert!(plan(&recipe, &Device::cpu(1, bytes)).is_ok(), "{together:?}");
    }

    /// On a card, host memory may be all that is missing.
    #[test]
    fn an_offload_that_is_pinned_away_is_a_way_out() {
        let draft = Draft::of_text(&format!("{TEXT}[memory]\noffload = \"none\"\n"), "text.toml");
        let card = |bytes: u64| Device { target: Target::CUDA, runs: false, ..Device::cpu(1, bytes) };
        let smallest = |device: &Device| match plan(&draft.with(&[]).unwrap(), device) {
            Err(PlanFailure::DoesNotFit(smallest)) => smallest,
            _ => panic!("it fits"),
        };
        let device = card(smallest(&card(1024)).planned_peak_bytes() * 97 / 95);
        let ladder = ladder(&draft, &device, &smallest(&device), &[], &|_, _| ()).unwrap();
        let rung = ladder.rungs.iter().find(|rung| rung.set == ["memory.offload=auto"]).unwrap();
        assert!(rung.attempt.fits && !rung.changes_learning, "{rung:?}");
        assert!(ladder.hints()[0].starts_with("without memory.offload pinned, "), "{:?}", ladder.hints());
    }
}
