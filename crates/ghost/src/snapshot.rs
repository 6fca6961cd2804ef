//! What PyTorch's memory history says (`torch.cuda.memory._snapshot`): every allocation with the lines that made it.

use crate::pickle::{Item, Pickle, PickleError, Place};
use crate::settings::Settings;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum SnapshotError {
    #[error("{path}: {cause}")]
    Io { path: PathBuf, cause: std::io::Error },
    #[error("{path}: {cause}")]
    Pickle { path: PathBuf, cause: PickleError },
    #[error("{path}: this is no memory snapshot of PyTorch: `{what}` is missing or not what it should be")]
    Shape { path: PathBuf, what: &'static str },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    pub file: String,
    pub line: i64,
    pub name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Alloc,
    FreeRequested,
    FreeCompleted,
    SegmentAlloc,
    SegmentFree,
    SegmentMap,
    SegmentUnmap,
    OutOfMemory,
    Other,
}

/// One thing that happened in the allocator.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub action: Action,
    /// Where; for out of memory, what the card had free.
    pub address: u64,
    /// As asked for, before rounding.
    pub size: u64,
    pub stream: u64,
    /// In [`Snapshot::frames`], innermost first.
    pub stack: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    Free,
    Used,
    /// Freed by the program, still waited for by a stream.
    Pending,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    pub size: u64,
    pub requested: u64,
    pub state: BlockState,
    pub stack: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    pub device: i64,
    pub address: u64,
    pub size: u64,
    pub allocated: u64,
    pub stream: u64,
    pub expandable: bool,
    pub blocks: Vec<Block>,
}

#[derive(Debug, Default)]
pub struct Snapshot {
    pub frames: Vec<Frame>,
    /// By device.
    pub traces: Vec<Vec<Event>>,
    pub segments: Vec<Segment>,
    pub settings: Settings,
}

impl Snapshot {
    pub fn open(path: &Path) -> Result<Snapshot, SnapshotError> {
        let bytes = std::fs::read(path).map_err(|cause| SnapshotError::Io { path: path.into(), cause })?;
        let pickle = Pickle::read(&bytes).map_err(|cause| SnapshotError::Pickle { path: path.into(), cause })?;
        drop(bytes);
        Snapshot::of(&pickle).map_err(|what| SnapshotError::Shape { path: path.into(), what })
    }

    /// The snapshot in a pickle, or what of it is missing.
    pub fn of(pickle: &Pickle) -> Result<Snapshot, &'static str> {
        let mut reader = Reader::default();
        let root = pickle.root();
        let segments = root.get("segments").and_then(Item::list).ok_or("segments")?;
        let segments = segments.map(|item| reader.segment(item)).collect::<Option<_>>().ok_or("segments")?;
        let traces = root.get("device_traces").and_then(Item::list).ok_or("device_traces")?;
        let traces = traces.map(|item| reader.trace(item)).collect::<Option<_>>().ok_or("device_traces")?;
        let settings = root.get("allocator_settings").map(Settings::of_snapshot).unwrap_or_default();
        Ok(Snapshot { frames: reader.frames, traces, segments, settings })
    }

    /// Frames of a stack, innermost first.
    pub(crate) fn stack<'a>(&'a self, stack: &'a [u32]) -> impl DoubleEndedIterator<Item = &'a Frame> {
        stack.iter().filter_map(|place| self.frames.get(*place as usize))
    }
}

/// Frames are shared between stacks, in the pickle and here.
#[derive(Default)]
struct Reader {
    frames: Vec<Frame>,
    known: HashMap<Place, u32>,
}

impl Reader {
    fn frame(&mut self, item: Item) -> Option<u32> {
        if let Some(place) = self.known.get(&item.place()) {
            return Some(*place);
        }
        let frame = Frame {
            file: item.get("filename")?.text()?.into(),
            line: item.get("line").and_then(Item::int).unwrap_or(0),
            name: item.get("name")?.text()?.into(),
        };
        let place = u32::try_from(self.frames.len()).ok()?;
        self.frames.push(frame);
        self.known.insert(item.place(), place);
        Some(place)
    }

