//! A recorded program under other settings of the allocator, other addresses, or a limit: what it reserves, or where it
//! dies.

use crate::account::{Account, Fall, Range};
use crate::allocator::Addresses;
use crate::notes::Notes;
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::text::bytes;
use serde::Serialize;
use std::fmt::Write;

/// Where a replay runs out of memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Death {
    /// Which allocation of the history, counted from 1.
    pub allocation: usize,
    pub wanted_bytes: u64,
    pub allocated_bytes: u64,
    pub reserved_bytes: u64,
    pub line: String,
}

/// One way to run it.
#[derive(Clone, Debug, Serialize)]
pub struct Way {
    /// In the words of `PYTORCH_CUDA_ALLOC_CONF`; empty for as it was.
    pub settings: String,
    /// None where it dies.
    pub peak_reserved_bytes: Option<u64>,
    /// How often it released its cache to go on.
    pub retries: usize,
    pub death: Option<Death>,
}

/// A history, followed and replayed.
#[derive(Clone, Debug, Serialize)]
pub struct Replay {
    pub allocations: usize,
    /// Of those, how many were there before the history begins.
    pub earlier: usize,
    /// Whether the replay as it was gave every address that was recorded.
    pub exact: bool,
    pub peak_allocated_bytes: u64,
    pub peak_reserved_bytes: u64,
    /// Over orders of the addresses that a driver may give.
    pub allocated_range: Range,
    pub reserved_range: Range,
    pub limit_bytes: Option<u64>,
    pub ways: Vec<Way>,
}

impl Replay {
    /// As it was, and under each of `others`; inside `limit`, or without one.
    pub fn of(snapshot: &Snapshot, limit: Option<u64>, others: &[(String, Settings)]) -> Replay {
        let account = Account::of(snapshot, &Notes::default());
        let as_it_was = (String::new(), snapshot.settings.clone());
        let ways = std::iter::once(&as_it_was).chain(others);
        let ranges = account.ranges(&snapshot.settings);
        Replay {
            allocations: account.levels.len(),
            earlier: account.earlier,
            exact: account.exact,
            peak_allocated_bytes: account.peak.allocated,
            peak_reserved_bytes: account.peak_reserved,
            allocated_range: ranges.allocated,
            reserved_range: ranges.reserved,
            limit_bytes: limit,
            ways: ways.map(|(name, settings)| way(snapshot, &account, name, settings, limit)).collect(),
        }
    }

    pub fn text(&self) -> String {
        let exact = if self.exact { "every address as recorded" } else { "not every address as recorded" };
        let word = if self.allocations == 1 { "allocation" } else { "allocations" };
        let mut text = format!("{} {word}, {exact}\n", self.allocations);
        match self.earlier {
            0 => {}
            1 => text += "the history begins in the middle: 1 block was there before it\n",
            n => _ = writeln!(text, "the history begins in the middle: {n} blocks were there before it"),
        }
        let (allocated, reserved) = (bytes(self.peak_allocated_bytes), bytes(self.peak_reserved_bytes));
        let range = &self.reserved_range;
        let (lowest, highest) = (bytes(range.lowest_bytes), bytes(range.highest_bytes));
        let _ = writeln!(text, "peak allocated {allocated}, reserved {reserved} ({lowest} to {highest} by addresses)");
        if let Some(limit) = self.limit_bytes {
            let _ = writeln!(text, "inside {}:", bytes(limit));
        }
        self.ways.iter().for_each(|way| way.write(&mut text));
        text
    }
}

impl Way {
    fn write(&self, text: &mut String) {
        let name = if self.settings.is_empty() { "as it was" } else { &self.settings };
        let _ = match (&self.death, self.peak_reserved_bytes) {
            (Some(death), _) => writeln!(
                text,
                "  {name}: out of memory at allocation {} ({}): asked for {}, {} allocated, {} reserved",
                death.allocation,
                death.line,
                bytes(death.wanted_bytes),
                bytes(death.allocated_bytes),
                bytes(death.reserved_bytes)
            ),
            (None, peak) => {
                let released =
                    if self.retries > 0 { format!(", released its cache {} x", self.retries) } else { String::new() };
                writeln!(text, "  {name}: reserves {}{released}", bytes(peak.unwrap_or(0)))
            }
        };
    }
}

