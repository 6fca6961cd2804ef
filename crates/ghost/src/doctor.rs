//! What a memory snapshot of PyTorch says after a crash: who held the memory, how much lay in pieces, and whether
//! another setting of the allocator would have saved the program.

use crate::account::{Account, Want};
use crate::allocator::Addresses;
use crate::notes::Notes;
use crate::report::{Share, shares};
use crate::settings::Settings;
use crate::snapshot::{Action, BlockState, Snapshot};
use crate::text::bytes;
use serde::Serialize;
use std::fmt::Write;

/// The request that failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failed {
    pub wanted_bytes: u64,
    /// Left on the card.
    pub free_bytes: u64,
    pub allocated_bytes: u64,
    pub reserved_bytes: u64,
    /// Whether the same program with expandable segments would have got what it asked for, on the same card.
    pub expandable_segments_would_serve: bool,
}

/// What the same program takes under other settings.
#[derive(Clone, Debug, Serialize)]
pub struct Replayed {
    pub expandable_segments: bool,
    /// None where it runs out of the memory given.
    pub peak_reserved_bytes: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// At the end, by the segments of the snapshot.
    pub reserved_bytes: u64,
    pub allocated_bytes: u64,
    /// What was asked for: blocks are rounded up.
    pub requested_bytes: u64,
    /// Reserved and neither allocated nor waited for.
    pub free_in_pieces_bytes: u64,
    pub largest_free_piece_bytes: u64,
    pub peak_allocated_bytes: u64,
    pub peak_reserved_bytes: u64,
    pub events: usize,
    /// Whether the history starts with the program, so that it can be replayed.
    pub whole: bool,
    /// Whether the replay gave every address as it was.
    pub exact: bool,
    pub failed: Vec<Failed>,
    pub kinds: Vec<Share>,
    pub lines: Vec<Share>,
    pub replayed: Vec<Replayed>,
}

impl Failed {
    fn write(&self, text: &mut String) {
        let pieces = self.reserved_bytes.saturating_sub(self.allocated_bytes);
        let _ = writeln!(
            text,
            "out of memory: asked for {}, {} free on the card, {} reserved and not allocated",
            bytes(self.wanted_bytes),
            bytes(self.free_bytes),
            bytes(pieces)
        );
        let word = if self.expandable_segments_would_serve { "would" } else { "would not" };
        let _ = writeln!(text, "  expandable_segments:True {word} have served it");
    }
}

impl Diagnosis {
    /// `memory` is what segments may take in the replays; without it there is no limit.
    pub fn of(snapshot: &Snapshot, memory: Option<u64>) -> Diagnosis {
        let account = Account::of(snapshot, &Notes::default());
        let whole = !account.ops.is_empty() && history_is_whole(snapshot);
        let replayable = whole || account.earlier > 0;
        let blocks = || snapshot.segments.iter().flat_map(|segment| &segment.blocks);
        let used = || blocks().filter(|block| block.state == BlockState::Used);
        let free = || blocks().filter(|block| block.state == BlockState::Free).map(|block| block.size);
        Diagnosis {
            reserved_bytes: total(snapshot.segments.iter().map(|segment| segment.size)),
            allocated_bytes: total(snapshot.segments.iter().map(|segment| segment.allocated)),
            requested_bytes: total(used().map(|block| block.requested)),
            free_in_pieces_bytes: total(free()),
            largest_free_piece_bytes: free().max().unwrap_or(0),
            peak_allocated_bytes: account.peak.allocated,
            peak_reserved_bytes: account.peak_reserved,
            events: snapshot.traces.iter().map(Vec::len).sum(),
            whole,
            exact: account.exact,
            failed: account.wants.iter().map(|want| failed(&account, want, snapshot)).collect(),
            kinds: shares(&account.held, |held| held.kind.name().into(), usize::MAX),
            lines: shares(&account.held, |held| held.line.clone(), 15),
            replayed: if replayable { replays(&account, snapshot, memory) } else { Vec::new() },
        }
    }

    pub fn text(&self) -> String {
        let mut text = format!(
            "at the end: {} reserved, {} allocated, {} free in pieces, the largest {}\n",
            bytes(self.reserved_bytes),
            bytes(self.allocated_bytes),
            bytes(self.free_in_pieces_bytes),
            bytes(self.largest_free_piece_bytes)
        );
        for failed in &self.failed {
            failed.write(&mut text);
        }
        let (allocated, reserved) = (bytes(self.peak_allocated_bytes), bytes(self.peak_reserved_bytes));
        let _ = writeln!(text, "peak of {} events: {allocated} allocated, {reserved} reserved", self.events);
        self.replays_text(&mut text);
        for (title, shares) in [("alive at the peak, by kind", &self.kinds), ("by line", &self.lines)] {
            crate::text::shares(&mut text, title, shares, self.peak_allocated_bytes);
        }
        text
    }

    fn replays_text(&self, text: &mut String) {
        if !self.whole {
            let how = if self.replayed.is_empty() {
                "it cannot be replayed"
            } else {
                "what was there before is taken from its end"
            };
            let _ = writeln!(text, "the history starts in the middle of the program: {how}");
        }
        for one in &self.replayed {
            let name = if one.expandable_segments { "expandable_segments:True" } else { "fixed segments" };
            let word = one
                .peak_reserved_bytes
                .map_or_else(|| "runs out of memory".into(), |peak| format!("reserves {}", bytes(peak)));
            let _ = writeln!(text, "replayed with {name}: {word}");
        }
    }
}

fn failed(account: &Account, want: &Want, snapshot: &Snapshot) -> Failed {
    let expandable = Settings { expandable: true, ..snapshot.settings.clone() };
    Failed {
        wanted_bytes: want.size,
        free_bytes: want.free,
        allocated_bytes: want.held.allocated,
        reserved_bytes: want.held.reserved,
        expandable_segments_would_serve: account.would_serve(want, &expandable),
    }
}

/// Files may claim anything.
fn total(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

/// Whether what the history leaves allocated is what the segments hold: then nothing happened before it.
fn history_is_whole(snapshot: &Snapshot) -> bool {
    let reserved = total(snapshot.segments.iter().map(|segment| segment.size));
    let mut left: i128 = 0;
    for event in snapshot.traces.iter().flatten() {
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => left += i128::from(event.size),
            Action::SegmentFree | Action::SegmentUnmap => left -= i128::from(event.size),
            _ => {}
        }
    }
    left == i128::from(reserved)
}

fn replays(account: &Account, snapshot: &Snapshot, memory: Option<u64>) -> Vec<Replayed> {
    let limit = memory.unwrap_or(u64::MAX);
    let replay = |expandable: bool| {
        let settings = Settings { expandable, ..snapshot.settings.clone() };
        let peak = account.replay(&settings, limit, Addresses::Rising).ok().map(|run| run.peak_reserved);
        Replayed { expandable_segments: expandable, peak_reserved_bytes: peak }
    };
    vec![replay(false), replay(true)]
}
