//! Where the driver puts memory. PyTorch breaks ties between equal blocks by address, so the order of addresses decides
//! which block serves a request, and by that what is reserved and, where a block is handed out whole, what is allocated.
//!
//! The rule was fitted to what one H200 with driver 580.159 said in two processes: addresses come in chunks of whole 32 MiB;
//! the newest chunk that has room serves, in it the smallest hole; a chunk without memory goes back; a new one lies as high as
//! a hole between chunks allows, which must be larger than the chunk. `tests::the_driver_s_own_addresses_come_out` replays
//! these recordings: it guards the rule, other drivers may have another.

use std::collections::BTreeSet;

const MIB: usize = 1 << 20;
const CHUNK: usize = 32 * MIB;
/// What a context leaves of its own chunks, inferred from where trainings got their first segments: the sizes are those that
/// explain these, nobody says them. The first chunk is older and small. The second is the context's own until the first kernel
/// is launched, but for its end; then most of it is free.
const OLDER: usize = 20 * MIB;
const CONTEXT: usize = 416 * MIB;
const CONTEXT_END: usize = 2 * MIB;
const CONTEXT_KEEPS: usize = 8 * MIB;

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
pub struct Places {
    /// In the order in which they came.
    chunks: Vec<Chunk>,
    /// Start and end of what no chunk has, rising.
    between: Vec<(usize, usize)>,
    launched: bool,
}

impl Places {
    pub const fn nowhere() -> Places {
        Places { chunks: Vec::new(), between: Vec::new(), launched: false }
    }

    /// As a new context leaves them.
    pub fn new(first: usize, end: usize) -> Places {
        let older = end - CHUNK;
        let context = older - 2 * CHUNK - CONTEXT;
        let chunk = |start, end, hole: (usize, usize)| Chunk { start, end, holes: [hole].into(), stays: true };
        let chunks = vec![
            chunk(older, older + OLDER, (OLDER, older)),
            chunk(context, context + CONTEXT, (CONTEXT_END, context + CONTEXT - CONTEXT_END)),
        ];
        Places { chunks, between: vec![(first, context)], launched: false }
    }

    pub fn is_nowhere(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The context's first kernel: most of its own chunk is free from here on.
    pub fn launch(&mut self) {
        if !self.launched
            && let Some(context) = self.chunks.get_mut(1)
        {
            context.give(context.start, CONTEXT - CONTEXT_KEEPS - CONTEXT_END);
            self.launched = true;
        }
    }

    pub fn take(&mut self, bytes: usize) -> Option<usize> {
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

    pub fn give(&mut self, start: usize, bytes: usize) {
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
        Places { chunks, between: vec![(MIB, at(-506))], launched: true }
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
    fn the_first_kernel_frees_most_of_the_context_s_chunk() {
        let mut places = Places::new(BASE, BASE << 1);
        let (small, large) = (places.take(2 * MIB), places.take(96 * MIB));
        assert_eq!(small.zip(large).map(|(small, large)| small - large), Some(510 * MIB));
        places.launch();
        places.launch();
        assert_eq!(places.take(20 * MIB).zip(large).map(|(next, large)| next - large), Some(96 * MIB));
    }

    #[test]
    fn what_is_given_back_is_whole_again() {
        let mut places = Places::new(BASE, BASE << 1);
        places.launch();
        let taken: Vec<(usize, usize)> = (1..400)
            .map(|step| (step * 7919 % 300 + 2) * MIB)
            .filter_map(|bytes| Some((places.take(bytes)?, bytes)))
            .collect();
        let mut sorted = taken.clone();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        taken.iter().for_each(|(start, bytes)| places.give(*start, *bytes));
        assert_eq!((places.chunks.len(), places.between.len()), (2, 1));
        assert_eq!(places.take(usize::MAX), None);
    }
}