    fn stack(&mut self, item: Item) -> Vec<u32> {
        let frames = item.get("frames").and_then(Item::list);
        frames.map_or_else(Vec::new, |frames| frames.filter_map(|frame| self.frame(frame)).collect())
    }

    fn trace(&mut self, item: Item) -> Option<Vec<Event>> {
        item.list()?.map(|event| self.event(event)).collect()
    }

    fn event(&mut self, item: Item) -> Option<Event> {
        let action = action(item.get("action")?.text()?);
        let address = item.get("addr").or_else(|| item.get("device_free"));
        Some(Event {
            action,
            address: place(address)?,
            size: size(item.get("size"))?,
            stream: unsigned(item.get("stream")).unwrap_or(0),
            stack: self.stack(item),
        })
    }

    fn segment(&mut self, item: Item) -> Option<Segment> {
        let blocks = item.get("blocks")?.list()?;
        Some(Segment {
            device: item.get("device").and_then(Item::int).unwrap_or(0),
            address: place(item.get("address"))?,
            size: size(item.get("total_size"))?,
            allocated: size(item.get("allocated_size"))?,
            stream: unsigned(item.get("stream")).unwrap_or(0),
            expandable: item.get("is_expandable").and_then(Item::bool).unwrap_or(false),
            blocks: blocks.map(|block| self.block(block)).collect::<Option<_>>()?,
        })
    }

    fn block(&mut self, item: Item) -> Option<Block> {
        let state = match item.get("state")?.text()? {
            "active_allocated" => BlockState::Used,
            "inactive" => BlockState::Free,
            _ => BlockState::Pending,
        };
        let size = size(item.get("size"))?;
        let requested = unsigned(item.get("requested_size")).unwrap_or(size);
        Some(Block { size, requested, state, stack: self.stack(item) })
    }
}

fn action(name: &str) -> Action {
    match name {
        "alloc" => Action::Alloc,
        "free_requested" => Action::FreeRequested,
        "free_completed" => Action::FreeCompleted,
        "segment_alloc" => Action::SegmentAlloc,
        "segment_free" => Action::SegmentFree,
        "segment_map" => Action::SegmentMap,
        "segment_unmap" => Action::SegmentUnmap,
        "oom" => Action::OutOfMemory,
        _ => Action::Other,
    }
}

fn unsigned(item: Option<Item>) -> Option<u64> {
    u64::try_from(item?.int()?).ok()
}

/// No card has so much: what claims it is no snapshot.
const MOST_BYTES: u64 = 1 << 50;
/// Addresses of processes are far below.
const MOST_ADDRESS: u64 = 1 << 60;

fn size(item: Option<Item>) -> Option<u64> {
    unsigned(item).filter(|bytes| *bytes < MOST_BYTES)
}

fn place(item: Option<Item>) -> Option<u64> {
    unsigned(item).filter(|address| *address < MOST_ADDRESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pickle::Pickle;

    /// A small snapshot in the letters of protocol 0.
    const SMALL: &[u8] = b"(dS'segments'\n(lsS'device_traces'\n(l(l(dS'action'\nS'alloc'\nsS'addr'\nI512\nsS'size'\nI100\nsS'frames'\n(l(dS'filename'\nS'a.py'\nsS'line'\nI7\nsS'name'\nS'f'\nsasaas.";

    #[test]
    fn events_come_with_the_lines_that_made_them() {
        let snapshot = Snapshot::of(&Pickle::read(SMALL).unwrap()).unwrap();
        let event = &snapshot.traces[0][0];
        assert_eq!((event.action, event.address, event.size), (Action::Alloc, 512, 100));
        let frames: Vec<_> = snapshot.stack(&event.stack).collect();
        assert_eq!(frames, [&Frame { file: "a.py".into(), line: 7, name: "f".into() }]);
    }

    #[test]
    fn another_pickle_is_refused_by_what_it_lacks() {
        assert_eq!(Snapshot::of(&Pickle::read(b"}.").unwrap()).unwrap_err(), "segments");
        assert_eq!(Snapshot::of(&Pickle::read(b"N.").unwrap()).unwrap_err(), "segments");
    }
}
