//! How a product is cut: pure functions of its shape (and of the thread count, for the cut into tasks).

use super::Dims;
use std::ops::Range;

/// Columns of a packed panel of B, and of a tile of C.
pub const NR: usize = 32;
/// The tallest tile that any kernel has.
pub const MAX_ROWS: usize = 14;
/// Longest run of k summed in registers before C is touched: a panel of B (32 KiB) and one of A (14 KiB) then share a
/// first-level cache of 48 KiB.
const MAX_K_BLOCK: usize = 256;
/// Elements of a packed block of B: it stays in half of a 2 MiB second-level cache.
const B_BLOCK: usize = 256 * 1024;
/// Rows of A packed at a time.
const MAX_M_BLOCK: usize = 4 * MAX_ROWS;
/// Room to start the scratch at a cache line, and for whole-vector writes past the end of a packed panel of A.
const SLACK: usize = 32;
/// Below this many multiply-adds, waking another thread costs more than it gives.
const SERIAL_WORK: usize = 1 << 18;

/// `len` cut into the fewest pieces of at most `max`, all of one `size` (a multiple of `unit`) but the last.
#[derive(Clone, Copy)]
pub struct Split {
    len: usize,
    size: usize,
}

impl Split {
    pub fn new(len: usize, max: usize, unit: usize) -> Self {
        let pieces = len.div_ceil(max).max(1);
        Split { len, size: len.div_ceil(pieces).next_multiple_of(unit).max(1) }
    }

    /// The blocks of the sum over k: they fix the order of summation, so they depend on k alone.
    pub fn k_blocks(k: usize) -> impl Iterator<Item = Range<usize>> {
        Split::new(k, MAX_K_BLOCK, 8).pieces()
    }

    pub fn pieces(self) -> impl Iterator<Item = Range<usize>> {
        let Split { len, size } = self;
        // One empty piece for a length of zero: with k = 0 there is still an epilogue to apply.
        (0..len.div_ceil(size).max(1)).map(move |i| i * size..((i + 1) * size).min(len))
    }

    fn largest(self) -> usize {
        self.size.min(self.len)
    }
}

/// Blocks of columns, given the length of a block of k.
pub fn n_split(n: usize, k: usize) -> Split {
    let depth = Split::new(k, MAX_K_BLOCK, 8).largest().max(1);
    Split::new(n, (B_BLOCK / depth / NR).max(1) * NR, NR)
}

/// Blocks of rows.
pub fn m_split(m: usize) -> Split {
    Split::new(m, MAX_M_BLOCK, 1)
}

/// Whether rows of A that lie along k are read in place: with few columns, packing them does not pay back.
pub fn leave_a(n: usize) -> bool {
    n <= 4 * NR
}

/// Whether rows of B that lie along n are read in place: with few rows of A, packing them does not pay back.
pub fn leave_b(m: usize) -> bool {
    m <= MAX_ROWS
}

/// `rows` cut into the fewest panels of at most `tallest` rows, as equal as can be.
pub fn panels(rows: usize, tallest: usize) -> impl Iterator<Item = Range<usize>> {
    let count = rows.div_ceil(tallest);
    (0..count).map(move |i| i * rows / count..(i + 1) * rows / count)
}

/// Elements of packed A and of packed B that the serial driver keeps.
pub fn packed_lens(dims: Dims) -> (usize, usize) {
    let depth = Split::new(dims.k, MAX_K_BLOCK, 8).largest();
    let width = n_split(dims.n, dims.k).largest().next_multiple_of(NR);
    (m_split(dims.m).largest() * depth + SLACK, width * depth)
}

pub fn serial_scratch(dims: Dims) -> usize {
    let (a, b) = packed_lens(dims);
    (a + b + SLACK).next_multiple_of(SLACK)
}

/// As much as [`serial_scratch`] can be for any shape up to `most`.
pub fn serial_scratch_up_to(most: Dims) -> usize {
    let depth = most.k.next_multiple_of(8).min(MAX_K_BLOCK);
    let a = most.m.min(MAX_M_BLOCK) * depth + SLACK;
    let b = (most.n.next_multiple_of(NR) * depth).min(B_BLOCK);
    (a + b + SLACK).next_multiple_of(SLACK)
}

