//! How many blocks of a layer are computed at a time.

use super::{Lever, Move, Question, Situation, divisors, steps_beside};
use crate::program::Settings;
use plimsoll_models::recipe::{Choice, Memory};

pub(super) struct BlockGroup;

/// Each group of a layer is a part of the graph by itself. Thousands take minutes to plan and gigabytes to lay out, and
/// save next to nothing over these: who wants them pins `memory.block_group`.
const MOST_GROUPS: usize = 32;

/// The sizes of group that are tried, ascending.
fn sizes(blocks: usize) -> Vec<usize> {
    divisors(blocks).into_iter().filter(|size| blocks / size <= MOST_GROUPS).collect()
}

impl Lever for BlockGroup {
    fn key(&self) -> &'static str {
        "block_group"
    }

    fn is_pinned(&self, memory: &Memory) -> bool {
        memory.block_group != Choice::Auto
    }

    fn start(&self, at: &Situation<'_>, settings: &mut Settings) {
        let blocks = at.family.blocks();
        settings.block_group = at.pins.block_group.unwrap_or(blocks).min(blocks);
    }

    fn candidates(&self, at: &Situation<'_>, like: &Settings) -> Vec<Settings> {
        let blocks = at.family.blocks();
        if at.pins.block_group.is_some() || blocks < 2 {
            return Vec::new();
        }
        sizes(blocks).into_iter().rev().map(|block_group| Settings { block_group, ..like.clone() }).collect()
    }

    fn question(&self, at: &Situation<'_>, s: &Settings) -> Option<Question> {
        let blocks = at.family.blocks();
        let reason = match s.block_group == blocks {
            true => "all blocks in one batched product",
            false => "fewer blocks at a time need less memory",
        };
        let other = Settings { block_group: blocks, ..s.clone() };
        let (choice, is_pinned) = (s.block_group.to_string(), at.pins.block_group.is_some());
        (blocks > 1).then_some(Question { choice, other, is_pinned, reason })
    }

    fn neighbours(&self, at: &Situation<'_>, from: &Settings) -> Vec<Move> {
        let step =
            |block_group: usize| Move::to(from.block_group, block_group, Settings { block_group, ..from.clone() });
        steps_beside(&sizes(at.family.blocks()), from.block_group).map(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_as_many_as_can_be_planned_while_somebody_waits() {
        assert_eq!(sizes(16), [1, 2, 4, 8, 16]);
        assert_eq!(sizes(2048), [64, 128, 256, 512, 1024, 2048]);
        assert_eq!(sizes(8191), [8191]);
    }
}
