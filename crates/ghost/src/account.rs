//! Follows a recorded history through the allocator: how much was held when, and who held it at the peak.

use crate::allocator::{Addresses, Allocator, Handle};
use crate::notes::{Mark, Notes};
use crate::snapshot::{Action, Event, Frame, Settings, Snapshot};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// What memory is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Weights,
    Gradients,
    Optimizer,
    Activations,
    Buffers,
    /// Of cuBLAS.
    Workspaces,
    /// What the backward pass holds besides the gradients of weights.
    Backward,
    /// What was made outside of any module: batches above all.
    Inputs,
}

impl Kind {
    fn of_name(name: &str) -> Option<Kind> {
        match name {
            "weights" => Some(Kind::Weights),
            "gradients" => Some(Kind::Gradients),
            "optimizer" => Some(Kind::Optimizer),
            "buffers" => Some(Kind::Buffers),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Kind::Weights => "weights",
            Kind::Gradients => "gradients",
            Kind::Optimizer => "optimizer",
            Kind::Activations => "activations",
            Kind::Buffers => "buffers",
            Kind::Workspaces => "workspaces",
            Kind::Backward => "backward",
            Kind::Inputs => "inputs",
        }
    }
}

/// One thing of the recorded program, for replaying it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Takes the memory of this allocation.
    Take {
        allocation: usize,
        size: u64,
        stream: u64,
    },
    Give {
        allocation: usize,
    },
    EmptyCache,
}

/// What is held at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    pub allocated: u64,
    pub reserved: u64,
}

/// A block that is held at the peak.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    pub bytes: u64,
    pub kind: Kind,
    /// The weight's own name, or the module in whose call it was made.
    pub module: String,
    /// `file.py:12 function`, the innermost that is the program's own or its model library's.
    pub line: String,
}

/// A recorded program, followed to its end.
#[derive(Debug, Default)]
pub struct Account {
    pub ops: Vec<Op>,
    /// After each allocation.
    pub levels: Vec<Level>,
    /// The peak among levels.
    pub peak: Level,
    pub peak_reserved: u64,
    /// The allocation that made the peak, counted from 1.
    pub peak_at: usize,
    pub held: Vec<Held>,
    /// Whether every address came out as it was: then sizes are exact.
    pub exact: bool,
}

struct Follower<'a> {
    snapshot: &'a Snapshot,
    events: &'a [Event],
    allocator: Allocator,
    /// By address: the allocation and its block.
    live: BTreeMap<u64, (usize, Handle)>,
    /// By allocation: its event.
    allocations: Vec<usize>,
    tags: HashMap<usize, (Kind, String)>,
    peak_live: Vec<(usize, u64)>,
    account: Account,
}

impl Account {
    /// Of the busiest device of a snapshot.
    pub fn of(snapshot: &Snapshot, notes: &Notes) -> Account {
        let Some(events) = snapshot.traces.iter().max_by_key(|trace| trace.len()) else { return Account::default() };
        let recorded = events.iter().filter(|event| event.action == Action::SegmentAlloc).map(|event| event.address);
        let addresses = Addresses::Recorded(recorded.collect());
        let mut follower = Follower {
            snapshot,
            events,
            allocator: Allocator::new(snapshot.settings.clone(), u64::MAX, addresses),
            live: BTreeMap::new(),
            allocations: Vec::new(),
            tags: HashMap::new(),
            peak_live: Vec::new(),
            account: Account { exact: true, ..Account::default() },
        };
        follower.follow(notes);
        follower.finish()
    }

    /// The highest level between two allocations.
    pub fn peak_between(&self, from: usize, to: usize) -> Level {
        let levels = self.levels.get(from..to.min(self.levels.len())).unwrap_or(&[]);
        Level {
            allocated: levels.iter().map(|level| level.allocated).max().unwrap_or(0),
            reserved: levels.iter().map(|level| level.reserved).max().unwrap_or(0),
        }
    }

    /// Replays it under other addresses or a limit: the peak of what is reserved, or the allocation that fails.
    pub fn replay(&self, settings: &Settings, limit: u64, addresses: Addresses) -> Result<u64, usize> {
        let mut allocator = Allocator::new(settings.clone(), limit, addresses);
        let mut blocks: HashMap<usize, Handle> = HashMap::new();
        for op in &self.ops {
            match *op {
                Op::Take { allocation, size, stream } => {
                    let block = allocator.malloc(size, stream).map_err(|_| allocation)?;
                    blocks.insert(allocation, block);
                }
                Op::Give { allocation } => {
                    if let Some(block) = blocks.remove(&allocation) {
                        allocator.free(block);
                    }
                }
                Op::EmptyCache => allocator.release_cached(),
            }
        }
        Ok(allocator.peak_reserved)
    }
}

