//! Addresses for buffers whose lifetimes are known: several greedy orders are tried and the tightest is kept; where
//! buffers are few and gaps remain, a search follows.

mod exact;

use super::lifetimes::Lifetime;
use crate::graph::Space;

/// Offsets of all buffers, and the end of the highest.
pub(super) struct Placement {
    pub offsets: Vec<usize>,
    pub end: usize,
}

/// A packing this near to the bytes alive at the peak, which no packing can beat, is not improved further: one part
/// in so many.
const GOOD_ENOUGH: usize = 1024;

/// Packs the buffers into `most` bytes; stops trying when one order is good enough. `None` if none of them is enough.
pub(super) fn pack(buffers: &[Lifetime], most: usize) -> Option<Placement> {
    let floor = live_peak(buffers).0;
    if floor > most {
        return None;
    }
    let spare = if exact::is_small(buffers) { 0 } else { floor / GOOD_ENOUGH };
    // What is good enough ends the search, fitting or not: the bound must not change which packing is found.
    let bound = if most - floor <= spare { usize::MAX } else { most.saturating_add(1) };
    let mut best: Option<Placement> = None;
    for rank in RANKS {
        let mut order: Vec<usize> = (0..buffers.len()).collect();
        order.sort_by_cached_key(|&i| rank(&buffers[i]));
        for fit in [Fit::Best, Fit::First] {
            let end = best.as_ref().map_or(bound, |best| best.end);
            best = place_in_order(buffers, &order, fit, end).or(best);
            if let Some(good) = best.take_if(|b| b.end - floor <= spare) {
                return Some(good).filter(|good| good.end <= most);
            }
        }
    }
    exact::within(buffers, floor).or(best).filter(|best| best.end <= most)
}

/// Every buffer at its own address: what memory would be without sharing. `None` beyond `most` bytes.
pub(super) fn side_by_side(buffers: &[Lifetime], most: usize) -> Option<Placement> {
    let mut end = 0;
    let mut next = |b: &Lifetime| {
        end += b.bytes;
        end - b.bytes
    };
    let offsets = buffers.iter().map(&mut next).collect();
    Some(Placement { offsets, end }).filter(|_| end <= most)
}

type Rank = fn(&Lifetime) -> (i128, i128, usize);

/// Large first; large and long first; long first; in order of birth.
const RANKS: [Rank; 4] = [
    |b| (-(b.bytes as i128), -((b.last - b.first) as i128), b.first),
    |b| (-(b.bytes as i128 * (b.last - b.first + 1) as i128), -(b.bytes as i128), b.first),
    |b| (-((b.last - b.first) as i128), -(b.bytes as i128), b.first),
    |b| (b.first as i128, -(b.bytes as i128), b.last),
];

#[derive(Clone, Copy, PartialEq)]
enum Fit {
    /// The smallest gap that holds it.
    Best,
    /// The lowest gap that holds it.
    First,
}

/// `None` as soon as something would not end before `bound`.
fn place_in_order(buffers: &[Lifetime], order: &[usize], fit: Fit, bound: usize) -> Option<Placement> {
    let mut offsets = vec![0; buffers.len()];
    let mut shelf = Shelf::new(buffers);
    let mut end = 0;
    for &i in order.iter().filter(|&&i| buffers[i].bytes > 0) {
        let buffer = &buffers[i];
        offsets[i] = find_gap(shelf.candidates(buffer), buffer, fit);
        let stop = offsets[i] + buffer.bytes;
        if stop >= bound {
            return None;
        }
        end = end.max(stop);
        shelf.insert(Placed::new(buffer, offsets[i]));
    }
    Some(Placement { offsets, end })
}

#[derive(Clone, Copy)]
struct Placed {
    start: usize,
    end: usize,
    first: u32,
    last: u32,
}

impl Placed {
    fn new(buffer: &Lifetime, start: usize) -> Placed {
        // Ticks count nodes, whose numbers are as wide.
        Placed { start, end: start + buffer.bytes, first: buffer.first as u32, last: buffer.last as u32 }
    }
}

/// What is placed already: all of it, and again by stretches of time. Most buffers live for a few ticks only and have to
/// look at one stretch instead of everything.
struct Shelf {
    all: ByAddress,
    stretches: Vec<ByAddress>,
}

/// Ticks in a stretch.
const STRETCH: usize = 64;

impl Shelf {
    fn new(buffers: &[Lifetime]) -> Shelf {
        let ticks = buffers.iter().map(|b| b.last + 1).max().unwrap_or(0);
        Shelf { all: ByAddress::default(), stretches: vec![ByAddress::default(); ticks.div_ceil(STRETCH)] }
    }

