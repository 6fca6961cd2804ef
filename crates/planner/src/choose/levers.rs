//! What a plan may move, and the values worth trying.

use crate::choose::{ChooseError, Pins, RecomputePin};
use crate::program::{Settings, StepSpec};
use plimsoll_core::plan::{LayoutOptions, Offload, Recompute};
use plimsoll_models::families::{AttentionForm, Family, FeedForwardForm};

/// Tokens of the loss head at a time where nothing forces fewer: large enough for full speed.
const LOSS_CHUNK: usize = 2048;

/// The fewest tokens of the loss head at a time.
pub(crate) const SMALLEST_LOSS_CHUNK: usize = 64;

/// From 1 up to the number itself.
pub fn divisors(number: usize) -> Vec<usize> {
    let small: Vec<usize> = (1..=number.isqrt()).filter(|d| number.is_multiple_of(*d)).collect();
    let large = small.iter().rev().map(|d| number / d);
    let mut all: Vec<usize> = small.iter().copied().chain(large).collect();
    // The root of a square is on both sides.
    all.dedup();
    all
}

/// What the recipe pins must be possible.
pub(super) fn check_pins(family: &dyn Family, spec: &StepSpec, pins: &Pins) -> Result<(), ChooseError> {
    if pins.attention == Some(AttentionForm::Materialized) && !family.has_attention_forms() {
        return Err(ChooseError::Refused {
            cause: "memory.attention = \"materialized\" is not available for this family".into(),
            hint: "leave it out: its attention never stores the scores".into(),
        });
    }
    let effective = spec.effective_batch;
    match pins.micro_batch {
        Some(micro) if micro > effective => Err(ChooseError::Refused {
            cause: format!("micro-batch {micro} is larger than the effective batch {effective}"),
            hint: format!("set memory.micro_batch to at most {effective}"),
        }),
        Some(micro) if is_whole(family, pins) && micro < effective => Err(ChooseError::Refused {
            cause: format!(
                "batch norm sees the micro-batch: {micro} instead of {effective} would change what is learned"
            ),
            hint: "leave memory.micro_batch out, or accept it with model.batch_norm = \"micro\"".into(),
        }),
        _ => Ok(()),
    }
}

/// Whether the micro-batch has to be the effective batch.
fn is_whole(family: &dyn Family, pins: &Pins) -> bool {
    family.batch_norm().is_some() && !pins.micro_statistics
}

/// Micro-batches without a ragged last one, largest first.
pub(super) fn even_micro_batches(family: &dyn Family, spec: &StepSpec, pins: &Pins) -> Vec<usize> {
    let effective = spec.effective_batch;
    match pins.micro_batch {
        Some(micro) => vec![micro],
        None if is_whole(family, pins) => vec![effective],
        None => divisors(effective).into_iter().rev().collect(),
    }
}

/// Micro-batches between two of those above, largest first: of each number of micro-steps the smallest. The last
/// micro-step is filled up with rows that count nothing, and takes as long as the others.
pub(super) fn ragged_micro_batches(effective: usize, smaller: usize, larger: usize) -> Vec<usize> {
    let counts = effective.div_ceil(larger) + 1..effective.div_ceil(smaller.max(1));
    let mut sizes: Vec<usize> = counts.map(|count| effective.div_ceil(count)).collect();
    sizes.dedup();
    sizes.retain(|&m| smaller < m && m < larger);
    sizes
}

/// The settings to start from: what is pinned, and the fastest of what is not.
pub(crate) fn settings(family: &dyn Family, spec: &StepSpec, pins: &Pins, micro_batch: usize) -> Settings {
    let free = Settings {
        micro_batch,
        accumulation: 1,
        recompute: Recompute::None,
        attention: pins.attention.unwrap_or(AttentionForm::Fused),
        block_group: pins.block_group.unwrap_or(family.blocks()).min(family.blocks()),
        loss_chunk: pins.loss_chunk.unwrap_or(LOSS_CHUNK),
        feed_forward: feed_forward(family, pins),
        sharing: !pins.no_sharing,
        offload: Offload::NONE,
    };
    with_micro_batch(family, spec, &free, micro_batch)
}

/// Where the device has kernels for it, a fused one is far smaller, and faster but for steps of few tokens, which it makes
/// a few percent slower: nothing to weigh up.
fn feed_forward(family: &dyn Family, pins: &Pins) -> FeedForwardForm {
    match pins.fused_feed_forward && family.has_fused_feed_forward() {
        true => FeedForwardForm::Fused,
        false => FeedForwardForm::Plain,
    }
}

/// The same with another micro-batch.
pub(super) fn with_micro_batch(family: &dyn Family, spec: &StepSpec, like: &Settings, micro_batch: usize) -> Settings {
    Settings {
        micro_batch,
        accumulation: spec.effective_batch.div_ceil(micro_batch),
        loss_chunk: like.loss_chunk.min(loss_rows(family, spec, micro_batch)),
        ..like.clone()
    }
}

/// Rows of the loss head.
pub(crate) fn loss_rows(family: &dyn Family, spec: &StepSpec, micro_batch: usize) -> usize {
    (micro_batch * family.rows_per_sample(spec.loss_length())).max(1)
}

/// What recompute a recipe fixes; "some" leaves open which nodes.
pub(super) fn pinned_recompute(pins: &Pins) -> Option<Recompute> {
    match pins.recompute? {
        RecomputePin::None => Some(Recompute::None),
        RecomputePin::Cheap => Some(Recompute::Cheap),
        RecomputePin::Layers => Some(Recompute::Layers),
        RecomputePin::Some => None,
    }
}

/// What to put into host memory: what is pinned, or ever more, in the order to try.
pub(super) fn offloads(family: &dyn Family, pins: &Pins, options: &LayoutOptions) -> Vec<Offload> {
    match pins.offload {
        Some(pinned) => vec![pinned],
        None => Offload::ladder(&options.target, family.layers() as u32),
    }
}

/// A lever besides micro-batch and recompute: the settings that differ in it, if it is free.
pub(super) type Lever = fn(&dyn Family, &StepSpec, &Pins, &Settings) -> Vec<Settings>;

pub(super) const LEVERS: [Lever; 3] = [attention_forms, block_groups, loss_chunks];

fn attention_forms(family: &dyn Family, _: &StepSpec, pins: &Pins, like: &Settings) -> Vec<Settings> {
    if pins.attention.is_some() || !family.has_attention_forms() {
        return Vec::new();
    }
    let forms = [AttentionForm::Fused, AttentionForm::Materialized];
    forms.into_iter().map(|attention| Settings { attention, ..like.clone() }).collect()
}

fn block_groups(family: &dyn Family, _: &StepSpec, pins: &Pins, like: &Settings) -> Vec<Settings> {
    let blocks = family.blocks();
    if pins.block_group.is_some() || blocks < 2 {
        return Vec::new();
    }
    divisors(blocks).into_iter().rev().map(|block_group| Settings { block_group, ..like.clone() }).collect()
}

fn loss_chunks(family: &dyn Family, spec: &StepSpec, pins: &Pins, like: &Settings) -> Vec<Settings> {
    if pins.loss_chunk.is_some() || !family.has_loss_chunks() {
        return Vec::new();
    }
    let rows = loss_rows(family, spec, like.micro_batch);
    let powers = std::iter::successors(Some(SMALLEST_LOSS_CHUNK), |chunk| chunk.checked_mul(2));
    let chunks = powers.take_while(|&chunk| chunk < rows).chain([rows]);
    chunks.map(|loss_chunk| Settings { loss_chunk, ..like.clone() }).collect()
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
}
