//! The loop nest of one task: blocks of columns, blocks of k, blocks of rows, panels of B, panels of A.

use super::blocking::{self, MAX_ROWS, NR, Split};
use super::kernel::{Kernel, Tile};
use super::{Dims, Epilogue, Matrix, pack};
use crate::kernels::cpu::float::Float;
use std::ops::Range;

/// The right-hand operand: as it lies in memory, or packed beforehand.
#[derive(Clone, Copy)]
pub enum Right<T> {
    Plain(Matrix<T>),
    Packed(*const T),
}

pub struct Product<'a, T> {
    pub kernel: &'a Kernel<T>,
    pub dims: Dims,
    pub a: Matrix<T>,
    pub c: *mut T,
    pub ldc: usize,
    pub epilogue: Epilogue<T>,
}

/// A block of B ready for the kernel: whole panels of NR columns packed or in place, a last narrow one packed.
struct BlockB<T> {
    panels: *const T,
    /// From one panel to the next, and from one row of a panel to the next.
    panel_stride: usize,
    step: usize,
    narrow: *const T,
    columns: Range<usize>,
    depth: Range<usize>,
}

impl<T> BlockB<T> {
    /// Start and step of the panel at `column` of the block, which has `cols` columns.
    #[inline(always)]
    unsafe fn panel(&self, column: usize, cols: usize) -> (*const T, usize) {
        match cols == NR {
            true => (unsafe { self.panels.add(column / NR * self.panel_stride) }, self.step),
            false => (self.narrow, NR),
        }
    }
}

/// Where the kernel finds a block of A: panel by panel, or in place.
struct BlockA<T> {
    ptr: *const T,
    rows: Range<usize>,
    packed: bool,
}

impl<T: Float> Product<'_, T> {
    /// # Safety
    /// See [`super::gemm`].
    pub unsafe fn run(&self, b: Right<T>, scratch: &mut [T]) {
        let Dims { m, n, k } = self.dims;
        if m == 0 || n == 0 {
            return;
        }
        let (packed_a, packed_b) = self.cut_scratch(scratch);
        for columns in blocking::n_split(n, k).pieces() {
            for depth in Split::k_blocks(k) {
                let block = unsafe { self.block_b(b, columns.clone(), depth, packed_b) };
                for rows in blocking::m_split(m).pieces() {
                    unsafe {
                        let left = self.block_a(rows, &block.depth, packed_a);
                        self.multiply(&left, &block);
                    }
                }
            }
        }
    }

    /// Packed A and packed B, from the first cache line in the scratch.
    fn cut_scratch<'s>(&self, scratch: &'s mut [T]) -> (&'s mut [T], &'s mut [T]) {
        let (a, b) = blocking::packed_lens(self.dims);
        let skip = scratch.as_ptr().align_offset(64);
        let Some(aligned) = scratch.get_mut(skip..).filter(|rest| rest.len() >= a + b) else {
            panic!("a product of {:?} needs {} elements of scratch", self.dims, blocking::serial_scratch(self.dims));
        };
        let (packed_b, rest) = aligned.split_at_mut(b);
        (&mut rest[..a], packed_b)
    }

    unsafe fn block_b(&self, b: Right<T>, columns: Range<usize>, depth: Range<usize>, space: &mut [T]) -> BlockB<T> {
        let whole = columns.len() / NR * NR;
        let panel_stride = depth.len() * NR;
        unsafe {
            let panels = match b {
                Right::Packed(packed) => {
                    let width = self.dims.n.next_multiple_of(NR);
                    // A block of columns starts at a multiple of NR, so whole panels precede it.
                    packed.add(depth.start * width + columns.start * depth.len())
                }
                Right::Plain(b) => {
                    let part = b.offset(depth.start, columns.start);
                    if blocking::leave_b(self.dims.m) && b.col_stride == 1 {
                        // Only the narrow panel is packed: the kernel would read past its columns.
                        pack::block_b(self.kernel, depth.len(), columns.len() - whole, part.offset(0, whole), space);
                        let (panels, narrow, step) = (part.ptr, space.as_ptr(), b.row_stride);
                        return BlockB { panels, panel_stride: NR, step, narrow, columns, depth };
                    }
                    pack::block_b(self.kernel, depth.len(), columns.len(), part, space);
                    space.as_ptr()
                }
            };
            let narrow = panels.add(whole * depth.len());
            BlockB { panels, panel_stride, step: NR, narrow, columns, depth }
        }
    }

    unsafe fn block_a(&self, rows: Range<usize>, depth: &Range<usize>, space: &mut [T]) -> BlockA<T> {
        let part = unsafe { self.a.offset(rows.start, depth.start) };
        if self.a.col_stride == 1 && blocking::leave_a(self.dims.n) {
            return BlockA { ptr: part.ptr, rows, packed: false };
        }
        for panel in blocking::panels(rows.len(), self.kernel.max_rows.min(MAX_ROWS)) {
            let dst = &mut space[panel.start * depth.len()..];
            unsafe { pack::panel_a(self.kernel, panel.len(), depth.len(), part.offset(panel.start, 0), dst) };
        }
        BlockA { ptr: space.as_ptr(), rows, packed: true }
    }

    /// All tiles of a block of A with a block of B.
    unsafe fn multiply(&self, left: &BlockA<T>, right: &BlockB<T>) {
        let depth = right.depth.len();
        let (first, last) = (right.depth.start == 0, right.depth.end == self.dims.k);
        let width = right.columns.len();
        for column in (0..width).step_by(NR) {
            let cols = NR.min(width - column);
            let at = right.columns.start + column;
            for panel in blocking::panels(left.rows.len(), self.kernel.max_rows.min(MAX_ROWS)) {
                let rows = panel.len();
                let (step, row, start) = match left.packed {
                    true => (rows, 1, panel.start * depth),
                    false => (1, self.a.row_stride, panel.start * self.a.row_stride),
                };
                unsafe {
                    let (b, b_step) = right.panel(column, cols);
                    let c = self.c.add((left.rows.start + panel.start) * self.ldc + at);
                    let tile = Tile {
                        depth,
                        a: left.ptr.add(start),
                        a_row: row,
                        a_step: step,
                        b,
                        b_step,
                        c,
                        ldc: self.ldc,
                        cols,
                        alpha: self.epilogue.alpha,
                        bias: self.epilogue.bias.filter(|_| last).map(|bias| bias.add(at)),
                        add: self.epilogue.accumulate || !first,
                    };
                    self.kernel.tile(rows, &tile);
                    if last {
                        self.epilogue.activation.apply_tile(c, self.ldc, rows, cols);
                    }
                }
            }
        }
    }
}
