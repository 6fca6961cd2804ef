//! Attention by groups of four warps, on cards whose tensor cores take them (Hopper): when it runs, and how it is cut.

use super::form::{are_aligned, source};
use super::*;
use crate::kernels::cuda::{Kernel, Launch, Source};
use kernel::AttentionShape;

const FORWARD: Source =
    source!("group_forward", "../../kernels/cuda/half", "tiles", "half", "wgmma", "groups", "softmax");
const ITEMS: Source =
    source!("group_items", "../../kernels/cuda/half", "tiles", "half", "wgmma", "groups", "softmax", "handover");
const QUERIES: Source =
    source!("group_queries", "../../kernels/cuda/half", "tiles", "half", "wgmma", "groups", "diagonals");
const KEYS: Source = source!("group_keys", "../../kernels/cuda/half", "tiles", "half", "wgmma", "groups", "columns");
const BACKWARD: Source =
    source!("group_backward", "../../kernels/cuda/half", "tiles", "half", "wgmma", "groups", "columns", "handover");
const HEADS: Source =
    source!("group_heads", "../../kernels/cuda/half", "tiles", "half", "wgmma", "groups", "columns", "handover");

/// Rows of a group.
const GROUP_ROWS: usize = 64;
/// What tiles in shared memory start at a multiple of.
const ALIGNMENT: usize = 1024;

/// Floats in which a warp adds up along diagonals, as diagonals.cuh says.
const SKEWED: usize = 540;

/// Multiprocessors of the largest card of this architecture. Of blocks that take one item after the other there are as many:
/// on a smaller card, those that start late find none left.
pub(super) const MULTIPROCESSORS: usize = 132;

/// From so many keys on, large blocks are faster for causal heads of 64 too: few of their tiles are seen by some groups only.
const LONG_CAUSAL: usize = 8192;

/// What a block has: groups of its own rows, and tiles of the other side's. Measured on an H200.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    groups: usize,
    /// Rows of a tile.
    far: usize,
    /// Blocks to a multiprocessor: of single groups, which wait for nobody else, while one computes exponentials another
    /// multiplies.
    resident: usize,
    /// Whether one more group brings the tiles.
    brought: bool,
    /// Heads whose rows a block has side by side.
    sides: usize,
}

impl Cut {
    fn new(entry: &str, shape: &AttentionShape, dropped: bool) -> Cut {
        let small = |resident: usize| Cut { resident, brought: false, ..Cut::large(1) };
        match (entry, shape.head_dim, dropped) {
            ("forward", 64, _) => Cut::large_forward(shape).unwrap_or(small(4)),
            ("backward_heads", ..) => Cut::large(2),
            ("backward_keys", 64, true) => small(2),
            (_, 64, _) => small(3),
            ("forward", ..) => Cut { far: 128, ..Cut::large(2) },
            ("backward", ..) => Cut::large(2),
            // Sums of 128 columns leave room for one block, whose groups share what comes in.
            _ => Cut { brought: false, ..Cut::large(2) },
        }
    }

    fn large(groups: usize) -> Cut {
        Cut { groups, far: 64, resident: 1, brought: true, sides: 1 }
    }

    /// Large blocks with heads of 64, if most of their rows are there: with as many groups as leave the fewest empty, or with
    /// two short heads each.
    fn large_forward(shape: &AttentionShape) -> Option<Cut> {
        let rows = |groups: usize| shape.q_len.next_multiple_of(GROUP_ROWS * groups);
        let fills = |groups: usize| 4 * shape.q_len >= 3 * rows(groups);
        if shape.causal && shape.k_len < LONG_CAUSAL {
            return None;
        }
        let short = shape.q_len <= 2 * GROUP_ROWS && fills(2) && shape.bias == Bias::None;
        // Fewer are spread over all multiprocessors by small blocks.
        if short && shape.heads.is_multiple_of(2) && shape.batch * shape.heads >= 2 * MULTIPROCESSORS {
            return Some(Cut { sides: 2, ..Cut::large(4) });
        }
        let groups = [4, 3].into_iter().min_by_key(|&groups| rows(groups))?;
        fills(groups).then(|| Cut::large(groups))
    }

    /// Rows of a block.
    fn own(&self) -> usize {
        GROUP_ROWS * self.groups
    }

