//! Attention by groups of four warps, on cards whose tensor cores take them (Hopper): when it runs, and how it is cut.

use super::cuda::{are_aligned, source};
use super::*;
use crate::kernels::cuda::{Kernel, Launch, Source};
use kernel::AttentionShape;

const FORWARD: Source = source!("group_forward", "../../kernels/cuda/half", "tiles", "half", "wgmma", "groups");
const QUERIES: Source =
    source!("group_queries", "../../kernels/cuda/half", "tiles", "half", "wgmma", "groups", "diagonals");
const KEYS: Source = source!("group_keys", "../../kernels/cuda/half", "tiles", "half", "wgmma", "groups");

/// Rows of a group.
const GROUP_ROWS: usize = 64;
/// What tiles in shared memory start at a multiple of.
const ALIGNMENT: usize = 1024;

/// Floats in which a warp adds up along diagonals, as diagonals.cuh says.
const SKEWED: usize = 540;

/// What a block has: groups of its own rows, and tiles of the other side's. Measured on an H200.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    groups: usize,
    /// Rows of a tile.
    far: usize,
    /// Blocks to a multiprocessor: of single groups, which wait for nobody else, while one computes exponentials another
    /// multiplies.
    resident: usize,
}

impl Cut {
    fn new(entry: &str, shape: &AttentionShape, dropped: bool) -> Cut {
        let (groups, far, resident) = match (entry, shape.head_dim, dropped) {
            ("forward", 64, _) => (1, 64, 4),
            ("backward_keys", 64, true) => (1, 64, 2),
            (_, 64, _) => (1, 64, 3),
            ("forward", ..) => (2, 128, 1),
            // Sums of 128 columns leave room for one block, whose groups share what comes in.
            _ => (2, 64, 1),
        };
        Cut { groups, far, resident }
    }

    /// Rows of a block.
    fn own(&self) -> usize {
        GROUP_ROWS * self.groups
    }
}

/// The most rows of a relative bias's table: every warp has sums of its own in shared memory.
const MOST_BIAS_ROWS: usize = 128;

/// Whether groups compute this: attention in half precision, without a bias or with a relative one, of which blocks that are
/// mostly full have most.
pub(super) fn compute(op: &Attention, shape: &AttentionShape, dtype: DType, launch: &Launch<'_>) -> bool {
    let biased = shape.bias.tables() == 1 && shape.bias_rows <= MOST_BIAS_ROWS;
    let plain = (shape.bias == Bias::None || biased) && !op.offset && op.scale > 0.0;
    let held = dtype.is_half() && matches!(shape.head_dim, 64 | 128) && are_aligned(launch, dtype, 16);
    launch.queue.arch() == 90 && plain && held && [shape.q_len, shape.k_len].into_iter().all(|len| fills(len, shape))
}

/// Whether three quarters of the rows of all blocks are there.
fn fills(len: usize, shape: &AttentionShape) -> bool {
    let own = Cut::new("backward_keys", shape, false).own();
    len > 0 && 4 * len >= 3 * len.next_multiple_of(own)
}

/// The file of a kernel, with what it is cut by.
pub(super) fn kernel(entry: &'static str, shape: &AttentionShape, dropped: bool) -> Kernel {
    let source = match entry {
        "forward" => FORWARD,
        "backward_queries" => QUERIES,
        _ => KEYS,
    };
    let cut = Cut::new(entry, shape, dropped);
    let kernel = Kernel::new(source, entry).define("GROUPS", cut.groups);
    kernel.define("FAR", cut.far).define("RESIDENT", cut.resident)
}

/// The blocks that `len` rows take, how many threads each has, and its dynamic shared memory.
pub(super) fn blocks(entry: &str, shape: &AttentionShape, dropped: bool, len: usize) -> (usize, usize, usize) {
    let cut = Cut::new(entry, shape, dropped);
    (len.div_ceil(cut.own()), 128 * cut.groups, shared(entry, shape, dropped))
}

/// Tiles of a block's own rows and of the other side's, and what the files call notes.
fn shared(entry: &str, shape: &AttentionShape, dropped: bool) -> usize {
    let cut = Cut::new(entry, shape, dropped);
    let (far, round_keys, biased) = (cut.far, 32, shape.bias.tables() == 1);
    let (own_tiles, far_tiles, notes) = match entry {
        "forward" => (1, 4, 2 * 4 * far),
        "backward_queries" => (2, 5, 2 * 4 * far + 4 * cut.own()),
        _ => (2, 4, 2 * (2 * 4 * far + 16 * if dropped { far / 2 } else { 1 })),
    };
    let near = 2 * 4 * if biased { cut.own() + far } else { 4 };
    let of_warp = if biased && entry == "backward_queries" { 4 * (SKEWED + shape.bias_rows) } else { 0 };
    let tiles = 2 * shape.head_dim * (own_tiles * cut.own() + far_tiles * far);
    ALIGNMENT + tiles + notes + round_keys + near + 4 * cut.groups * of_warp
}
