//! PyTorch's caching allocator, as a simulator: the same rounding, pools, best fit, splitting, merging and releasing,
//! so that a recorded program can be replayed under another limit, other addresses or other settings.

mod expandable;
mod segments;
#[cfg(test)]
mod tests;

pub use segments::Earlier;

use crate::settings::Settings;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    pool: Pool,
    state: State,
    /// Whether it lies in a segment that grows.
    expandable: bool,
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
    /// Places in `blocks` that nothing lies at any more.
    unused: Vec<usize>,
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

/// Up to the next unit; with divisions up to the next of so many steps between two powers of two.
fn rounded(requested: u64, divisions: u64) -> u64 {
    if divisions <= 1 || requested <= UNIT * divisions || requested.is_power_of_two() {
        return requested.max(1).saturating_add(UNIT - 1) / UNIT * UNIT;
    }
    let floor = 1 << requested.ilog2();
    match floor >> divisions.ilog2() {
        0 => floor << 1,
        step => requested.saturating_add(step - 1) / step * step,
    }
}

fn segment_size(size: u64) -> u64 {
    if size <= SMALL {
        SMALL_SEGMENT
    } else if size < OWN_SEGMENT {
        LARGE_SEGMENT
    } else {
        size.saturating_add(PAGE - 1) / PAGE * PAGE
    }
}

impl Allocator {
    pub(crate) fn new(settings: Settings, limit: u64, addresses: Addresses) -> Allocator {
        Allocator {
            settings,
            limit,
            addresses,
            next_address: 1 << 44,
            blocks: Vec::new(),
            unused: Vec::new(),
            free: HashMap::new(),
            unmapped: HashMap::new(),
            allocated: 0,
            reserved: 0,
            peak_allocated: 0,
            peak_reserved: 0,
            retries: 0,
        }
    }

    /// The addresses of the segments that the next request makes, where they are known.
    pub(crate) fn expect_segments_at(&mut self, addresses: VecDeque<u64>) {
        self.addresses = Addresses::Recorded(addresses);
    }

    /// Serves a request as PyTorch would: from a free block, from a new segment, from one after a release.
    pub(crate) fn malloc(&mut self, requested: u64, stream: u64) -> Result<Handle, OutOfMemory> {
        let size = rounded(requested, self.settings.divisions(requested));
        let pool = Pool { stream, small: size <= SMALL };
        let found = self.best_fit(pool, size).or_else(|| self.grow(pool, size));
        let found = found.or_else(|| if self.release_oversized(pool, size) { self.grow(pool, size) } else { None });
        let found = found.or_else(|| {
            self.retries += 1;
            self.release_cached();
            self.grow(pool, size)
        });
        let block = found.ok_or(OutOfMemory { requested, segment: segment_size(size) })?;
        self.split(block, size);
        self.hand_out(block);
        Ok(Handle(block))
    }

    fn hand_out(&mut self, block: usize) {
        let block = &mut self.blocks[block];
        block.state = State::Used;
        self.allocated += block.size;
        self.peak_allocated = self.peak_allocated.max(self.allocated);
    }

    pub(crate) fn address(&self, handle: Handle) -> u64 {
        self.blocks[handle.0].address
    }

    /// Of the block: at least what was requested.
    pub(crate) fn size(&self, handle: Handle) -> u64 {
        self.blocks[handle.0].size
    }

    pub(crate) fn free(&mut self, handle: Handle) {
        let block = handle.0;
        self.allocated -= self.blocks[block].size;
        self.blocks[block].state = State::Free;
        let block = self.merge(block);
        self.enlist(block);
    }

    // Blocks

    fn new_block(&mut self, block: Block) -> usize {
        if let Some(place) = self.unused.pop() {
            self.blocks[place] = block;
            return place;
        }
        self.blocks.push(block);
        self.blocks.len() - 1
    }

