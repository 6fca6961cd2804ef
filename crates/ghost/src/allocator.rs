//! PyTorch's caching allocator, as a simulator: the same rounding, pools, best fit, splitting, merging and releasing,
//! so that a recorded program can be replayed under another limit, other addresses or other settings.

use crate::snapshot::Settings;
use std::collections::{BTreeSet, HashMap, VecDeque};

const MIB: u64 = 1 << 20;
/// Everything is a multiple of this.
const UNIT: u64 = 512;
/// Requests up to this share small segments.
const SMALL: u64 = MIB;
const SMALL_SEGMENT: u64 = 2 * MIB;
/// Requests below this share large segments; others get their own.
const OWN_SEGMENT: u64 = 10 * MIB;
const LARGE_SEGMENT: u64 = 20 * MIB;
/// What the driver hands out at once.
const PAGE: u64 = 2 * MIB;
/// Addresses of one expandable segment start at a multiple of this.
const STRETCH: u64 = 1 << 44;

/// Where new segments lie: ties of best fit go to lower addresses.
#[derive(Clone, Debug)]
pub enum Addresses {
    Rising,
    /// As they were, in order; rising after that.
    Recorded(VecDeque<u64>),
    /// In an order that a driver might give; the seed says which.
    Shuffled(u64),
}

/// Blocks of one kind that may serve each other's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pool {
    stream: u64,
    small: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Used,
    /// Addresses of an expandable segment without memory behind them.
    Unmapped,
}

#[derive(Clone, Debug)]
struct Block {
    address: u64,
    size: u64,
    requested: u64,
    pool: Pool,
    state: State,
    before: Option<usize>,
    after: Option<usize>,
}

/// A block that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(usize);

/// The request that could not be served, and what the segment for it would have taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    pub requested: u64,
    pub segment: u64,
}

pub struct Allocator {
    settings: Settings,
    /// Of all segments together.
    limit: u64,
    addresses: Addresses,
    next_address: u64,
    blocks: Vec<Block>,
    /// Free blocks by (size, address).
    free: HashMap<Pool, BTreeSet<(u64, u64, usize)>>,
    /// Addresses without memory, by address.
    unmapped: HashMap<Pool, BTreeSet<(u64, usize)>>,
    pub allocated: u64,
    pub reserved: u64,
    pub peak_allocated: u64,
    pub peak_reserved: u64,
    /// How often everything cached was released to make room.
    pub retries: usize,
}

fn rounded(requested: u64) -> u64 {
    requested.max(1).next_multiple_of(UNIT)
}

fn segment_size(size: u64) -> u64 {
    if size <= SMALL {
        SMALL_SEGMENT
    } else if size < OWN_SEGMENT {
        LARGE_SEGMENT
    } else {
        size.next_multiple_of(PAGE)
    }
}

impl Allocator {
    pub fn new(settings: Settings, limit: u64, addresses: Addresses) -> Allocator {
        Allocator {
            settings,
            limit,
            addresses,
            next_address: 1 << 44,
            blocks: Vec::new(),
            free: HashMap::new(),
            unmapped: HashMap::new(),
            allocated: 0,
            reserved: 0,
            peak_allocated: 0,
            peak_reserved: 0,
            retries: 0,
        }
    }

    /// Serves a request as PyTorch would: from a free block, from a new segment, from one after a release.
    pub fn malloc(&mut self, requested: u64, stream: u64) -> Result<Handle, OutOfMemory> {
        let size = rounded(requested);
        let pool = Pool { stream, small: size <= SMALL };
        let found = self.best_fit(pool, size).or_else(|| self.grow(pool, size));
        let found = found.or_else(|| {
            self.retries += 1;
            self.release_cached();
            self.grow(pool, size)
        });
        let block = found.ok_or(OutOfMemory { requested, segment: segment_size(size) })?;
        self.split(block, size);
        self.hand_out(block, requested);
        Ok(Handle(block))
    }

    fn hand_out(&mut self, block: usize, requested: u64) {
        let block = &mut self.blocks[block];
        block.state = State::Used;
        block.requested = requested;
        self.allocated += block.size;
        self.peak_allocated = self.peak_allocated.max(self.allocated);
    }

    pub fn address(&self, handle: Handle) -> u64 {
        self.blocks[handle.0].address
    }

    /// Of the block: at least what was requested.
    pub fn size(&self, handle: Handle) -> u64 {
        self.blocks[handle.0].size
    }

    pub fn free(&mut self, handle: Handle) {
        let block = handle.0;
        self.allocated -= self.blocks[block].size;
        self.blocks[block].state = State::Free;
        self.merge(block);
    }

    // Free blocks

