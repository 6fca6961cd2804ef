//! Where the driver puts memory. PyTorch breaks ties between equal blocks by address, so the order of addresses decides
//! which block serves a request, and by that what is reserved and, where a block is handed out whole, what is allocated.
//!
//! The rule was fitted to what one H200 with driver 580.159 said: addresses come in chunks of whole 32 MiB; the newest chunk
//! that has room serves, in it the smallest hole; a chunk without memory goes back; a new one lies as high as a hole between
//! chunks allows, which must be larger than the chunk. `tests::the_driver_s_own_addresses_come_out` replays recordings: it
//! guards the rule, other drivers may have another. What libraries take for themselves comes from the same chunks
//! (`memory::keep`): where a program's segments come to lie depends on when its first product and its first layer of cuDNN
//! run. `tools/ghost/gpu/loads.py` shows both on a card.

use std::collections::BTreeSet;

const MIB: usize = 1 << 20;
const CHUNK: usize = 32 * MIB;
/// A context's own chunks, inferred from where trainings got their segments (`ghost-segments.jsonl` under benches/runs):
/// nobody says them. An older one has some room. The second is the context's until the first kernel that draws no random
/// numbers, but for its end; then all of it is free, and a third chunk comes, of which the end is.
const OLDER: usize = 24 * MIB;
const APART: usize = 72 * MIB;
const CONTEXT: usize = 416 * MIB;
const CONTEXT_END: usize = 2 * MIB;
const KERNELS: usize = 512 * MIB;
const KERNELS_END: usize = 6 * MIB;

/// Addresses that came together and go together.
struct Chunk {
    start: usize,
    end: usize,
    /// Size and start of what is free.
    holes: BTreeSet<(usize, usize)>,
    /// The context's chunks stay.
    stays: bool,
}

impl Chunk {
    fn take(&mut self, bytes: usize) -> Option<usize> {
        let (size, start) = *self.holes.range((bytes, 0)..).next()?;
        self.holes.remove(&(size, start));
        if size > bytes {
            self.holes.insert((size - bytes, start + bytes));
        }
        Some(start)
    }

    fn give(&mut self, start: usize, bytes: usize) {
        let (mut from, mut to) = (start, start + bytes);
        let touching = self.holes.iter().filter(|(size, hole)| hole + size == from || *hole == to);
        for (size, hole) in touching.copied().collect::<Vec<_>>() {
            self.holes.remove(&(size, hole));
            (from, to) = (from.min(hole), to.max(hole + size));
        }
        self.holes.insert((to - from, from));
    }

    fn is_empty(&self) -> bool {
        self.holes.contains(&(self.end - self.start, self.start))
    }
}

/// All addresses between two ends.
pub(crate) struct Places {
    /// In the order in which they came.
    chunks: Vec<Chunk>,
    /// Start and end of what no chunk has, rising.
    between: Vec<(usize, usize)>,
}

impl Places {
    pub(crate) const fn nowhere() -> Places {
        Places { chunks: Vec::new(), between: Vec::new() }
    }

    /// As a new context leaves them.
    pub(crate) fn new(first: usize, end: usize) -> Places {
        let older = end - OLDER;
        let context = older - APART - CONTEXT;
        let chunk = |start, end, hole: (usize, usize)| Chunk { start, end, holes: [hole].into(), stays: true };
        let chunks = vec![
            chunk(older, older + OLDER, (OLDER, older)),
            chunk(context, context + CONTEXT, (CONTEXT_END, context + CONTEXT - CONTEXT_END)),
        ];
        Places { chunks, between: vec![(first, context)] }
    }

    pub(crate) fn is_nowhere(&self) -> bool {
        self.chunks.is_empty()
    }

