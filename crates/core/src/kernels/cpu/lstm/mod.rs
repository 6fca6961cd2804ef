//! One LSTM layer, one or both directions at once, with PyTorch's equations and gate order (i, f, g, o).
//!
//! The input projection is a product outside; here is the recurrence. A direction and a piece of the batch form a task
//! that runs through all time steps alone: states and one block of gates stay in its worker's part of the scratch.

mod backward;
mod forward;
#[cfg(test)]
mod tests;

pub use backward::{Backward, backward, backward_scratch};
pub use forward::{Forward, forward, forward_scratch};

use crate::kernels::cpu::parallel::parallel;

/// Rows of the batch one task carries through time. A constant, so that results do not depend on the threads.
const PIECE: usize = 32;

/// Sizes of a layer; `dirs` is 1, or 2 when a second set of weights runs backwards in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LstmShape {
    pub batch: usize,
    pub time: usize,
    pub hidden: usize,
    pub dirs: usize,
}

impl LstmShape {
    fn gates(&self) -> usize {
        4 * self.hidden
    }

    /// Rows of the batch per task: at most [`PIECE`], evenly spread, and at least two tasks where the batch allows.
    fn piece_rows(&self) -> usize {
        let least = if self.dirs == 1 { 2 } else { 1 };
        let pieces = self.batch.div_ceil(PIECE).max(least);
        self.batch.div_ceil(pieces).max(1)
    }

    fn pieces(&self) -> usize {
        self.batch.div_ceil(self.piece_rows())
    }

    fn tasks(&self) -> usize {
        self.dirs * self.pieces()
    }

    /// Workers share out the tasks in contiguous ranges; each has its own part of the scratch.
    fn workers(&self, threads: usize) -> usize {
        threads.min(self.tasks())
    }

    fn is_empty(&self) -> bool {
        self.batch == 0 || self.time == 0 || self.hidden == 0
    }
}

/// Runs `task(worker, index)` for every index below `tasks`, each worker taking a contiguous range.
fn share_out(workers: usize, tasks: usize, task: impl Fn(usize, usize) + Sync) {
    parallel(workers, |worker| {
        (worker * tasks / workers..(worker + 1) * tasks / workers).for_each(|index| task(worker, index));
    });
}

/// The part of the work one task does: a direction and some rows of the batch.
#[derive(Clone, Copy)]
struct Piece {
    dir: usize,
    first_row: usize,
    rows: usize,
}

impl Piece {
    fn new(shape: &LstmShape, task: usize) -> Self {
        let (dir, piece) = (task / shape.pieces(), task % shape.pieces());
        let first_row = piece * shape.piece_rows();
        Piece { dir, first_row, rows: shape.piece_rows().min(shape.batch - first_row) }
    }

    /// The time index that this direction visits as its `step`-th.
    fn time(&self, shape: &LstmShape, step: usize) -> usize {
        if self.dir == 0 { step } else { shape.time - 1 - step }
    }

    /// Where the `width` values of a row start in a tensor (batch, time, dirs, width).
    fn offset(&self, shape: &LstmShape, row: usize, time: usize, width: usize) -> usize {
        (((self.first_row + row) * shape.time + time) * shape.dirs + self.dir) * width
    }
}
