//! Addresses for buffers whose lifetimes are known: several greedy orders are tried and the tightest is kept.

use super::lifetimes::Lifetime;

/// Offsets of all buffers, and the end of the highest.
pub struct Placement {
    pub offsets: Vec<usize>,
    pub end: usize,
}

/// Packs the buffers; stops early when the bytes alive at the peak are met exactly, since nothing can be better.
pub fn pack(buffers: &[Lifetime]) -> Placement {
    let floor = live_peak(buffers).0;
    let mut best: Option<Placement> = None;
    for rank in RANKS {
        let mut order: Vec<usize> = (0..buffers.len()).collect();
        order.sort_by_key(|&i| rank(&buffers[i]));
        for fit in [Fit::Best, Fit::First] {
            let candidate = place_in_order(buffers, &order, fit);
            if best.as_ref().is_none_or(|b| candidate.end < b.end) {
                best = Some(candidate);
            }
            if best.as_ref().is_some_and(|b| b.end == floor) {
                return best.unwrap_or_else(|| unreachable!("just set"));
            }
        }
    }
    best.unwrap_or(Placement { offsets: Vec::new(), end: 0 })
}

/// Every buffer at its own address: what memory would be without sharing.
pub fn side_by_side(buffers: &[Lifetime]) -> Placement {
    let mut end = 0;
    let mut next = |b: &Lifetime| {
        end += b.bytes;
        end - b.bytes
    };
    let offsets = buffers.iter().map(&mut next).collect();
    Placement { offsets, end }
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

fn place_in_order(buffers: &[Lifetime], order: &[usize], fit: Fit) -> Placement {
    let mut offsets = vec![0; buffers.len()];
    // Placed buffers as (offset, end, first, last), by offset.
    let mut placed: Vec<(usize, usize, usize, usize)> = Vec::with_capacity(buffers.len());
    let mut end = 0;
    for &i in order {
        let buffer = &buffers[i];
        let offset = if buffer.bytes == 0 { 0 } else { find_gap(&placed, buffer, fit) };
        offsets[i] = offset;
        end = end.max(offset + buffer.bytes);
        if buffer.bytes > 0 {
            let at = placed.partition_point(|p| p.0 < offset);
            placed.insert(at, (offset, offset + buffer.bytes, buffer.first, buffer.last));
        }
    }
    Placement { offsets, end }
}

/// Walks the placed buffers that live at the same time, from low to high, and looks at the gaps between them.
fn find_gap(placed: &[(usize, usize, usize, usize)], buffer: &Lifetime, fit: Fit) -> usize {
    let (mut free_from, mut best) = (0, None);
    for &(start, end, first, last) in placed {
        if last < buffer.first || first > buffer.last {
            continue;
        }
        if start >= free_from + buffer.bytes {
            let gap = start - free_from;
            if fit == Fit::First {
                return free_from;
            }
            if best.is_none_or(|(smallest, _)| gap < smallest) {
                best = Some((gap, free_from));
            }
        }
        free_from = free_from.max(end);
    }
    best.map_or(free_from, |(_, offset)| offset)
}

/// The most bytes alive at one tick, and the first tick where that is.
pub fn live_peak(buffers: &[Lifetime]) -> (usize, usize) {
    let ticks = buffers.iter().map(|b| b.last + 1).max().unwrap_or(0);
    let mut change = vec![0i128; ticks + 1];
    for buffer in buffers {
        change[buffer.first] += buffer.bytes as i128;
        change[buffer.last + 1] -= buffer.bytes as i128;
    }
    let (mut live, mut peak) = (0i128, (0, 0));
    for (tick, delta) in change.into_iter().enumerate() {
        live += delta;
        if live as usize > peak.0 {
            peak = (live as usize, tick);
        }
    }
    peak
}