/// Scratch for a product on up to `threads` threads: a bound that grows with every side, so that a smaller product never
/// asks for more than a larger one, and never less than one thread needs. What the best cut of a shape wants is neither:
/// one of 250 terms is summed in one block, one of 300 in two smaller ones.
pub fn scratch_up_to(most: Dims, threads: usize) -> usize {
    let (alone, width) = (serial_scratch_up_to(most), most.n.next_multiple_of(NR));
    let tasks = threads.min(most.m.saturating_mul(width / NR));
    if tasks <= 1 || most.m.saturating_mul(most.n).saturating_mul(most.k) <= SERIAL_WORK {
        return alone;
    }
    let depth = most.k.next_multiple_of(8).min(MAX_K_BLOCK);
    // Tasks as square as can be: so many columns of B are packed by all of them together, each by those above one
    // another. Half as much again under the root, and half a panel of each, leave room for cuts in whole numbers.
    let area = most.m.saturating_mul(width).saturating_mul(tasks);
    let square = area.saturating_add(area / 2).isqrt().clamp(width, tasks * width);
    let a = tasks * (most.m.min(MAX_M_BLOCK) * depth + SLACK);
    let b = ((square + tasks * NR / 2) * depth).min(tasks * B_BLOCK);
    (a + b + tasks * SLACK).next_multiple_of(SLACK).max(alone)
}

/// Tasks for a batch: 1 means one product after the other, each on all threads.
pub fn batch_tasks(count: usize, dims: Dims, threads: usize) -> usize {
    let even = count >= 4 * threads || (count >= threads && count.is_multiple_of(threads));
    if even && count * dims.m * dims.n * dims.k > SERIAL_WORK { threads } else { 1 }
}

/// A cut of C into one rectangle per task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    down: usize,
    across: usize,
}

impl Grid {
    /// The cut whose largest task is estimated the cheapest.
    pub fn choose(dims: Dims, threads: usize) -> Grid {
        if dims.m * dims.n * dims.k <= SERIAL_WORK {
            return Grid { down: 1, across: 1 };
        }
        Grid::cheapest(dims, Grid::all(threads))
    }

    /// The same among those whose scratch fits into `available`.
    pub fn fitting(dims: Dims, threads: usize, available: usize) -> Grid {
        let fits = |grid: &Grid| grid.tasks() * grid.task_scratch(dims) <= available;
        match Grid::choose(dims, threads) {
            fastest if fits(&fastest) => fastest,
            _ => Grid::cheapest(dims, Grid::all(threads).filter(fits)),
        }
    }

    /// Every cut for at most so many threads.
    fn all(threads: usize) -> impl Iterator<Item = Grid> {
        (1..=threads).flat_map(move |down| (1..=threads / down).map(move |across| Grid { down, across }))
    }

    fn cheapest(dims: Dims, grids: impl Iterator<Item = Grid>) -> Grid {
        grids.min_by_key(|grid| (grid.cost(dims), grid.tasks())).unwrap_or(Grid { down: 1, across: 1 })
    }

    pub fn tasks(self) -> usize {
        self.down * self.across
    }

    /// The shape of the largest task.
    pub fn task_dims(self, dims: Dims) -> Dims {
        let n = dims.n.div_ceil(self.across).next_multiple_of(NR).min(dims.n);
        Dims { m: dims.m.div_ceil(self.down), n, k: dims.k }
    }

    /// Scratch for any task. The rectangles at the edge are smaller, yet may be cut into fewer and larger blocks.
    pub fn task_scratch(self, dims: Dims) -> usize {
        let whole = self.task_dims(dims);
        let edge = |len: usize, size: usize| len.checked_rem(size).filter(|&rest| rest > 0).unwrap_or(size);
        let [m, n] = [[whole.m, edge(dims.m, whole.m)], [whole.n, edge(dims.n, whole.n)]];
        let shapes = m.iter().flat_map(|&m| n.iter().map(move |&n| Dims { m, n, k: dims.k }));
        shapes.map(serial_scratch).fold(0, usize::max)
    }

    /// Rows and columns of C that are the task's; empty when the shape has run out.
    pub fn rectangle(self, dims: Dims, task: usize) -> (Range<usize>, Range<usize>) {
        let size = self.task_dims(dims);
        let piece = |i: usize, size: usize, len: usize| (i * size).min(len)..((i + 1) * size).min(len);
        (piece(task / self.across, size.m, dims.m), piece(task % self.across, size.n, dims.n))
    }

    /// Estimated time of the largest task, in units of one packed element per k (packing moves about 4 elements in
    /// the time of a step of 32 multiply-adds).
    pub fn cost(self, dims: Dims) -> usize {
        let Dims { m, n, k } = self.task_dims(dims);
        let width = n.next_multiple_of(NR);
        let passes = n_split(n, k).pieces().count();
        m * width / 8 + width + m * passes
    }
}
