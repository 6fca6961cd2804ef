//! Activation checkpointing: what is computed again in the backward pass instead of kept. Which values, the search finds
//! on a ladder of its own.

use super::{Lever, Move, Question, Situation, Target};
use crate::choose::Pins;
use crate::program::Settings;
use plimsoll_base::names::Named;
use plimsoll_core::plan::Recompute;
use plimsoll_models::recipe::{Choice, Memory, RecomputeLevel};

pub(super) struct RecomputeLever;

impl Lever for RecomputeLever {
    fn key(&self) -> &'static str {
        "recompute"
    }

    fn is_pinned(&self, memory: &Memory) -> bool {
        memory.recompute != Choice::Auto
    }

    fn question(&self, at: &Situation<'_>, s: &Settings) -> Option<Question> {
        Some(Question {
            choice: s.recompute.name().into(),
            other: Settings { recompute: Recompute::None, ..s.clone() },
            is_pinned: at.pins.recompute.is_some(),
            reason: match s.recompute {
                Recompute::None => "everything saved fits",
                _ => "the cheapest to compute again of what would not fit",
            },
        })
    }

    fn neighbours(&self, _at: &Situation<'_>, from: &Settings) -> Vec<Move> {
        let (name, levels) = (from.recompute.name(), RecomputeLevel::ALL);
        let at = levels.iter().position(|level| level.name() == name).unwrap_or(0);
        let beside = [at.checked_sub(1), Some(at + 1)].into_iter().flatten().filter_map(|i| levels.get(i));
        let step =
            |&to: &RecomputeLevel| Move { from: name.into(), to: to.name().into(), target: Target::Recompute(to) };
        beside.map(step).collect()
    }
}

/// What recompute a recipe fixes; "some" leaves open which nodes.
pub(in crate::choose) fn pinned_recompute(pins: &Pins) -> Option<Recompute> {
    match pins.recompute? {
        RecomputeLevel::None => Some(Recompute::None),
        RecomputeLevel::Cheap => Some(Recompute::Cheap),
        RecomputeLevel::Layers => Some(Recompute::Layers),
        RecomputeLevel::Some => None,
    }
}