impl Follower<'_> {
    fn follow(&mut self, notes: &Notes) {
        let mut marks: Vec<&Mark> = notes.marks().collect();
        marks.sort_by_key(|mark| mark.allocations);
        let mut marks = marks.into_iter().peekable();
        let mut releasing = false;
        for place in 0..self.events.len() {
            let event = &self.events[place];
            match event.action {
                Action::Alloc => self.take(place),
                Action::FreeCompleted => self.give(event.address),
                Action::SegmentFree | Action::SegmentUnmap => self.release(event.address, event.action, releasing),
                _ => {}
            }
            releasing = matches!(event.action, Action::SegmentFree | Action::SegmentUnmap);
            while let Some(mark) = marks.next_if(|mark| mark.allocations <= self.allocations.len()) {
                self.tag(mark);
            }
        }
    }

    fn take(&mut self, place: usize) {
        let event = &self.events[place];
        let allocation = self.allocations.len();
        self.allocations.push(place);
        // Without a limit no request fails.
        let Ok(block) = self.allocator.malloc(event.size, event.stream) else { return };
        self.account.exact &= self.allocator.address(block) == event.address;
        self.account.ops.push(Op::Take { allocation, size: event.size, stream: event.stream });
        self.live.insert(event.address, (allocation, block));
        let level = Level { allocated: self.allocator.allocated, reserved: self.allocator.reserved };
        self.account.levels.push(level);
        if level.allocated > self.account.peak.allocated {
            self.account.peak = level;
            self.account.peak_at = allocation + 1;
        }
    }

    fn give(&mut self, address: u64) {
        let Some((allocation, block)) = self.live.remove(&address) else { return };
        self.account.ops.push(Op::Give { allocation });
        self.allocator.free(block);
    }

    /// A run of releases is one emptying of the cache.
    fn release(&mut self, address: u64, action: Action, releasing: bool) {
        if !releasing {
            self.account.ops.push(Op::EmptyCache);
        }
        if action == Action::SegmentFree {
            self.allocator.release_at(address);
        } else if !releasing {
            self.allocator.release_cached();
        }
    }

    fn holder(&self, address: u64) -> Option<usize> {
        let (start, (allocation, block)) = self.live.range(..=address).next_back()?;
        (address < start + self.allocator.size(*block)).then_some(*allocation)
    }

    /// A name is kept over none, and what was said first over what is said later.
    fn tag(&mut self, mark: &Mark) {
        for (kind, name, address) in &mark.tensors {
            let (Some(kind), Some(allocation)) = (Kind::of_name(kind), self.holder(*address)) else { continue };
            let known = self.tags.entry(allocation).or_insert_with(|| (kind, name.clone()));
            if known.1.is_empty() {
                known.1.clone_from(name);
            }
        }
        for address in &mark.workspaces {
            if let Some(allocation) = self.holder(*address) {
                self.tags.entry(allocation).or_insert((Kind::Workspaces, String::new()));
            }
        }
    }

    /// Goes over it once more, up to the peak, now that everything that is known about allocations is.
    fn finish(mut self) -> Account {
        self.account.peak_reserved = self.allocator.peak_reserved;
        self.peak_live = live_after(&self.account, self.account.peak_at);
        let held = self.peak_live.iter().map(|(allocation, bytes)| self.held(*allocation, *bytes)).collect();
        self.account.held = held;
        self.account
    }

    fn held(&self, allocation: usize, bytes: u64) -> Held {
        let stack = &self.events[self.allocations[allocation]].stack;
        let frames: Vec<&Frame> = self.snapshot.stack(stack).collect();
        let (kind, name) = match self.tags.get(&allocation) {
            Some((kind, name)) => (*kind, name.clone()),
            None => (kind_by_stack(&frames), String::new()),
        };
        let module = if name.is_empty() || kind == Kind::Optimizer { module_of(&frames) } else { owner(&name) };
        Held { bytes, kind, module, line: line_of(&frames) }
    }
}

/// Allocations that are held after so many, with the sizes of their blocks: levels say what each added.
fn live_after(account: &Account, count: usize) -> Vec<(usize, u64)> {
    let mut live: BTreeMap<usize, u64> = BTreeMap::new();
    let mut allocated = 0;
    for op in &account.ops {
        match *op {
            Op::Take { allocation, .. } => {
                let bytes = account.levels[allocation].allocated.saturating_sub(allocated);
                live.insert(allocation, bytes);
                allocated = account.levels[allocation].allocated;
                // What is given back next is still held at this moment.
                if allocation + 1 >= count {
                    break;
                }
            }
            Op::Give { allocation } => allocated = allocated.saturating_sub(live.remove(&allocation).unwrap_or(0)),
            Op::EmptyCache => {}
        }
    }
    live.into_iter().collect()
}

/// The file name of frames that carry a module's path.
const MODULE: &str = "plimsoll:module";