    /// Contains at least everything placed that lives at the same time as `buffer`.
    fn candidates(&mut self, buffer: &Lifetime) -> &[Placed] {
        match buffer.first / STRETCH == buffer.last / STRETCH {
            true => self.stretches[buffer.first / STRETCH].sorted(),
            false => self.all.sorted(),
        }
    }

    fn insert(&mut self, placed: Placed) {
        let stretches = &mut self.stretches[placed.first as usize / STRETCH..=placed.last as usize / STRETCH];
        stretches.iter_mut().chain([&mut self.all]).for_each(|list| list.placed.push(placed));
    }
}

/// Placed buffers from low to high, but for those that came since somebody looked. Many come before anybody looks: what
/// lives long is in many stretches, and is mostly placed before what lives short.
#[derive(Clone, Default)]
struct ByAddress {
    placed: Vec<Placed>,
    sorted: usize,
}

impl ByAddress {
    fn sorted(&mut self) -> &[Placed] {
        match self.placed.len() - self.sorted {
            0 => {}
            1 => self.put_in_last(),
            // Takes what is in order already as it is.
            _ => self.placed.sort_by_key(|placed| placed.start),
        }
        self.sorted = self.placed.len();
        &self.placed
    }

    fn put_in_last(&mut self) {
        let Some((last, before)) = self.placed.split_last() else { return };
        let at = before.partition_point(|placed| placed.start < last.start);
        self.placed[at..].rotate_right(1);
    }
}

/// Walks the placed buffers that live at the same time, from low to high, and looks at the gaps between them.
fn find_gap(placed: &[Placed], buffer: &Lifetime, fit: Fit) -> usize {
    let (mut free_from, mut best) = (0, None);
    let (first, last) = (buffer.first as u32, buffer.last as u32);
    for other in placed.iter().filter(|p| p.last >= first && p.first <= last) {
        if other.start >= free_from + buffer.bytes {
            let gap = other.start - free_from;
            if fit == Fit::First {
                return free_from;
            }
            if best.is_none_or(|(smallest, _)| gap < smallest) {
                best = Some((gap, free_from));
            }
        }
        free_from = free_from.max(other.end);
    }
    best.map_or(free_from, |(_, offset)| offset)
}

/// The most bytes alive at one tick, and the first tick where that is.
pub(super) fn live_peak(buffers: &[Lifetime]) -> (usize, usize) {
    peak_of(buffers.iter())
}

/// The same of what lies on the device.
pub(super) fn device_peak(buffers: &[Lifetime]) -> (usize, usize) {
    peak_of(buffers.iter().filter(|buffer| buffer.space == Space::Device))
}

