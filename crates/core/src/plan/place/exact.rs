//! Placement without a gap at the peak, by search, for few buffers.
//!
//! Any layout can be built from low to high addresses by dropping one buffer after the other onto what lives at the same
//! time. So the search is over the order of dropping; a tick that could not hold all that is still to come ends a branch.

use super::Placement;
use crate::plan::lifetimes::Lifetime;

/// Buffers up to which a search is worth starting, and steps after which it gives up.
const MOST_BUFFERS: usize = 40;
const MOST_STEPS: usize = 4_000;

/// Whether there are few enough to search.
pub(super) fn is_small(buffers: &[Lifetime]) -> bool {
    buffers.iter().filter(|b| b.bytes > 0).count() <= MOST_BUFFERS
}

/// A placement that ends at or below `limit`, if one is found.
pub(super) fn within(buffers: &[Lifetime], limit: usize) -> Option<Placement> {
    if !is_small(buffers) {
        return None;
    }
    let sized: Vec<usize> = (0..buffers.len()).filter(|&i| buffers[i].bytes > 0).collect();
    let mut search = PlacementSearch::new(buffers, sized, limit);
    let found = search.place_rest(0);
    found.then(|| {
        let end = (0..buffers.len()).map(|i| search.offsets[i] + buffers[i].bytes).max().unwrap_or(0);
        Placement { offsets: search.offsets, end }
    })
}

struct PlacementSearch<'b> {
    buffers: &'b [Lifetime],
    limit: usize,
    /// Buffers still to be dropped, and all offsets given.
    rest: Vec<usize>,
    offsets: Vec<usize>,
    /// By tick: where the next buffer would come to lie, and the bytes still to come.
    height: Vec<usize>,
    to_come: Vec<usize>,
    steps: usize,
}

impl<'b> PlacementSearch<'b> {
    fn new(buffers: &'b [Lifetime], mut rest: Vec<usize>, limit: usize) -> PlacementSearch<'b> {
        let ticks = buffers.iter().map(|b| b.last + 1).max().unwrap_or(0);
        let mut to_come = vec![0; ticks];
        for b in buffers {
            to_come[b.first..=b.last].iter_mut().for_each(|bytes| *bytes += b.bytes);
        }
        rest.sort_by_key(|&i| std::cmp::Reverse((buffers[i].last - buffers[i].first, buffers[i].bytes)));
        PlacementSearch {
            buffers,
            limit,
            rest,
            offsets: vec![0; buffers.len()],
            height: vec![0; ticks],
            to_come,
            steps: 0,
        }
    }

    /// Drops all remaining buffers, none below `floor`: from low to high addresses every layout comes once.
    fn place_rest(&mut self, floor: usize) -> bool {
        if self.rest.is_empty() {
            return true;
        }
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return false;
        }
        let mut next: Vec<(usize, usize)> = self.rest.iter().map(|&i| (self.landing(i), i)).collect();
        next.retain(|&(at, _)| at >= floor);
        next.sort_by_key(|&(at, _)| at);
        next.into_iter().any(|(at, buffer)| self.drop_at(at, buffer))
    }

    fn landing(&self, buffer: usize) -> usize {
        let b = &self.buffers[buffer];
        self.height[b.first..=b.last].iter().copied().max().unwrap_or(0)
    }

    fn drop_at(&mut self, at: usize, buffer: usize) -> bool {
        let (b, end) = (&self.buffers[buffer], at + self.buffers[buffer].bytes);
        let fits = (b.first..=b.last).all(|tick| end + self.to_come[tick] - b.bytes <= self.limit);
        if !fits {
            return false;
        }
        let before: Vec<usize> = self.height[b.first..=b.last].to_vec();
        let place = self.rest.iter().position(|&i| i == buffer).unwrap_or(0);
        self.rest.remove(place);
        self.height[b.first..=b.last].fill(end);
        self.to_come[b.first..=b.last].iter_mut().for_each(|bytes| *bytes -= b.bytes);
        self.offsets[buffer] = at;
        if self.place_rest(at) {
            return true;
        }
        self.to_come[b.first..=b.last].iter_mut().for_each(|bytes| *bytes += b.bytes);
        self.height[b.first..=b.last].copy_from_slice(&before);
        self.rest.insert(place, buffer);
        false
    }
}