fn way(snapshot: &Snapshot, account: &Account, name: &str, settings: &Settings, limit: Option<u64>) -> Way {
    let (peak, retries, death) = match account.replay(settings, limit.unwrap_or(u64::MAX), Addresses::Rising) {
        Ok(run) => (Some(run.peak_reserved), run.retries, None),
        Err(fall) => (None, fall.retries, Some(death(snapshot, account, &fall))),
    };
    Way { settings: name.into(), peak_reserved_bytes: peak, retries, death }
}

fn death(snapshot: &Snapshot, account: &Account, fall: &Fall) -> Death {
    Death {
        allocation: fall.allocation + 1,
        wanted_bytes: fall.requested,
        allocated_bytes: fall.allocated,
        reserved_bytes: fall.reserved,
        line: account.line_at(snapshot, fall.allocation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Action, Event};

    const MIB: u64 = 1 << 20;

    /// A large block goes, a small one takes its segment, a larger one comes.
    fn fragmented() -> Snapshot {
        let event = |action, place: u64, mebibytes: u64| {
            let (address, size) = ((1 << 40) + place * MIB, mebibytes * MIB);
            Event { action, address, size, stream: 0, stack: Vec::new() }
        };
        let events = vec![
            event(Action::SegmentAlloc, 0, 60),
            event(Action::Alloc, 0, 60),
            event(Action::FreeCompleted, 0, 60),
            event(Action::Alloc, 0, 2),
            event(Action::SegmentAlloc, 100, 70),
            event(Action::Alloc, 100, 70),
        ];
        Snapshot { traces: vec![events], ..Snapshot::default() }
    }

    #[test]
    fn a_program_that_dies_of_pieces_is_saved_by_segments_that_grow() {
        let others = [("expandable_segments:True".into(), Settings::parse("expandable_segments:True").unwrap())];
        let replay = Replay::of(&fragmented(), Some(100 * MIB), &others);
        assert!(replay.exact, "{replay:?}");
        assert_eq!((replay.peak_allocated_bytes, replay.peak_reserved_bytes), (72 * MIB, 130 * MIB));
        let death = replay.ways[0].death.as_ref().unwrap();
        assert_eq!((death.allocation, death.wanted_bytes, death.allocated_bytes), (3, 70 * MIB, 2 * MIB));
        assert!(replay.ways[1].death.is_none(), "{:?}", replay.ways[1]);
        assert!(replay.text().contains("out of memory at allocation 3"), "{}", replay.text());
    }

    #[test]
    fn a_history_that_begins_in_the_middle_is_completed_from_its_end() {
        let whole = fragmented();
        let late = Snapshot {
            traces: vec![whole.traces[0][4..].to_vec()],
            segments: segments_at_the_end(),
            ..Snapshot::default()
        };
        let replay = Replay::of(&late, None, &[]);
        assert_eq!((replay.earlier, replay.allocations, replay.exact), (1, 2, true));
        assert!(replay.text().starts_with("2 allocations, every"), "{}", replay.text());
        let one = Replay { allocations: 1, ..replay.clone() };
        assert!(one.text().starts_with("1 allocation, every") && one.text().contains("1 block was"), "{}", one.text());
        assert_eq!((replay.peak_allocated_bytes, replay.peak_reserved_bytes), (72 * MIB, 130 * MIB));
    }

    fn segments_at_the_end() -> Vec<crate::snapshot::Segment> {
        use crate::snapshot::{Block, BlockState, Segment};
        let block = |size, state| Block { size, requested: size, state, stack: Vec::new() };
        let segment = |place: u64, blocks: Vec<Block>| Segment {
            device: 0,
            address: (1 << 40) + place * MIB,
            size: blocks.iter().map(|block| block.size).sum(),
            allocated: 0,
            stream: 0,
            expandable: false,
            blocks,
        };
        let first = vec![block(2 * MIB, BlockState::Used), block(58 * MIB, BlockState::Free)];
        vec![segment(0, first), segment(100, vec![block(70 * MIB, BlockState::Used)])]
    }
}
