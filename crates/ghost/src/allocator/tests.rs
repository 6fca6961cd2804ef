//! The allocator against PyTorch's rules, and against whatever is asked of it.

use super::*;
use proptest::prelude::*;

fn allocator(settings: Settings, limit: u64) -> Allocator {
    Allocator::new(settings, limit, Addresses::Rising)
}

#[test]
fn requests_are_rounded_and_segments_have_the_sizes_that_pytorch_gives_them() {
    for (requested, allocated, reserved) in [
        (1, 512, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (12 * MIB + 1, 12 * MIB + 512, 14 * MIB),
    ] {
        let mut all = allocator(Settings::default(), u64::MAX);
        all.malloc(requested, 0).unwrap();
        assert_eq!((all.allocated, all.reserved), (allocated, reserved), "{requested}");
    }
}

#[test]
fn a_rest_of_at_most_a_mebibyte_stays_with_its_large_block() {
    let mut all = allocator(Settings::default(), u64::MAX);
    let block = all.malloc(19 * MIB, 0).unwrap();
    assert_eq!(all.size(block), 20 * MIB);
}

#[test]
fn what_does_not_fit_releases_the_cache_first_and_then_fails_with_its_sizes() {
    let mut all = allocator(Settings::default(), 64 * MIB);
    let first = all.malloc(40 * MIB, 0).unwrap();
    all.free(first);
    all.malloc(60 * MIB, 0).unwrap();
    assert_eq!((all.retries, all.reserved), (1, 60 * MIB));
    let error = all.malloc(11 * MIB, 0).unwrap_err();
    assert_eq!(error, OutOfMemory { requested: 11 * MIB, segment: 12 * MIB });
}

#[test]
fn streams_do_not_share_free_blocks() {
    let mut all = allocator(Settings::default(), u64::MAX);
    let block = all.malloc(40 * MIB, 0).unwrap();
    all.free(block);
    all.malloc(40 * MIB, 7).unwrap();
    assert_eq!(all.reserved, 80 * MIB);
}

#[test]
fn expandable_segments_serve_from_what_lies_in_pieces_elsewhere() {
    let program = |settings: Settings| {
        let mut all = allocator(settings, 100 * MIB);
        let blocks: Vec<_> = (0..4).map(|_| all.malloc(20 * MIB, 0).unwrap()).collect();
        all.free(blocks[0]);
        all.free(blocks[1]);
        all.malloc(40 * MIB, 0).is_ok()
    };
    assert!(program(Settings { expandable: true, ..Settings::default() }));
    let mut plain = allocator(Settings::default(), 100 * MIB);
    let blocks: Vec<_> = (0..8).map(|_| plain.malloc(9 * MIB, 0).unwrap()).collect();
    blocks.iter().step_by(2).for_each(|block| plain.free(*block));
    assert!(plain.malloc(30 * MIB, 0).is_err());
}

/// No two blocks that are in use overlap, and the counters are what the blocks say.
fn check(all: &Allocator, held: &[Handle]) {
    let mut ranges: Vec<_> = held.iter().map(|block| (all.address(*block), all.size(*block))).collect();
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    assert_eq!(all.allocated, ranges.iter().map(|(_, size)| size).sum::<u64>());
    assert!(all.allocated <= all.reserved && all.reserved <= all.limit);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_is_asked_for_blocks_never_overlap_and_the_limit_holds(
        requests in prop::collection::vec((1u64..40 * MIB, any::<u16>(), 0u64..2), 1..120),
        expandable: bool,
        split in prop::option::of(20 * MIB..60 * MIB),
        limit in 60 * MIB..400 * MIB,
        seed: u64,
    ) {
        let settings = Settings { expandable, max_split_bytes: split.filter(|_| !expandable), ..Settings::default() };
        let mut all = Allocator::new(settings, limit, Addresses::Shuffled(seed));
        let mut held = Vec::new();
        for (size, choice, stream) in requests {
            if choice % 3 == 0 && !held.is_empty() {
                let block = held.swap_remove(usize::from(choice) % held.len());
                all.free(block);
            } else if let Ok(block) = all.malloc(size >> (choice % 12), stream) {
                held.push(block);
            }
            check(&all, &held);
        }
        held.into_iter().for_each(|block| all.free(block));
        all.release_cached();
        prop_assert_eq!((all.allocated, all.reserved), (0, 0));
    }
}

#[test]
fn divisions_round_up_to_steps_between_powers_of_two() {
    for (requested, divisions, expected) in [
        (1200 * MIB, 4, 1280 * MIB),
        (1024 * MIB, 4, 1024 * MIB),
        (1025 * MIB, 4, 1280 * MIB),
        (1200 * MIB, 1, 1200 * MIB),
        (1000, 4, 1024),
        (3000, 4, 3072),
    ] {
        assert_eq!(rounded(requested, divisions), expected, "{requested} in {divisions}");
    }
}

#[test]
fn what_is_too_large_to_be_split_is_released_before_everything_is() {
    let settings = Settings { max_split_bytes: Some(32 * MIB), ..Settings::default() };
    let mut all = allocator(settings, 110 * MIB);
    let (large, small) = (all.malloc(64 * MIB, 0).unwrap(), all.malloc(16 * MIB, 0).unwrap());
    all.free(large);
    all.free(small);
    let other = all.malloc(60 * MIB, 0).unwrap();
    assert_eq!((all.size(other), all.reserved), (64 * MIB, 80 * MIB), "near enough to be taken whole");
    all.free(other);
    // The cached 64 MiB may not be cut for 40, and 40 more do not fit beside 80.
    all.malloc(40 * MIB, 0).unwrap();
    assert_eq!((all.reserved, all.retries), (56 * MIB, 0), "the 64 MiB went, the 16 stayed");
}

#[test]
fn a_block_that_can_grow_is_spared_for_those_that_need_it() {
    let mut all = allocator(Settings { expandable: true, ..Settings::default() }, u64::MAX);
    let first = all.malloc(12 * MIB, 0).unwrap();
    let _between = all.malloc(4 * MIB, 0).unwrap();
    let start = all.address(first);
    all.free(first);
    // 12 MiB lie free before, 4 at the end of what is mapped: the end is smaller, but could grow without bounds.
    let next = all.malloc(3 * MIB, 0).unwrap();
    assert_eq!(all.address(next), start);
}