    fn enlist(&mut self, block: usize) {
        let Block { size, address, pool, state, .. } = self.blocks[block];
        if state == State::Unmapped {
            self.unmapped.entry(pool).or_default().insert((address, block));
        } else {
            self.free.entry(pool).or_default().insert((size, address, block));
        }
    }

    fn delist(&mut self, block: usize) {
        let Block { size, address, pool, state, .. } = self.blocks[block];
        if state == State::Unmapped {
            self.unmapped.entry(pool).or_default().remove(&(address, block));
        } else {
            self.free.entry(pool).or_default().remove(&(size, address, block));
        }
    }

    /// The smallest free block that serves; of equal ones the lowest. A block at the end of what is mapped counts with
    /// the addresses that it can grow into.
    fn best_fit(&mut self, pool: Pool, size: u64) -> Option<usize> {
        let mut candidates = self.free.get(&pool)?.range((size, 0, 0)..).map(|(_, _, block)| *block);
        let mut found = candidates.next()?;
        if self.settings.expandable {
            for next in candidates {
                if !self.blocks[found].expandable || self.size_with_growth(next) >= self.size_with_growth(found) {
                    break;
                }
                found = next;
            }
        }
        if self.is_oversized(found, size) {
            return None;
        }
        self.delist(found);
        Some(found)
    }

    /// Whether a block may not serve this request: too large to be split, or to be wasted.
    fn is_oversized(&self, block: usize, size: u64) -> bool {
        let Some(limit) = self.settings.max_split_bytes else { return false };
        let found = self.blocks[block].size;
        if size < limit { found >= limit } else { found >= size + LARGE_SEGMENT }
    }

    fn splits(&self, block: usize, size: u64) -> bool {
        let rest = self.blocks[block].size - size;
        if self.blocks[block].pool.small || self.settings.expandable {
            return rest >= UNIT;
        }
        self.settings.max_split_bytes.is_none_or(|limit| size < limit) && rest > SMALL
    }

    fn split(&mut self, block: usize, size: u64) {
        if self.splits(block, size) {
            let rest = self.insert_after(block, size, State::Free);
            self.enlist(rest);
        }
    }

    /// Cuts a block at `size`; what is behind the cut becomes a block of its own.
    fn insert_after(&mut self, block: usize, size: u64, state: State) -> usize {
        let Block { address, size: whole, pool, after, expandable, .. } = self.blocks[block];
        let rest =
            Block { address: address + size, size: whole - size, pool, state, expandable, before: Some(block), after };
        let rest = self.new_block(rest);
        if let Some(after) = after {
            self.blocks[after].before = Some(rest);
        }
        self.blocks[block].after = Some(rest);
        self.blocks[block].size = size;
        rest
    }

    /// Joins a block with neighbours of the same state, and says which block that is then; it is on no list.
    fn merge(&mut self, mut block: usize) -> usize {
        let state = self.blocks[block].state;
        if let Some(before) = self.blocks[block].before.filter(|before| self.blocks[*before].state == state) {
            self.delist(before);
            self.absorb(before, block);
            block = before;
        }
        if let Some(after) = self.blocks[block].after.filter(|after| self.blocks[*after].state == state) {
            self.delist(after);
            self.absorb(block, after);
        }
        block
    }

    /// The first takes over the second, which lies behind it.
    fn absorb(&mut self, first: usize, second: usize) {
        let Block { size, after, .. } = self.blocks[second];
        self.blocks[first].size += size;
        self.blocks[first].after = after;
        if let Some(after) = after {
            self.blocks[after].before = Some(first);
        }
        self.unused.push(second);
    }

    fn charge(&mut self, bytes: u64) -> bool {
        let Some(reserved) = self.reserved.checked_add(bytes).filter(|sum| *sum <= self.limit) else { return false };
        self.reserved = reserved;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
        true
    }

    fn grow(&mut self, pool: Pool, size: u64) -> Option<usize> {
        if self.settings.expandable { self.expand(pool, size) } else { self.new_segment(pool, size) }
    }
}
