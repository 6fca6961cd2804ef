//! What lies in host memory. The search is asked once for each rung of what may go there.

use super::{Lever, Question, Situation};
use crate::choose::Pins;
use crate::program::Settings;
use plimsoll_core::plan::{LayoutOptions, Offload};
use plimsoll_models::families::Family;
use plimsoll_models::recipe::{Choice, Memory, OffloadLevel};

pub(super) struct OffloadLever;

impl Lever for OffloadLever {
    fn key(&self) -> &'static str {
        "offload"
    }

    fn is_pinned(&self, memory: &Memory) -> bool {
        memory.offload != Choice::Auto
    }

    fn question(&self, at: &Situation<'_>, s: &Settings) -> Option<Question> {
        let other = Settings { offload: Offload::NONE, ..s.clone() };
        let (choice, is_pinned) = (s.offload.name().into(), at.pins.offload.is_some());
        let reason = "without host memory nothing fits, or nothing as fast";
        (s.offload != Offload::NONE).then_some(Question { choice, other, is_pinned, reason })
    }
}

/// What a recipe's word means for this model.
pub(in crate::choose) fn of_level(level: OffloadLevel, family: &dyn Family) -> Offload {
    match level {
        OffloadLevel::None => Offload::NONE,
        OffloadLevel::Optimizer => Offload { optimizer: true, ..Offload::NONE },
        OffloadLevel::Activations => Offload { activation_layers: family.layers() as u32, ..Offload::NONE },
    }
}

/// What to put into host memory: what is pinned, or ever more, in the order to try.
pub(in crate::choose) fn offloads(family: &dyn Family, pins: &Pins, options: &LayoutOptions) -> Vec<Offload> {
    match pins.offload {
        Some(pinned) => vec![pinned],
        None => Offload::ladder(&options.target, family.layers() as u32),
    }
}
