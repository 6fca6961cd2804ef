//! What was there before a history begins: histories are cut (`max_entries`) or switched on late, and the segments at
//! their end together with everything that happened say what there was at their beginning.

use crate::allocator::Earlier;
use crate::snapshot::{Action, BlockState, Event, Segment, Snapshot};
use std::collections::BTreeMap;

/// A block that was used before the first event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub size: u64,
    /// The lines that made it, where it outlived the history.
    pub stack: Vec<u32>,
}

/// Segments and used blocks at a moment, by address.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    segments: BTreeMap<u64, (u64, u64)>,
    pub used: BTreeMap<u64, Known>,
}

impl Layout {
    /// At the beginning of the history of one device. Segments that grow are not followed back.
    pub(crate) fn before(snapshot: &Snapshot, device: usize, events: &[Event]) -> Layout {
        let mut layout = Layout::default();
        for segment in snapshot.segments.iter().filter(|segment| segment.device == device as i64) {
            layout.add(segment);
        }
        events.iter().rev().for_each(|event| layout.undo(event));
        layout
    }

    fn add(&mut self, segment: &Segment) {
        self.segments.insert(segment.address, (segment.size, segment.stream));
        let mut address = segment.address;
        for block in &segment.blocks {
            if block.state != BlockState::Free {
                self.used.insert(address, Known { size: block.size, stack: block.stack.clone() });
            }
            address = address.saturating_add(block.size);
        }
    }

    fn undo(&mut self, event: &Event) {
        match event.action {
            Action::Alloc => drop(self.used.remove(&event.address)),
            Action::FreeCompleted => {
                let size = event.size.max(1).saturating_add(511) / 512 * 512;
                self.used.insert(event.address, Known { size, stack: Vec::new() });
            }
            Action::SegmentAlloc => drop(self.segments.remove(&event.address)),
            Action::SegmentFree => drop(self.segments.insert(event.address, (event.size, event.stream))),
            _ => {}
        }
    }

    /// The segments with what is used in them; a block that lies in none, or in another, is left out.
    pub(crate) fn segments(&self) -> Vec<Earlier> {
        let segment = |(address, (size, stream)): (&u64, &(u64, u64))| {
            let end = address.saturating_add(*size);
            let mut free_from = *address;
            let mut used = Vec::new();
            for (start, known) in self.used.range(*address..end) {
                if *start >= free_from && start.saturating_add(known.size) <= end {
                    used.push((*start, known.size));
                    free_from = start + known.size;
                }
            }
            Earlier { address: *address, size: *size, stream: *stream, used }
        };
        self.segments.iter().map(segment).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Block;

    const MIB: u64 = 1 << 20;

    fn event(action: Action, address: u64, size: u64) -> Event {
        Event { action, address, size, stream: 0, stack: Vec::new() }
    }

    #[test]
    fn what_happened_is_undone_from_the_end() {
        let block = |size, state| Block { size, requested: size, state, stack: vec![4] };
        let blocks = vec![block(4 * MIB, BlockState::Used), block(16 * MIB, BlockState::Free)];
        let segment =
            Segment { device: 0, address: 0, size: 20 * MIB, allocated: 4 * MIB, stream: 0, expandable: false, blocks };
        let snapshot = Snapshot { segments: vec![segment], ..Snapshot::default() };
        // A block behind the first is given back, and so is a segment of 40 MiB with nothing in it.
        let events =
            [event(Action::FreeCompleted, 4 * MIB, 3 * MIB - 7), event(Action::SegmentFree, 100 * MIB, 40 * MIB)];
        let layout = Layout::before(&snapshot, 0, &events);
        let expected = [
            Earlier { address: 0, size: 20 * MIB, stream: 0, used: vec![(0, 4 * MIB), (4 * MIB, 3 * MIB)] },
            Earlier { address: 100 * MIB, size: 40 * MIB, stream: 0, used: vec![] },
        ];
        assert_eq!(layout.segments(), expected);
        assert_eq!(layout.used[&0].stack, [4]);
        // A history that begins with the program has nothing before it.
        let all = [event(Action::SegmentAlloc, 0, 20 * MIB), event(Action::Alloc, 0, 4 * MIB)];
        let layout = Layout::before(&snapshot, 0, &all);
        assert!(layout.segments().is_empty() && layout.used.is_empty());
    }
}
