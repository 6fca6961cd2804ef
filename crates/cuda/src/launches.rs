//! What a phase launches: what each launch touches, whose work it does, and the lane that it belongs to.

use plimsoll_core::kernels::cuda::Recorded;
use smallvec::SmallVec;
use std::ops::Range;

/// The bytes that a node reads and writes; its workspace counts as written.
#[derive(Clone, Debug)]
pub(super) struct Touched {
    pub reads: Vec<Range<u64>>,
    pub writes: Vec<Range<u64>>,
}

impl Touched {
    /// Whether both may run in any order, or at once.
    pub(super) fn is_independent_of(&self, other: &Touched) -> bool {
        !meet(&self.writes, &other.writes) && !meet(&self.writes, &other.reads) && !meet(&self.reads, &other.writes)
    }
}

fn meet(a: &[Range<u64>], b: &[Range<u64>]) -> bool {
    a.iter().any(|a| b.iter().any(|b| a.start < b.end && b.start < a.end))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Kernels,
    FromHost,
    ToHost,
}

impl Lane {
    /// Where a launch belongs, with the host's region lying at `host`.
    pub(super) fn of(launch: &Recorded, host: &Range<u64>) -> Lane {
        match launch {
            Recorded::Copy { from, .. } if host.contains(from) => Lane::FromHost,
            Recorded::Copy { to, .. } if host.contains(to) => Lane::ToHost,
            _ => Lane::Kernels,
        }
    }
}

/// A launch, and what the node it belongs to touches.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub launch: Recorded,
    pub touched: Touched,
    /// The places of its nodes in the order, the last one being where it runs, and what share of it each is.
    pub ticks: Shares,
    pub lane: Lane,
}

/// What runs as one, and whose work it does.
#[derive(Clone, Debug)]
pub struct Joined {
    pub shares: Shares,
    pub launch: Recorded,
    pub(super) touched: Touched,
    pub(super) lane: Lane,
}

/// The places of the nodes that a launch runs, each with its share of the work.
pub type Shares = SmallVec<[(usize, f64); 1]>;
