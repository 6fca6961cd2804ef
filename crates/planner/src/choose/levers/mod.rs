//! What a plan may move: one lever, one file, one line in the list. Recipes pin it, the search tries its values, decisions
//! explain it, and `--explain` shows a step up and down.

mod attention;
mod block_group;
mod cuda_graphs;
mod feed_forward;
mod loss_chunk;
mod micro_batch;
pub(super) mod offload;
mod recompute;
mod sharing;

pub(super) use loss_chunk::chunk_in;
pub(super) use micro_batch::{even_micro_batches, ragged_micro_batches, with_micro_batch};
pub(super) use recompute::pinned_recompute;

use crate::choose::{ChooseError, Decision, Pins};
use crate::program::{Settings, StepSpec};
use plimsoll_core::plan::{Offload, Recompute};
use plimsoll_models::families::{AttentionForm, Family, FeedForwardForm};
use plimsoll_models::recipe::{Memory, RecomputeLevel};

/// What settings are chosen for.
#[derive(Clone, Copy)]
pub(crate) struct Situation<'a> {
    pub family: &'a dyn Family,
    pub spec: &'a StepSpec,
    pub pins: &'a Pins,
}

/// Something a plan may move without changing what is learned.
pub(crate) trait Lever: Sync {
    /// Its key in `[memory]`, and its name in decisions.
    fn key(&self) -> &'static str;

    /// Whether the recipe decides it.
    fn is_pinned(&self, _memory: &Memory) -> bool {
        false
    }

    /// The value that leaves it to the planner.
    fn free(&self) -> &'static str {
        "auto"
    }

    /// Why what is pinned cannot be.
    fn check(&self, _at: &Situation<'_>) -> Result<(), ChooseError> {
        Ok(())
    }

    /// What to start from: what is pinned, or the fastest.
    fn start(&self, _at: &Situation<'_>, _settings: &mut Settings) {}

    /// The settings that differ in it, in the order to climb; none where it is pinned, or found in another way.
    fn candidates(&self, _at: &Situation<'_>, _like: &Settings) -> Vec<Settings> {
        Vec::new()
    }

    /// Other places to start from: values for which other micro-batches are best, so that no small step leads there.
    fn other_starts(&self, _at: &Situation<'_>, _start: &Settings) -> Vec<Settings> {
        Vec::new()
    }

    /// What was chosen against its plainest alternative; `None` where there was nothing to choose.
    fn question(&self, _at: &Situation<'_>, _chosen: &Settings) -> Option<Question> {
        None
    }

    /// What a switch that no graph depends on was set to, and what that means.
    fn switched(&self, _memory: &Memory) -> Option<(&'static str, &'static str)> {
        None
    }

    /// One step up or down.
    fn neighbours(&self, _at: &Situation<'_>, _from: &Settings) -> Vec<Move> {
        Vec::new()
    }
}

/// Every lever, in the order in which decisions are told.
pub(crate) const LEVERS: [&dyn Lever; 9] = [
    &micro_batch::MicroBatch,
    &recompute::RecomputeLever,
    &attention::Attention,
    &block_group::BlockGroup,
    &loss_chunk::LossChunk,
    &feed_forward::FeedForward,
    &offload::OffloadLever,
    &sharing::Sharing,
    &cuda_graphs::CudaGraphs,
];

/// What was chosen, and what it is compared with.
pub(crate) struct Question {
    pub choice: String,
    pub other: Settings,
    /// What the recipe pins has no alternative.
    pub is_pinned: bool,
    pub reason: &'static str,
}

/// One lever by one step.
pub(crate) struct Move {
    pub from: String,
    pub to: String,
    pub target: Target,
}

pub(crate) enum Target {
    Settings(Settings),
    /// The fastest plan with this much recompute: how it is done is the search's to say.
    Recompute(RecomputeLevel),
}

impl Move {
    fn to(from: impl ToString, to: impl ToString, settings: Settings) -> Move {
        Move { from: from.to_string(), to: to.to_string(), target: Target::Settings(settings) }
    }
}

/// From 1 up to the number itself.
pub(crate) fn divisors(number: usize) -> Vec<usize> {
    let small: Vec<usize> = (1..=number.isqrt()).filter(|d| number.is_multiple_of(*d)).collect();
    let large = small.iter().rev().map(|d| number / d);
    let mut all: Vec<usize> = small.iter().copied().chain(large).collect();
    // The root of a square is on both sides.
    all.dedup();
    all
}

/// What the recipe pins must be possible.
pub(super) fn check_pins(at: &Situation<'_>) -> Result<(), ChooseError> {
    LEVERS.iter().try_for_each(|lever| lever.check(at))
}

/// The settings to start from: what is pinned, and the fastest of what is not.
pub(crate) fn settings(family: &dyn Family, spec: &StepSpec, pins: &Pins, micro_batch: usize) -> Settings {
    let at = Situation { family, spec, pins };
    let mut settings = Settings {
        micro_batch,
        accumulation: 1,
        recompute: Recompute::None,
        attention: AttentionForm::Fused,
        block_group: 1,
        loss_chunk: usize::MAX,
        feed_forward: FeedForwardForm::Plain,
        sharing: true,
        offload: Offload::NONE,
    };
    LEVERS.iter().for_each(|lever| lever.start(&at, &mut settings));
    with_micro_batch(&at, &settings, micro_batch)
}

/// The decisions that switches make: nothing to weigh up, but to be said.
pub(super) fn switches(memory: &Memory) -> impl Iterator<Item = Decision> {
    LEVERS.iter().filter_map(|lever| {
        let (choice, reason) = lever.switched(memory)?;
        let (lever, choice, reason) = (lever.key().into(), choice.into(), reason.into());
        Some(Decision { lever, choice, saved_bytes: 0, predicted_ms: 0.0, reason })
    })
}

/// Rows of the loss head.
fn loss_rows(at: &Situation<'_>, micro_batch: usize) -> usize {
    (micro_batch * at.family.rows_per_sample(at.spec.loss_length())).max(1)
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

    #[test]
    fn divisors_stand_in_order_and_once() {
        assert_eq!(divisors(12), [1, 2, 3, 4, 6, 12]);
        assert_eq!(divisors(36), [1, 2, 3, 4, 6, 9, 12, 18, 36]);
        assert_eq!((divisors(1), divisors(7)), (vec![1], vec![1, 7]));
    }

    #[test]
    fn ragged_sizes_are_the_smallest_of_their_number_of_steps() {
        assert_eq!(ragged_micro_batches(100, 25, 50), [34]);
        assert_eq!(ragged_micro_batches(100, 10, 20), [17, 15, 13, 12]);
        assert!(ragged_micro_batches(8, 4, 8).is_empty());
        for (effective, smaller, larger) in [(192, 1, 192), (77, 7, 11), (4096, 64, 128)] {
            for m in ragged_micro_batches(effective, smaller, larger) {
                let steps = effective.div_ceil(m);
                assert!(effective.div_ceil(m - 1) > steps, "{effective}: {} does it in {steps} too", m - 1);
            }
        }
    }

    #[test]
    fn steps_are_the_nearest_on_either_side() {
        assert_eq!(steps_beside(&divisors(12), 4).collect::<Vec<_>>(), [6, 3]);
        assert_eq!(steps_beside(&divisors(12), 5).collect::<Vec<_>>(), [6, 4]);
        assert_eq!(steps_beside(&divisors(12), 12).collect::<Vec<_>>(), [6]);
        assert!(steps_beside(&divisors(1), 1).next().is_none());
    }
}
