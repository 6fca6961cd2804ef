//! Follows a recorded history through the allocator: how much was held when, and who held it at the peak.

use crate::allocator::{Addresses, Allocator, Handle};
use crate::earlier::Layout;
use crate::notes::{Mark, Notes};
use crate::settings::Settings;
use crate::snapshot::{Action, Event, Frame, Snapshot};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, VecDeque};

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

/// A request that PyTorch could not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// How many ops came before.
    pub ops: usize,
    pub size: u64,
    pub stream: u64,
    pub held: Level,
    /// What the driver had left then.
    pub free: u64,
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
    /// How many of the first allocations were there before the history begins.
    pub earlier: usize,
    /// Requests that failed.
    pub wants: Vec<Want>,
    device: usize,
    /// By allocation: its event, where it has one.
    origins: Vec<Option<usize>>,
}

struct Follower<'a> {
    snapshot: &'a Snapshot,
    events: &'a [Event],
    allocator: Allocator,
    /// By address: the allocation and its block.
    live: BTreeMap<u64, (usize, Handle)>,
    /// By allocation: the lines that made it.
    stacks: Vec<&'a [u32]>,
    /// Segments that were made since the last allocation.
    new_segments: VecDeque<u64>,
    tags: HashMap<usize, (Kind, String)>,
    peak_live: Vec<(usize, u64)>,
    account: Account,
}

impl Account {
    /// Of the busiest device of a snapshot.
    pub(crate) fn of(snapshot: &Snapshot, notes: &Notes) -> Account {
        let busiest = snapshot.traces.iter().enumerate().max_by_key(|(_, trace)| trace.len());
        let Some((device, events)) = busiest else { return Account::default() };
        let earlier = Layout::before(snapshot, device, events);
        let mut follower = Follower::new(snapshot, events);
        follower.account.device = device;
        if !snapshot.settings.expandable {
            follower.put_earlier(&earlier);
        }
        follower.follow(notes);
        follower.finish()
    }

    /// The highest level between two allocations.
    pub(crate) fn peak_between(&self, from: usize, to: usize) -> Level {
        let levels = self.levels.get(from..to.min(self.levels.len())).unwrap_or(&[]);
        Level {
            allocated: levels.iter().map(|level| level.allocated).max().unwrap_or(0),
            reserved: levels.iter().map(|level| level.reserved).max().unwrap_or(0),
        }
    }

    /// Replays it under other addresses or a limit.
    pub(crate) fn replay(&self, settings: &Settings, limit: u64, addresses: Addresses) -> Result<Run, Fall> {
        let mut allocator = Allocator::new(settings.clone(), limit, addresses);
        self.replay_into(&mut allocator, &self.ops)?;
        let Allocator { peak_allocated, peak_reserved, retries, .. } = allocator;
        Ok(Run { peak_allocated, peak_reserved, retries })
    }

    /// Whether a request that failed would have been served under other settings, on the same card.
    pub(crate) fn would_serve(&self, want: &Want, settings: &Settings) -> bool {
        let limit = want.held.reserved.saturating_add(want.free);
        let mut allocator = Allocator::new(settings.clone(), limit, Addresses::Rising);
        let came = self.replay_into(&mut allocator, &self.ops[..want.ops]);
        came.is_ok() && allocator.malloc(want.size, want.stream).is_ok()
    }

    fn replay_into(&self, allocator: &mut Allocator, ops: &[Op]) -> Result<(), Fall> {
        let mut blocks: Vec<Option<Handle>> = vec![None; self.levels.len()];
        for op in ops {
            match *op {
                Op::Take { allocation, size, stream } => {
                    let block = allocator.malloc(size, stream).map_err(|_| Fall::of(allocator, allocation, size))?;
                    blocks[allocation] = Some(block);
                }
                Op::Give { allocation } => {
                    if let Some(block) = blocks[allocation].take() {
                        allocator.free(block);
                    }
                }
                Op::EmptyCache => allocator.release_cached(),
            }
        }
        Ok(())
    }

    /// The program's own line that made an allocation.
    pub(crate) fn line_at(&self, snapshot: &Snapshot, allocation: usize) -> String {
        let place = self.origins.get(allocation).copied().flatten();
        let event = place.and_then(|place| snapshot.traces.get(self.device)?.get(place));
        let frames: Vec<&Frame> = event.map_or_else(Vec::new, |event| snapshot.stack(&event.stack).collect());
        line_of(&frames)
    }