    fn threads(&self) -> usize {
        128 * (self.groups + self.brought as usize)
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
    let cut = Cut::new(entry, shape, dropped);
    let source = match entry {
        "forward" if cut.brought => ITEMS,
        "forward" => FORWARD,
        "backward_queries" => QUERIES,
        "backward_keys" => KEYS,
        "backward_heads" => HEADS,
        _ => BACKWARD,
    };
    let kernel = Kernel::new(source, entry).define("GROUPS", cut.groups);
    let kernel = kernel.define("FAR", cut.far).define("RESIDENT", cut.resident);
    let kernel = if source.name == ITEMS.name { kernel.define("SIDES", cut.sides) } else { kernel };
    match room(entry, shape, dropped) {
        Some(room) => kernel
            .define("PLACES", room.places)
            .define("KEY_PLACES", room.key_places)
            .define("DRAWN_PLACES", room.drawn_places)
            .define("SUMMED", room.summed),
        None => kernel,
    }
}

/// What a block has, if it computes whole heads.
fn room(entry: &str, shape: &AttentionShape, dropped: bool) -> Option<heads::Room> {
    heads::Room::new(shape, dropped).filter(|_| entry == "backward_heads")
}

/// The blocks that `len` rows of a head take, how many threads each has, and its dynamic shared memory.
pub(super) fn blocks(entry: &str, shape: &AttentionShape, dropped: bool, len: usize) -> (usize, usize, usize) {
    if let Some(room) = room(entry, shape, dropped) {
        return (1, heads::threads(dropped), room.bytes(dropped));
    }
    let cut = Cut::new(entry, shape, dropped);
    (len.div_ceil(cut.own() / cut.sides), cut.threads(), shared(entry, shape, dropped))
}

/// The most blocks of a launch: those that take one item after the other are never more than run at a time.
pub(super) fn most_blocks(entry: &str, shape: &AttentionShape, dropped: bool) -> usize {
    let takes_items = matches!(entry, "forward" | "backward_heads") && Cut::new(entry, shape, dropped).brought;
    if takes_items { MULTIPROCESSORS } else { usize::MAX }
}

/// Tiles of a block's own rows and of the other side's, and what the files call notes.
fn shared(entry: &str, shape: &AttentionShape, dropped: bool) -> usize {
    let cut = Cut::new(entry, shape, dropped);
    let (far, one_pass, biased) = (cut.far, entry == "backward", shape.bias.tables() == 1);
    let by_items = entry == "forward" && cut.brought;
    let column = 2 * 4 * far + 16 * if dropped { far / 2 } else { 1 };
    // Places for tiles have two barriers of 8 bytes each. `near`: tiles whose part of a relative bias is there.
    let (own_tiles, far_tiles, near, notes) = match entry {
        "forward" if by_items => {
            let places = if shape.head_dim == 64 { 3 } else { 2 };
            (2, 2 * places * cut.sides, places, 16 * (2 + 2 * places) + 16 + 2 * 24 + places * 4 * far)
        }
        "forward" => (1, 4, 2, 2 * 4 * far),
        "backward_queries" => (2, 5, 2, 2 * 4 * far + 4 * cut.own()),
        "backward_keys" => (2, 4, 2, 2 * column),
        _ => (2, 4, 0, 16 * (1 + 2 + 2 + 2) + 16 + 2 * column),
    };
    // What gradients in one pass have besides: those of scores, and of a tile's queries, both twice; the others have round
    // keys.
    let besides = if one_pass { 2 * cut.own() * 2 * far + 2 * 4 * PART } else { 32 };
    let near = near * 4 * if biased { cut.own() + far } else { 4 };
    let of_warp = if biased && entry == "backward_queries" { 4 * (SKEWED + shape.bias_rows) } else { 0 };
    let tiles = 2 * shape.head_dim * (own_tiles * cut.own() + far_tiles * far);
    // Where files do not say it themselves, tiles start at the next multiple in shared memory.
    let alignment = if one_pass || by_items { 0 } else { ALIGNMENT };
    alignment + tiles + besides + notes + near + 4 * cut.groups * of_warp
}

/// Floats of the gradients of a tile's queries: 64 of these, in a head of 128.
const PART: usize = 64 * 128;

/// The sums of gradients of queries take up to this much at a time, or what one sample needs; then samples are run in groups.
const SUM_BYTES: usize = 128 << 20;

/// Where gradients are added up that are computed in one pass, and not those of queries and those of keys apart: of as many
/// samples as run at a time.
pub(super) struct Sums {
    /// Tiles of queries of all heads of a sample.
    of_sample: usize,
    /// Samples that run at a time.
    pub(super) group: usize,
    batch: usize,
}

impl Sums {
    /// For heads of 128 without a bias, and without dropout, whose draws find no registers there.
    pub(super) fn new(op: &Attention, shape: &AttentionShape, dtype: DType) -> Option<Sums> {
        let plain = shape.bias == Bias::None && op.dropout.is_none();
        let of_sample = shape.heads * shape.q_len.div_ceil(64);
        let group = (SUM_BYTES / (4 * PART)).checked_div(of_sample).unwrap_or(shape.batch);
        let sums = Sums { of_sample, group: group.clamp(1, shape.batch.max(1)), batch: shape.batch };
        (plain && dtype.is_half() && shape.head_dim == 128).then_some(sums)
    }

    /// Bytes of the sums, and of how many have added to each tile's.
    pub(super) fn bytes(&self) -> [usize; 2] {
        Sums::of_tiles(self.group * self.of_sample)
    }

    /// The same for any shorter samples too, of which more run at a time.
    pub(super) fn bytes_up_to(&self) -> [usize; 2] {
        let most = (SUM_BYTES / (4 * PART)).max(self.of_sample);
        Sums::of_tiles(most.min(self.batch * self.of_sample))
    }

    /// Bytes of how many have added to each tile's of these samples.
    pub(super) fn turn_bytes(&self, samples: usize) -> usize {
        Sums::of_tiles(samples * self.of_sample)[1]
    }

    fn of_tiles(tiles: usize) -> [usize; 2] {
        [4 * PART * tiles, 4 * tiles]
    }
}