    fn enlist(&mut self, block: usize) {
        let Block { size, address, pool, .. } = self.blocks[block];
        self.free.entry(pool).or_default().insert((size, address, block));
    }

    fn delist(&mut self, block: usize) {
        let Block { size, address, pool, .. } = self.blocks[block];
        self.free.entry(pool).or_default().remove(&(size, address, block));
    }

    /// The smallest free block that serves; of equal ones the lowest.
    fn best_fit(&mut self, pool: Pool, size: u64) -> Option<usize> {
        let (found_size, _, found) = *self.free.get(&pool)?.range((size, 0, 0)..).next()?;
        if let Some(limit) = self.settings.max_split_bytes {
            let too_large_to_split = size < limit && found_size >= limit;
            let too_large_to_waste = size >= limit && found_size >= size + LARGE_SEGMENT;
            if too_large_to_split || too_large_to_waste {
                return None;
            }
        }
        self.delist(found);
        Some(found)
    }

    fn splits(&self, block: usize, size: u64) -> bool {
        let rest = self.blocks[block].size - size;
        if self.blocks[block].pool.small || self.settings.expandable {
            return rest >= UNIT;
        }
        self.settings.max_split_bytes.is_none_or(|limit| size < limit) && rest > SMALL
    }

    fn split(&mut self, block: usize, size: u64) {
        if !self.splits(block, size) {
            return;
        }
        let rest = self.insert_after(block, size, State::Free);
        self.enlist(rest);
    }

    /// Cuts a block at `size`; what is behind the cut becomes a block of its own.
    fn insert_after(&mut self, block: usize, size: u64, state: State) -> usize {
        let Block { address, size: whole, pool, after, .. } = self.blocks[block];
        let rest = self.blocks.len();
        self.blocks.push(Block {
            address: address + size,
            size: whole - size,
            requested: 0,
            pool,
            state,
            before: Some(block),
            after,
        });
        if let Some(after) = after {
            self.blocks[after].before = Some(rest);
        }
        self.blocks[block].after = Some(rest);
        self.blocks[block].size = size;
        rest
    }

    /// Joins a block that became free with its free neighbours.
    fn merge(&mut self, mut block: usize) {
        if let Some(before) = self.blocks[block].before.filter(|before| self.blocks[*before].state == State::Free) {
            self.delist(before);
            self.absorb(before, block);
            block = before;
        }
        if let Some(after) = self.blocks[block].after.filter(|after| self.blocks[*after].state == State::Free) {
            self.delist(after);
            self.absorb(block, after);
        }
        self.enlist(block);
    }

    /// The first takes over the second, which lies behind it.
    fn absorb(&mut self, first: usize, second: usize) {
        let Block { size, after, .. } = self.blocks[second];
        self.blocks[first].size += size;
        self.blocks[first].after = after;
        if let Some(after) = after {
            self.blocks[after].before = Some(first);
        }
    }

    // Segments

    fn grow(&mut self, pool: Pool, size: u64) -> Option<usize> {
        if self.settings.expandable { self.expand(pool, size) } else { self.new_segment(pool, size) }
    }

    fn charge(&mut self, bytes: u64) -> bool {
        if self.reserved.saturating_add(bytes) > self.limit {
            return false;
        }
        self.reserved += bytes;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
        true
    }

    fn new_segment(&mut self, pool: Pool, size: u64) -> Option<usize> {
        let bytes = segment_size(size);
        if !self.charge(bytes) {
            return None;
        }
        let address = self.new_address(bytes);
        Some(self.new_block(address, bytes, pool, State::Free))
    }

    fn new_block(&mut self, address: u64, size: u64, pool: Pool, state: State) -> usize {
        self.blocks.push(Block { address, size, requested: 0, pool, state, before: None, after: None });
        self.blocks.len() - 1
    }

    fn new_address(&mut self, bytes: u64) -> u64 {
        let rising = self.next_address;
        self.next_address += bytes.next_multiple_of(PAGE);
        match &mut self.addresses {
            Addresses::Rising => rising,
            Addresses::Recorded(recorded) => recorded.pop_front().unwrap_or(rising),
            // Any order of segments: far apart, in places that the seed chooses.
            Addresses::Shuffled(seed) => {
                *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (*seed >> 40) << 40 | (rising & ((1 << 40) - 1))
            }
        }
    }

    /// Releases what is cached: segments without a used block; of expandable ones all whole pages that are free.
    pub fn release_cached(&mut self) {
        let all: Vec<usize> = self.free.values().flatten().map(|(_, _, block)| *block).collect();
        for block in all {
            if self.settings.expandable {
                self.unmap_pages_of(block);
            } else if self.blocks[block].before.is_none() && self.blocks[block].after.is_none() {
                self.delist(block);
                self.reserved -= self.blocks[block].size;
            }
        }
    }