    /// PyTorch breaks ties between equal blocks by address, and drivers give addresses in orders of their own. So what is
    /// reserved has a range, and what is allocated too: a block that leaves less than 1 MiB is handed out whole. What
    /// autocast cached it frees in an order of addresses too, which the history cannot show: for that the top of what is
    /// reserved has some slack.
    pub(crate) fn ranges(&self, settings: &Settings) -> Ranges {
        let orders = (0..ADDRESS_ORDERS).map(|seed| Addresses::Shuffled(seed * 77 + 1));
        let runs: Vec<Run> = orders.filter_map(|order| self.replay(settings, u64::MAX, order).ok()).collect();
        let allocated = runs.iter().map(|run| run.peak_allocated).chain([self.peak.allocated]);
        let mut reserved = Range::of(runs.iter().map(|run| run.peak_reserved).chain([self.peak_reserved]));
        if reserved.highest_bytes > 0 {
            reserved.highest_bytes += SLACK_BYTES.max(reserved.highest_bytes / SLACK_PART);
        }
        Ranges { allocated: Range::of(allocated), reserved }
    }
}

const ADDRESS_ORDERS: u64 = 16;
/// Two large segments and two small ones, or a part of it all: a process that trained before leaves chunks of its own.
/// Chosen from six on 372 trainings of an H200, of which the top then covers 369; chosen on half of them it covers 183 of the
/// other 186.
const SLACK_BYTES: u64 = 44 << 20;
const SLACK_PART: u64 = 100;

/// Peaks over orders of the addresses that a driver may give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Range {
    pub lowest_bytes: u64,
    pub middle_bytes: u64,
    pub highest_bytes: u64,
}

impl Range {
    fn of(peaks: impl Iterator<Item = u64>) -> Range {
        let mut peaks: Vec<u64> = peaks.collect();
        peaks.sort_unstable();
        let at = |place: usize| peaks.get(place).copied().unwrap_or(0);
        Range {
            lowest_bytes: at(0),
            middle_bytes: at(peaks.len() / 2),
            highest_bytes: at(peaks.len().saturating_sub(1)),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    pub allocated: Range,
    pub reserved: Range,
}

/// A replay that came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub peak_allocated: u64,
    pub peak_reserved: u64,
    /// How often everything cached was released to make room.
    pub retries: usize,
}

/// A replay that ran out of memory, at this allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fall {
    pub allocation: usize,
    pub requested: u64,
    pub allocated: u64,
    pub reserved: u64,
    pub retries: usize,
}

impl Fall {
    fn of(allocator: &Allocator, allocation: usize, requested: u64) -> Fall {
        let &Allocator { allocated, reserved, retries, .. } = allocator;
        Fall { allocation, requested, allocated, reserved, retries }
    }
}