/// Threads of the backward pass have no Python frames, unless a checkpoint runs modules again there.
fn kind_by_stack(frames: &[&Frame]) -> Kind {
    let in_file = |part: &str| frames.iter().any(|frame| frame.file.contains(part));
    if in_file("/torch/optim/") {
        Kind::Optimizer
    } else if frames.iter().any(|frame| frame.file == MODULE) {
        Kind::Activations
    } else if frames.is_empty() || in_file("/torch/autograd/") {
        Kind::Backward
    } else {
        Kind::Inputs
    }
}

fn module_of(frames: &[&Frame]) -> String {
    frames.iter().find(|frame| frame.file == MODULE).map_or_else(String::new, |frame| frame.name.clone())
}

/// The module of a weight: its name without the last part.
fn owner(name: &str) -> String {
    name.rsplit_once('.').map_or_else(|| name.to_string(), |(module, _)| module.to_string())
}

/// The innermost line that is neither PyTorch's nor ours; of PyTorch alone the outermost.
fn line_of(frames: &[&Frame]) -> String {
    let own = |frame: &&&Frame| {
        frame.file != MODULE
            && !frame.file.contains("/torch/")
            && !frame.file.ends_with("plimsoll_ghost.py")
            && frame.file.ends_with(".py")
    };
    match frames.iter().find(own).or(frames.last()) {
        Some(frame) => format!("{}:{} {}", short(&frame.file), frame.line, frame.name),
        None => "the backward pass".into(),
    }
}

/// A file with the folder it is in.
fn short(file: &str) -> String {
    let mut parts: Vec<&str> = file.rsplit('/').take(2).collect();
    parts.reverse();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Settings;

    const MIB: u64 = 1 << 20;

    fn event(action: Action, address: u64, size: u64, stack: &[u32]) -> Event {
        Event { action, address, size, stream: 0, stack: stack.to_vec() }
    }

    fn frame(file: &str, name: &str) -> Frame {
        Frame { file: file.into(), line: 3, name: name.into() }
    }

    /// A weight, an activation of `layers.0`, a gradient and a batch that is given back before the peak.
    fn snapshot() -> Snapshot {
        let base = 1 << 44;
        let segment = |place: u64| base + place * 100 * MIB;
        let mut events = Vec::new();
        for (place, (size, stack)) in [(40, &[0u32][..]), (30, &[0]), (50, &[1, 2]), (20, &[])].into_iter().enumerate()
        {
            let at = segment(place as u64);
            events.push(event(Action::SegmentAlloc, at, size * MIB, stack));
            events.push(event(Action::Alloc, at, size * MIB, stack));
            if place == 1 {
                events.push(event(Action::FreeRequested, at, size * MIB, &[]));
                events.push(event(Action::FreeCompleted, at, size * MIB, &[]));
            }
        }
        // Given back right after the peak, so held at it.
        events.push(event(Action::FreeCompleted, segment(2), 50 * MIB, &[]));
        let frames = vec![
            frame("/home/a/train.py", "main"),
            frame("/lib/torch/nn/linear.py", "forward"),
            frame(MODULE, "layers.0"),
        ];
        Snapshot { frames, traces: vec![events], settings: Settings::default(), ..Snapshot::default() }
    }

    fn notes() -> Notes {
        let text = format!(
            r#"{{"note": "before_step", "step": 1, "allocations": 4, "tensors": [["weights", "layers.0.weight", {}], ["gradients", "layers.0.weight", {}]]}}"#,
            1u64 << 44,
            (1u64 << 44) + 300 * MIB
        );
        Notes { notes: vec![serde_json::from_str(&text).unwrap()], history: None }
    }

    #[test]
    fn what_is_held_at_the_peak_is_told_by_kind_module_and_line() {
        let account = Account::of(&snapshot(), &notes());
        // The 20 MiB gradient fits into the 30 MiB that the batch gave back, but was recorded elsewhere.
        assert_eq!(account.peak.allocated, 110 * MIB);
        let held: Vec<_> =
            account.held.iter().map(|held| (held.kind, held.bytes / MIB, held.module.as_str())).collect();
        let expected =
            [(Kind::Weights, 40, "layers.0"), (Kind::Activations, 50, "layers.0"), (Kind::Gradients, 20, "layers.0")];
        assert_eq!(held, expected);
        assert_eq!(account.held[0].line, "a/train.py:3 main");
        assert_eq!(account.held[2].line, "the backward pass");
        assert!(!account.exact);
    }

    #[test]
    fn a_replay_under_a_limit_fails_where_memory_ends() {
        let account = Account::of(&snapshot(), &Notes::default());
        assert!(account.replay(&Settings::default(), 500 * MIB, Addresses::Rising).is_ok());
        assert_eq!(account.replay(&Settings::default(), 95 * MIB, Addresses::Rising), Err(3));
    }
}