    /// Releases the one segment that starts here, if nothing in it is used.
    pub fn release_at(&mut self, address: u64) {
        let whole = |block: &usize| self.blocks[*block].before.is_none() && self.blocks[*block].after.is_none();
        let mut all =
            self.free.values().flatten().filter(|(_, start, _)| *start == address).map(|(_, _, block)| *block);
        if let Some(block) = all.find(whole) {
            self.delist(block);
            self.reserved -= self.blocks[block].size;
        }
    }

    // Expandable segments

    fn page_of(pool: Pool) -> u64 {
        if pool.small { SMALL_SEGMENT } else { LARGE_SEGMENT }
    }

    /// Maps memory behind the lowest addresses that have none, joined with a free block right before them.
    fn expand(&mut self, pool: Pool, size: u64) -> Option<usize> {
        if self.unmapped.get(&pool).is_none_or(BTreeSet::is_empty) {
            self.reserve_addresses(pool);
        }
        let candidates: Vec<usize> = self.unmapped.get(&pool)?.iter().map(|(_, block)| *block).collect();
        let fits = |block: &usize| self.room_at(*block) >= size;
        let start = candidates.into_iter().find(fits)?;
        self.map_from(start, size)
    }

    /// One stretch of addresses a pool, as large as any card.
    fn reserve_addresses(&mut self, pool: Pool) {
        let address = self.next_address.next_multiple_of(STRETCH);
        self.next_address = address + STRETCH;
        let block = self.new_block(address, STRETCH / 2, pool, State::Unmapped);
        self.unmapped.entry(pool).or_default().insert((address, block));
    }

    fn free_before(&self, block: usize) -> Option<usize> {
        self.blocks[block].before.filter(|before| self.blocks[*before].state == State::Free)
    }

    /// What could be had from here on: a free block before, the addresses themselves, and what follows.
    fn room_at(&self, block: usize) -> u64 {
        let mut room = self.free_before(block).map_or(0, |before| self.blocks[before].size);
        let mut next = Some(block);
        while let Some(block) = next.filter(|block| self.blocks[*block].state != State::Used) {
            room += self.blocks[block].size;
            next = self.blocks[block].after;
        }
        room
    }

    fn map_from(&mut self, start: usize, size: u64) -> Option<usize> {
        let mut taken = match self.free_before(start) {
            Some(before) => before,
            None => self.map(start, size)?,
        };
        self.delist(taken);
        while self.blocks[taken].size < size {
            let next = self.blocks[taken].after?;
            let wanted = size - self.blocks[taken].size;
            let next = if self.blocks[next].state == State::Unmapped { self.map(next, wanted)? } else { next };
            self.delist(next);
            self.absorb(taken, next);
        }
        taken = self.join_before(taken);
        Some(taken)
    }

    fn join_before(&mut self, block: usize) -> usize {
        let Some(before) = self.free_before(block) else { return block };
        self.delist(before);
        self.absorb(before, block);
        before
    }

    /// Memory behind the first addresses of a block without: whole pages.
    fn map(&mut self, block: usize, wanted: u64) -> Option<usize> {
        let Block { address, size, pool, .. } = self.blocks[block];
        let bytes = wanted.next_multiple_of(Self::page_of(pool)).min(size);
        if !self.charge(bytes) {
            return None;
        }
        let unmapped = self.unmapped.entry(pool).or_default();
        unmapped.remove(&(address, block));
        if bytes < size {
            let rest = self.insert_after(block, bytes, State::Unmapped);
            self.unmapped.entry(pool).or_default().insert((address + bytes, rest));
        }
        self.blocks[block].state = State::Free;
        self.enlist(block);
        Some(block)
    }

    fn unmap_pages_of(&mut self, block: usize) {
        let Block { address, size, pool, .. } = self.blocks[block];
        let (page, base) = (Self::page_of(pool), address & !(STRETCH - 1));
        let start = base + (address - base).next_multiple_of(page);
        let end = base + (address + size - base) / page * page;
        if start >= end {
            return;
        }
        self.delist(block);
        self.reserved -= end - start;
        let middle = if start > address { self.insert_after(block, start - address, State::Free) } else { block };
        if end < address + size {
            let tail = self.insert_after(middle, end - start, State::Free);
            self.enlist(tail);
        }
        self.blocks[middle].state = State::Unmapped;
        self.unmapped.entry(pool).or_default().insert((start, middle));
        if middle != block {
            self.enlist(block);
        }
    }
}

#[cfg(test)]
mod tests {
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
}
