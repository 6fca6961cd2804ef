//! Segments: taken from the driver, given back whole.

use super::{Addresses, Allocator, Block, Handle, PAGE, Pool, SMALL_SEGMENT, State, segment_size};

/// Far above any card's, and far from the end of numbers.
const MOST_ADDRESS: u64 = 1 << 60;

/// A segment that was there before the history begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    pub address: u64,
    pub size: u64,
    pub stream: u64,
    /// Address and size of what is used in it, in order.
    pub used: Vec<(u64, u64)>,
}

impl Allocator {
    pub(super) fn new_segment(&mut self, pool: Pool, size: u64) -> Option<usize> {
        let bytes = segment_size(size);
        if !self.charge(bytes) {
            return None;
        }
        let address = self.new_address(bytes);
        Some(self.new_segment_at(address, bytes, pool, State::Free))
    }

    pub(super) fn new_segment_at(&mut self, address: u64, size: u64, pool: Pool, state: State) -> usize {
        let expandable = self.settings.expandable;
        self.new_block(Block { address, size, pool, state, expandable, before: None, after: None })
    }

    pub(super) fn new_address(&mut self, bytes: u64) -> u64 {
        let rising = self.next_address;
        self.next_address = self.next_address.wrapping_add(bytes.next_multiple_of(PAGE)) % MOST_ADDRESS;
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

    /// Puts a segment in place as it was found: handles of what is used in it, in order.
    pub(crate) fn put_earlier(&mut self, earlier: &Earlier) -> Vec<Handle> {
        let pool = Pool { stream: earlier.stream, small: earlier.size <= SMALL_SEGMENT };
        self.reserved = self.reserved.saturating_add(earlier.size);
        self.peak_reserved = self.peak_reserved.max(self.reserved);
        let mut rest = self.new_segment_at(earlier.address, earlier.size, pool, State::Free);
        let mut handles = Vec::new();
        for (address, size) in &earlier.used {
            let start = self.blocks[rest].address;
            if *address > start {
                let next = self.insert_after(rest, address - start, State::Free);
                self.enlist(rest);
                rest = next;
            }
            let next =
                if *size < self.blocks[rest].size { Some(self.insert_after(rest, *size, State::Free)) } else { None };
            self.hand_out(rest);
            handles.push(Handle(rest));
            let Some(next) = next else { return handles };
            rest = next;
        }
        self.enlist(rest);
        handles
    }

    fn is_whole_segment(&self, block: usize) -> bool {
        self.blocks[block].before.is_none() && self.blocks[block].after.is_none()
    }

    fn release(&mut self, block: usize) {
        self.delist(block);
        self.reserved -= self.blocks[block].size;
        self.unused.push(block);
    }

    /// Releases what is cached: segments without a used block; of expandable ones all whole pages that are free.
    pub(crate) fn release_cached(&mut self) {
        let mut all: Vec<(Pool, usize)> = Vec::new();
        for (pool, blocks) in &self.free {
            all.extend(blocks.iter().map(|(_, _, block)| (*pool, *block)));
        }
        // Hash maps have no order; results must.
        all.sort_unstable_by_key(|(pool, block)| (*pool, self.blocks[*block].size, self.blocks[*block].address));
        for (_, block) in all {
            if self.blocks[block].expandable {
                self.unmap_pages_of(block);
            } else if self.is_whole_segment(block) {
                self.release(block);
            }
        }
    }

    /// Releases the one segment that starts here, if nothing in it is used.
    pub(crate) fn release_at(&mut self, address: u64) {
        let mut all =
            self.free.values().flatten().filter(|(_, start, _)| *start == address).map(|(_, _, block)| *block);
        if let Some(block) = all.find(|block| self.is_whole_segment(*block)) {
            self.release(block);
        }
    }

    /// With `max_split_size`: before everything is released, cached blocks above that size are, as few as serve.
    pub(super) fn release_oversized(&mut self, pool: Pool, size: u64) -> bool {
        let Some(limit) = self.settings.max_split_bytes else { return false };
        let wanted = size.max(limit);
        let free = |all: &Allocator| all.free.get(&pool).cloned().unwrap_or_default();
        if let Some((_, _, block)) = free(self).range((wanted, 0, 0)..).next() {
            if self.is_whole_segment(*block) {
                self.release(*block);
            }
            return true;
        }
        let mut released = 0;
        for (bytes, _, block) in free(self).into_iter().rev().take_while(|(bytes, ..)| *bytes >= limit) {
            if released >= wanted {
                break;
            }
            released += bytes;
            self.release(block);
        }
        released >= wanted
    }
}
