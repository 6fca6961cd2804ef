//! Expandable segments: addresses are taken once, memory behind them comes and goes by pages.

use super::{Allocator, Block, LARGE_SEGMENT, Pool, SMALL_SEGMENT, State};

/// Addresses of one expandable segment start at a multiple of this where they were not recorded.
const STRETCH: u64 = 1 << 44;

impl Allocator {
    fn page_of(pool: Pool) -> u64 {
        if pool.small { SMALL_SEGMENT } else { LARGE_SEGMENT }
    }

    /// The size of a block, and of the addresses right behind it that have no memory yet.
    pub(super) fn size_with_growth(&self, block: usize) -> u64 {
        let after = self.blocks[block].after.filter(|after| self.blocks[*after].state == State::Unmapped);
        self.blocks[block].size + after.map_or(0, |after| self.blocks[after].size)
    }

    /// Maps memory behind the lowest addresses that have none, joined with a free block right before them.
    pub(super) fn expand(&mut self, pool: Pool, size: u64) -> Option<usize> {
        let start = self.place_to_grow(pool, size).unwrap_or_else(|| self.reserve_addresses(pool));
        self.map_from(start, size)
    }

    fn place_to_grow(&self, pool: Pool, size: u64) -> Option<usize> {
        let unmapped = self.unmapped.get(&pool)?.iter().map(|(_, block)| *block);
        let mut starts = unmapped.map(|block| self.free_before(block).unwrap_or(block));
        starts.find(|start| self.room_from(*start, size))
    }

    /// One stretch of addresses, larger than any card.
    fn reserve_addresses(&mut self, pool: Pool) -> usize {
        let address = self.next_address.next_multiple_of(STRETCH);
        self.next_address = (address + STRETCH) % (STRETCH << 12);
        let address = match &mut self.addresses {
            super::Addresses::Recorded(recorded) => recorded.pop_front().unwrap_or(address),
            _ => address,
        };
        let block = self.new_segment_at(address, STRETCH / 2, pool, State::Unmapped);
        self.enlist(block);
        block
    }

    fn free_before(&self, block: usize) -> Option<usize> {
        self.blocks[block].before.filter(|before| self.blocks[*before].state == State::Free)
    }

    /// Whether so much lies from here on that nobody uses.
    fn room_from(&self, start: usize, size: u64) -> bool {
        let mut room = 0;
        let mut next = Some(start);
        while let Some(block) = next.filter(|block| room < size && self.blocks[*block].state != State::Used) {
            room += self.blocks[block].size;
            next = self.blocks[block].after;
        }
        room >= size
    }

    fn map_from(&mut self, start: usize, size: u64) -> Option<usize> {
        let mut taken = start;
        if self.blocks[taken].state == State::Unmapped {
            taken = self.map(taken, size)?;
        }
        while self.blocks[taken].size < size {
            let next = self.blocks[taken].after?;
            taken = self.map(next, size - self.blocks[taken].size)?;
        }
        self.delist(taken);
        Some(taken)
    }

    /// Memory behind the first addresses of a block without, in whole pages; joined with free neighbours.
    fn map(&mut self, block: usize, wanted: u64) -> Option<usize> {
        let Block { size, pool, .. } = self.blocks[block];
        let bytes = wanted.next_multiple_of(Self::page_of(pool)).min(size);
        if !self.charge(bytes) {
            return None;
        }
        self.delist(block);
        if bytes < size {
            let rest = self.insert_after(block, bytes, State::Unmapped);
            self.enlist(rest);
        }
        self.blocks[block].state = State::Free;
        let block = self.merge(block);
        self.enlist(block);
        Some(block)
    }

    /// Gives back whole pages inside a free block; addresses without any memory are given up.
    pub(super) fn unmap_pages_of(&mut self, block: usize) {
        let Block { address, size, pool, .. } = self.blocks[block];
        let (page, base) = (Self::page_of(pool), self.start_of_segment(block));
        let start = base + (address - base).next_multiple_of(page);
        let end = base + (address + size - base) / page * page;
        if start >= end {
            return;
        }
        self.delist(block);
        self.reserved -= end - start;
        let mut middle = block;
        if start > address {
            middle = self.insert_after(block, start - address, State::Free);
            self.enlist(block);
        }
        if end < address + size {
            let tail = self.insert_after(middle, end - start, State::Free);
            self.enlist(tail);
        }
        self.blocks[middle].state = State::Unmapped;
        self.give_up_or_keep(middle);
    }

    fn give_up_or_keep(&mut self, unmapped: usize) {
        let block = self.merge(unmapped);
        if self.blocks[block].before.is_none() && self.blocks[block].after.is_none() {
            self.unused.push(block);
        } else {
            self.enlist(block);
        }
    }

    fn start_of_segment(&self, block: usize) -> u64 {
        let mut first = block;
        while let Some(before) = self.blocks[first].before {
            first = before;
        }
        self.blocks[first].address
    }
}