    /// What the context kept for itself is free from here on, and what it needs for kernels is taken.
    pub(crate) fn settle(&mut self) {
        if let Some(context) = self.chunks.get_mut(1) {
            context.give(context.start, CONTEXT - CONTEXT_END);
        }
        if let Some(start) = self.new_chunk(KERNELS)
            && let Some(kernels) = self.chunks.last_mut()
        {
            kernels.give(start + KERNELS - KERNELS_END, KERNELS_END);
        }
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Option<usize> {
        self.chunks.iter_mut().rev().find_map(|chunk| chunk.take(bytes)).or_else(|| self.new_chunk(bytes))
    }

    fn new_chunk(&mut self, bytes: usize) -> Option<usize> {
        let size = bytes.checked_next_multiple_of(CHUNK)?;
        let hole = self.between.iter_mut().rev().find(|(start, end)| end - start > size)?;
        hole.1 -= size;
        let start = hole.1;
        let mut chunk = Chunk { start, end: start + size, holes: BTreeSet::new(), stays: false };
        if size > bytes {
            chunk.holes.insert((size - bytes, start + bytes));
        }
        self.chunks.push(chunk);
        Some(start)
    }

    pub(crate) fn give(&mut self, start: usize, bytes: usize) {
        let mut chunks = self.chunks.iter_mut();
        let Some(place) = chunks.position(|chunk| (chunk.start..chunk.end).contains(&start)) else { return };
        let chunk = &mut self.chunks[place];
        chunk.give(start, bytes);
        if chunk.is_empty() && !chunk.stays {
            let Chunk { start, end, .. } = self.chunks.remove(place);
            self.free_chunk(start, end);
        }
    }

    fn free_chunk(&mut self, mut from: usize, mut to: usize) {
        self.between.retain(|(start, end)| {
            let touches = *end == from || *start == to;
            if touches {
                (from, to) = (from.min(*start), to.max(*end));
            }
            !touches
        });
        let place = self.between.partition_point(|(start, _)| *start < from);
        self.between.insert(place, (from, to));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: usize = 1 << 40;

    /// What was free in the processes that `h200.txt` tells of.
    fn as_recorded() -> Places {
        let at = |mebibytes: isize| BASE.strict_add_signed(mebibytes * MIB as isize);
        let chunk = |start, end| Chunk {
            start: at(start),
            end: at(end),
            holes: [((end - start) as usize * MIB, at(start))].into(),
            stays: true,
        };
        let chunks = vec![chunk(496, 516), chunk(6, 422), chunk(0, 6)];
        Places { chunks, between: vec![(MIB, at(-506))] }
    }

    #[test]
    fn the_driver_s_own_addresses_come_out() {
        let mut places = as_recorded();
        let mut compared = 0;
        for line in include_str!("places/h200.txt").lines().filter(|line| !line.starts_with('#')) {
            let Some((what, size, place)) = read(line) else {
                places = as_recorded();
                continue;
            };
            if what == "-" {
                places.give(place, size);
            } else {
                assert_eq!(places.take(size), Some(place), "{compared}: {line}");
                compared += 1;
            }
        }
        assert_eq!(compared, 380);
    }

    fn read(line: &str) -> Option<(&str, usize, usize)> {
        let mut words = line.split(' ');
        let what = words.next()?;
        let size: usize = words.next()?.parse().ok()?;
        let place: isize = words.next()?.parse().ok()?;
        Some((what, size * MIB, BASE.strict_add_signed(place * MIB as isize)))
    }

    #[test]
    fn a_context_settles_where_trainings_on_an_h200_found_it() {
        // Offsets of the first segments of a T5 as a process of its own got them, from the first.
        let mut places = Places::new(BASE, BASE << 1);
        let first = places.take(2 * MIB).expect("room");
        let mut next = |bytes| places.take(bytes * MIB).map(|place| (place as isize - first as isize) / MIB as isize);
        assert_eq!([96, 96, 2, 20].map(&mut next), [Some(-510), Some(-606), Some(74), Some(76)]);
        places.settle();
        let mut next = |bytes| places.take(bytes * MIB).map(|place| (place as isize - first as isize) / MIB as isize);
        assert_eq!([20, 20, 360, 96].map(&mut next), [Some(-414), Some(-394), Some(-374), Some(-1214)]);
        assert_eq!([2, 2, 2, 20].map(&mut next), [Some(-612), Some(-610), Some(-608), Some(-1246)]);
    }

    #[test]
    fn what_is_given_back_is_whole_again() {
        let mut places = Places::new(BASE, BASE << 1);
        places.settle();
        let taken: Vec<(usize, usize)> = (1..400)
            .map(|step| (step * 7919 % 300 + 2) * MIB)
            .filter_map(|bytes| Some((places.take(bytes)?, bytes)))
            .collect();
        let mut sorted = taken.clone();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        taken.iter().for_each(|(start, bytes)| places.give(*start, *bytes));
        assert_eq!((places.chunks.len(), places.between.len()), (3, 1));
        assert_eq!(places.take(usize::MAX), None);
    }
}