fn peak_of<'b>(buffers: impl Iterator<Item = &'b Lifetime> + Clone) -> (usize, usize) {
    let ticks = buffers.clone().map(|b| b.last + 1).max().unwrap_or(0);
    // All of them together can be counted.
    let mut change = vec![0isize; ticks + 1];
    for buffer in buffers {
        change[buffer.first] += buffer.bytes as isize;
        change[buffer.last + 1] -= buffer.bytes as isize;
    }
    let (mut live, mut peak) = (0, (0, 0));
    for (tick, delta) in change.into_iter().enumerate() {
        live += delta;
        if live as usize > peak.0 {
            peak = (live as usize, tick);
        }
    }
    peak
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Component, NodeId, Space};
    use crate::ops::SampleRng;
    use crate::plan::Owner;

    fn lifetime(bytes: usize, first: usize, last: usize) -> Lifetime {
        let (owner, component) = (Owner::Workspace(NodeId(0)), Component::Activations);
        Lifetime { owner, bytes, first, last, component, space: Space::Device }
    }

    fn overlapping(buffers: &[Lifetime], offsets: &[usize]) -> Option<(usize, usize)> {
        let pairs = (0..buffers.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
        pairs.into_iter().find(|&(i, j)| {
            let (a, b) = (&buffers[i], &buffers[j]);
            let same_time = a.first <= b.last && b.first <= a.last;
            same_time && offsets[i] < offsets[j] + b.bytes && offsets[j] < offsets[i] + a.bytes
        })
    }

    /// The lifetimes of a deep transformer's step: per layer some saved values, which the backward pass reads from the
    /// last layer to the first, and around every node short-lived results and workspaces.
    fn transformer(layers: usize, rng: &mut SampleRng) -> Vec<Lifetime> {
        const NODES: usize = 30;
        const UNIT: usize = 1 << 16;
        let ticks = 3 * layers * NODES;
        let mut buffers = Vec::new();
        for layer in 0..layers {
            for node in 0..NODES {
                let (forward, mirror) = (layer * NODES + node, ticks - 1 - 2 * (layer * NODES + node));
                let wide = [1, 1, 3, 4][rng.size(0, 3)] * UNIT;
                if node % 2 == 0 {
                    buffers.push(lifetime(wide, forward, mirror));
                } else {
                    buffers.push(lifetime(wide, forward, forward + rng.size(1, 3)));
                }
                for at in [forward, mirror, mirror - 1] {
                    buffers.push(lifetime(64 * rng.size(1, 3000), at, at));
                }
                buffers.push(lifetime(wide, mirror - 1, (mirror + rng.size(0, 5)).min(ticks - 1)));
                buffers.push(lifetime(64 * rng.size(1, 40), mirror - 1, mirror));
            }
        }
        buffers
    }

    #[test]
    fn a_deep_transformer_packs_tightly() {
        let buffers = transformer(28, &mut SampleRng::new(7));
        let start = std::time::Instant::now();
        let placement = pack(&buffers, usize::MAX).unwrap();
        let (floor, took) = (live_peak(&buffers).0, start.elapsed());
        let lost = 100.0 * (placement.end - floor) as f64 / placement.end as f64;
        println!("{} buffers in {took:?}, {lost:.3} % lost to gaps", buffers.len());
        assert_eq!(overlapping(&buffers, &placement.offsets), None);
        assert!(lost < 2.0, "{lost:.2} % lost to gaps");
    }

    #[test]
    fn looking_at_one_stretch_changes_no_address() {
        let mut rng = SampleRng::new(3);
        for _ in 0..20 {
            let mut random = || {
                let first = rng.size(0, 400);
                lifetime(64 * rng.size(0, 20), first, first + rng.size(0, 9) * rng.size(0, 9))
            };
            let buffers: Vec<Lifetime> = (0..300).map(|_| random()).collect();
            let order: Vec<usize> = (0..buffers.len()).collect();
            for fit in [Fit::Best, Fit::First] {
                let mut shelf = Shelf::new(&buffers);
                let found = place_in_order(&buffers, &order, fit, usize::MAX).unwrap();
                assert!(place_in_order(&buffers, &order, fit, found.end).is_none(), "no better than it is");
                for (buffer, &offset) in buffers.iter().zip(&found.offsets).filter(|(b, _)| b.bytes > 0) {
                    assert_eq!(find_gap(shelf.all.sorted(), buffer, fit), offset);
                    shelf.insert(Placed::new(buffer, offset));
                }
            }
        }
    }

    #[test]
    fn few_buffers_pack_without_a_gap() {
        let mut rng = SampleRng::new(11);
        for _ in 0..200 {
            // Cut a full rectangle of ticks and bytes into buffers: it can be packed again without a gap.
            let mut buffers = vec![lifetime(64 * 32, 0, 15)];
            for _ in 0..9 {
                let at = rng.size(0, buffers.len() - 1);
                let Lifetime { bytes, first, last, .. } = buffers[at];
                if rng.size(0, 1) == 0 && last > first {
                    let cut = rng.size(first, last - 1);
                    buffers[at] = lifetime(bytes, first, cut);
                    buffers.push(lifetime(bytes, cut + 1, last));
                } else if bytes > 64 {
                    let cut = 64 * rng.size(1, bytes / 64 - 1);
                    buffers[at] = lifetime(cut, first, last);
                    buffers.push(lifetime(bytes - cut, first, last));
                }
            }
            let placement = pack(&buffers, usize::MAX).unwrap();
            assert_eq!(overlapping(&buffers, &placement.offsets), None);
            assert_eq!(placement.end, 64 * 32, "{buffers:?}");
        }
    }

    #[test]
    fn nothing_packs_into_nothing() {
        assert_eq!(pack(&[], 0).unwrap().end, 0);
        assert_eq!(pack(&[lifetime(0, 0, 3)], 0).unwrap().end, 0);
    }

    /// Also one within what is good enough, which ends the search.
    #[test]
    fn a_bound_changes_no_address_and_what_needs_more_is_not_placed() {
        let mut rng = SampleRng::new(5);
        for layers in 1..8 {
            let buffers = transformer(layers, &mut rng);
            let (floor, free) = (live_peak(&buffers).0, pack(&buffers, usize::MAX).unwrap());
            for most in [free.end, free.end + 1, free.end + floor / 100] {
                let bound = pack(&buffers, most).unwrap();
                assert_eq!((bound.end, &bound.offsets), (free.end, &free.offsets));
            }
            assert!(pack(&buffers, free.end - 1).is_none() && pack(&buffers, floor - 1).is_none());
            let apart = side_by_side(&buffers, usize::MAX).unwrap().end;
            assert!(side_by_side(&buffers, apart).is_some() && side_by_side(&buffers, apart - 1).is_none());
        }
    }
}
