//! What a memory snapshot of PyTorch says after a crash: who held the memory, how much lay in pieces, and whether
//! another setting of the allocator would have saved the program.

use crate::account::Account;
use crate::allocator::Addresses;
use crate::notes::Notes;
use crate::report::{Share, shares};
use crate::snapshot::{Action, BlockState, Settings, Snapshot};
use crate::text::bytes;
use serde::Serialize;
use std::fmt::Write;

/// The request that failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failed {
    pub wanted_bytes: u64,
    pub free_bytes: u64,
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

impl Diagnosis {
    /// `memory` is what segments may take in the replays; without it there is no limit.
    pub fn of(snapshot: &Snapshot, memory: Option<u64>) -> Diagnosis {
        let account = Account::of(snapshot, &Notes::default());
        let whole = !account.ops.is_empty() && history_is_whole(snapshot);
        let blocks = || snapshot.segments.iter().flat_map(|segment| &segment.blocks);
        let free = || blocks().filter(|block| block.state == BlockState::Free).map(|block| block.size);
        Diagnosis {
            reserved_bytes: snapshot.segments.iter().map(|segment| segment.size).sum(),
            allocated_bytes: snapshot.segments.iter().map(|segment| segment.allocated).sum(),
            free_in_pieces_bytes: free().sum(),
            largest_free_piece_bytes: free().max().unwrap_or(0),
            peak_allocated_bytes: account.peak.allocated,
            peak_reserved_bytes: account.peak_reserved,
            events: snapshot.traces.iter().map(Vec::len).sum(),
            whole,
            exact: account.exact,
            failed: failures(snapshot),
            kinds: shares(&account.held, |held| held.kind.name().into(), usize::MAX),
            lines: shares(&account.held, |held| held.line.clone(), 15),
            replayed: if whole { replays(&account, snapshot, memory) } else { Vec::new() },
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
            let _ = writeln!(
                text,
                "out of memory: asked for {}, {} free",
                bytes(failed.wanted_bytes),
                bytes(failed.free_bytes)
            );
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
            text.push_str("the history starts in the middle of the program (max_entries): it cannot be replayed\n");
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

fn failures(snapshot: &Snapshot) -> Vec<Failed> {
    let events = snapshot.traces.iter().flatten().filter(|event| event.action == Action::OutOfMemory);
    events.map(|event| Failed { wanted_bytes: event.size, free_bytes: event.address }).collect()
}

/// Whether what the history leaves allocated is what the segments hold: then nothing happened before it.
fn history_is_whole(snapshot: &Snapshot) -> bool {
    let reserved: u64 = snapshot.segments.iter().map(|segment| segment.size).sum();
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
        let peak = account.replay(&settings, limit, Addresses::Rising).ok();
        Replayed { expandable_segments: expandable, peak_reserved_bytes: peak }
    };
    vec![replay(false), replay(true)]
}