impl<'a> Follower<'a> {
    fn new(snapshot: &'a Snapshot, events: &'a [Event]) -> Follower<'a> {
        Follower {
            snapshot,
            events,
            allocator: Allocator::new(snapshot.settings.clone(), u64::MAX, Addresses::Rising),
            live: BTreeMap::new(),
            stacks: Vec::new(),
            new_segments: VecDeque::new(),
            tags: HashMap::new(),
            peak_live: Vec::new(),
            account: Account { exact: true, ..Account::default() },
        }
    }

    /// What was there before: in its place, with the lines that made it where those are known.
    fn put_earlier(&mut self, layout: &'a Layout) {
        for segment in layout.segments() {
            let mut level = Level { allocated: self.allocator.allocated, reserved: self.allocator.reserved };
            level.reserved = level.reserved.saturating_add(segment.size);
            let handles = self.allocator.put_earlier(&segment);
            for ((address, size), block) in segment.used.iter().zip(handles) {
                let stack = layout.used.get(address).map_or(&[][..], |known| &known.stack);
                level.allocated = level.allocated.saturating_add(*size);
                let taken = Op::Take { allocation: self.stacks.len(), size: *size, stream: segment.stream };
                self.note(taken, *address, block, stack, level);
                self.account.origins.push(None);
            }
        }
        self.account.earlier = self.stacks.len();
    }

    fn follow(&mut self, notes: &Notes) {
        let mut marks: Vec<&Mark> = notes.marks().collect();
        marks.sort_by_key(|mark| mark.allocations);
        let mut marks = marks.into_iter().peekable();
        let mut releasing = false;
        let events = self.events;
        for (place, event) in events.iter().enumerate() {
            match event.action {
                Action::Alloc => self.take(place),
                Action::FreeCompleted => self.give(event.address),
                Action::OutOfMemory => self.want(event),
                Action::SegmentAlloc | Action::SegmentMap => self.new_segments.push_back(event.address),
                Action::SegmentFree | Action::SegmentUnmap => self.release(event.address, event.action, releasing),
                _ => {}
            }
            releasing = matches!(event.action, Action::SegmentFree | Action::SegmentUnmap);
            while let Some(mark) = marks.next_if(|mark| mark.allocations <= self.stacks.len()) {
                self.tag(mark);
            }
        }
    }

    fn take(&mut self, place: usize) {
        let event = &self.events[place];
        self.allocator.expect_segments_at(std::mem::take(&mut self.new_segments));
        // Without a limit no request fails.
        let Ok(block) = self.allocator.malloc(event.size, event.stream) else { return };
        self.account.exact &= self.allocator.address(block) == event.address;
        let taken = Op::Take { allocation: self.stacks.len(), size: event.size, stream: event.stream };
        let level = Level { allocated: self.allocator.allocated, reserved: self.allocator.reserved };
        self.note(taken, event.address, block, &event.stack, level);
        self.account.origins.push(Some(place));
    }

    /// Writes down what was taken, and how much is held then.
    fn note(&mut self, taken: Op, address: u64, block: Handle, stack: &'a [u32], level: Level) {
        let allocation = self.stacks.len();
        self.stacks.push(stack);
        self.account.ops.push(taken);
        self.live.insert(address, (allocation, block));
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

    /// Of such an event the address is what the driver had free.
    fn want(&mut self, event: &Event) {
        let held = Level { allocated: self.allocator.allocated, reserved: self.allocator.reserved };
        let ops = self.account.ops.len();
        self.account.wants.push(Want { ops, size: event.size, stream: event.stream, held, free: event.address });
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
        let frames: Vec<&Frame> = self.snapshot.stack(self.stacks[allocation]).collect();
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
    use crate::settings::Settings;

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

    /// Two blocks of 12 MiB are free, one of them the rest of a segment. A small request cuts the lower one; depending on which
    /// that is, the next finds 12 MiB for its 11.5 and gets all of it, or a larger block that is cut.
    fn by_address() -> Snapshot {
        let (first, second, third) = (1 << 44, (1 << 44) + 100 * MIB, (1 << 44) + 200 * MIB);
        let events = vec![
            event(Action::SegmentAlloc, second, 12 * MIB, &[]),
            event(Action::Alloc, second, 12 * MIB, &[]),
            event(Action::SegmentAlloc, first, 20 * MIB, &[]),
            event(Action::Alloc, first, 8 * MIB, &[]),
            event(Action::FreeCompleted, second, 12 * MIB, &[]),
            event(Action::Alloc, first + 8 * MIB, 3 * MIB, &[]),
            event(Action::FreeCompleted, first, 8 * MIB, &[]),
            event(Action::Alloc, second, 23 * MIB / 2, &[]),
            event(Action::SegmentAlloc, third, 30 * MIB, &[]),
            event(Action::Alloc, third, 30 * MIB, &[]),
        ];
        Snapshot { traces: vec![events], ..Snapshot::default() }
    }

    #[test]
    fn what_is_allocated_depends_on_addresses_and_has_a_range() {
        let account = Account::of(&by_address(), &Notes::default());
        assert!(account.exact);
        assert_eq!(account.peak.allocated, 45 * MIB);
        let range = account.ranges(&Settings::default()).allocated;
        assert_eq!((range.lowest_bytes, range.highest_bytes), (89 * MIB / 2, 45 * MIB));
    }

    #[test]
    fn a_replay_under_a_limit_fails_where_memory_ends() {
        let account = Account::of(&snapshot(), &Notes::default());
        assert!(account.replay(&Settings::default(), 500 * MIB, Addresses::Rising).is_ok());
        let fall = account.replay(&Settings::default(), 95 * MIB, Addresses::Rising).unwrap_err();
        assert_eq!((fall.allocation, fall.requested), (3, 20 * MIB));
    }
}
