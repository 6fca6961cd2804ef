//! The gradients of whole heads in one pass, by groups of four warps (group_heads.cu): when that is worth it, and what a block
//! has in shared memory.

use super::groups::MULTIPROCESSORS;
use super::kernel::AttentionShape;
use super::{Attention, Bias};

/// Queries of a tile, and keys.
const QUERIES: usize = 64;
const KEYS: usize = 128;
/// Tiles of keys that the bits of a word stand for.
const MOST_KEY_TILES: usize = 32;
/// Bytes of the rows of a tile of keys, or of values, or of queries and their gradients; of slopes; and of a tile's sums.
const TILE: usize = 16 << 10;
/// The most shared memory of a block.
const MOST_SHARED: usize = 227 << 10;

/// How many places a block has for what is brought, and for how many tiles of queries it has sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub places: usize,
    pub key_places: usize,
    /// For draws of a tile.
    pub drawn_places: usize,
    /// None, where all keys are one tile: what is found there is the gradient.
    pub summed: usize,
}

impl Room {
    /// The largest that fits: more places hide more of what a tile waits for.
    pub(super) fn new(shape: &AttentionShape, dropped: bool) -> Option<Room> {
        let summed = if shape.k_len > KEYS { shape.q_len.div_ceil(QUERIES) } else { 0 };
        let rooms = [[3, 2, 2], [3, 1, 2], [3, 1, 1]];
        let rooms = rooms.map(|[places, key_places, drawn_places]| Room { places, key_places, drawn_places, summed });
        rooms.into_iter().find(|room| room.bytes(dropped) <= MOST_SHARED)
    }

    /// Tiles, and what the file calls notes.
    pub(super) fn bytes(&self, dropped: bool) -> usize {
        let (slopes, work, round_keys) = (2, 2 * 32, 32);
        let barriers = 16 * (self.places + self.key_places + self.drawn_places + slopes);
        let of_tiles = self.places * 2 * 4 * QUERIES + self.drawn_places * if dropped { 4 * 256 } else { 16 };
        TILE * (self.places + self.key_places + slopes + self.summed) + barriers + work + round_keys + of_tiles
    }
}

/// Threads of a block: two groups that multiply, one that brings, and one that draws.
pub(super) fn threads(dropped: bool) -> usize {
    if dropped { 512 } else { 384 }
}

/// Whether gradients are computed so: heads that see all keys, whose sums have room, and so many that most multiprocessors have
/// one to the end. Measured on an H200: what is drawn once and not twice is worth a few more that have none.
pub(super) fn compute(op: &Attention, shape: &AttentionShape) -> bool {
    let plain = shape.head_dim == 64 && shape.bias == Bias::None && !op.causal && !op.offset;
    let (heads, dropped) = (shape.batch * shape.heads, op.dropout.is_some());
    let tenths = if dropped { 7 } else { 8 };
    let worth = 10 * heads >= tenths * heads.next_multiple_of(MULTIPROCESSORS);
    let held = shape.k_len.div_ceil(KEYS) <= MOST_KEY_TILES && Room::new(shape, dropped).is_some();
    plain && worth && held
}
