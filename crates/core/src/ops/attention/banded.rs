//! A disentangled bias on tensor cores, in half precision: what its kernels keep between them, and their launches.
//!
//! Queries and keys meet the rows of the tables inside a tile of scores (disentangled.cu). The backward pass keeps the
//! gradients of the scores of some heads at a time: queries and tables read them once the keys have written them.

use super::backward::Backward;
use super::cuda::Call;
use super::*;
use crate::kernels::cuda::{Arg, CudaError, Grid, Kernel, Launch, Source};
use crate::ops::device::{Regions, int, run_over};
use kernel::AttentionShape;

const POSITIONS: Source = Source { name: "attention/positions", text: include_str!("positions.cu") };

/// Queries, and keys, of a tile.
const TILE: usize = 64;

/// Gradients of scores take up to this much at a time; then heads are run in groups.
const SLOPE_BYTES: usize = 128 << 20;

/// Blocks that fill a large card: with fewer, the gradients of the tables are summed up in shares of the samples.
const TABLE_BLOCKS: usize = 264;
const MOST_SHARES: usize = 8;

/// The most elements of a head, for which registers and the smallest shared memory suffice.
const WIDEST_HEAD: usize = 64;

/// Elements between the rows of what disentangled.cu calls cells, slopes and sheared slopes.
const CELL_PITCH: usize = 156;
const SLOPE_PITCH: usize = 72;
const SHEARED_PITCH: usize = 80;

/// Whether the kernels of this file compute attention of these sizes; addresses may still forbid it.
pub(super) fn serves(shape: &AttentionShape, dtype: DType) -> bool {
    suits(shape, dtype) && slope_bytes(shape) <= SLOPE_BYTES
}

/// Whether they would at some length.
pub(super) fn suits(shape: &AttentionShape, dtype: DType) -> bool {
    let width = (16..=WIDEST_HEAD).contains(&shape.head_dim) && shape.head_dim.is_multiple_of(8);
    shape.bias.tables() == 2 && width && dtype.bytes() == 2
}

/// Of one head of one sample.
fn slope_bytes(shape: &AttentionShape) -> usize {
    shape.q_len.next_multiple_of(TILE).saturating_mul(shape.k_len.next_multiple_of(TILE)).saturating_mul(2)
}

/// Tiles of queries and of keys.
fn tiles(shape: &AttentionShape) -> [usize; 2] {
    [shape.q_len, shape.k_len].map(|len| len.div_ceil(TILE))
}

/// The workspace: offsets in a plan, addresses on the device.
pub(super) struct BandSpace {
    pub rows: u64,
    /// Both tables by distance, as right operands of products with queries and keys.
    pub packed: [u64; 2],
    /// The same where distances are summed over.
    turned: [u64; 2],
    pub delta: u64,
    slopes: u64,
    /// Gradients of the tables by distance.
    parts: u64,
    pub end: u64,
    /// Pairs of sample and head that run at a time.
    pairs: usize,
    /// Shares of the samples in which the gradients of the tables are summed up.
    shares: usize,
}

impl BandSpace {
    pub(super) fn new(start: u64, shape: &AttentionShape, backward: bool) -> BandSpace {
        let mut regions = Regions::new(start);
        let only = |when: bool, bytes: usize| if when { bytes } else { 0 };
        let [q_tiles, k_tiles] = tiles(shape);
        let table = packed_vectors(shape) * 16;
        let pairs = (SLOPE_BYTES / slope_bytes(shape).max(1)).clamp(1, (shape.batch * shape.heads).max(1));
        let shares = shares(shape, q_tiles.max(k_tiles));
        BandSpace {
            rows: regions.take(4 * shape.distances()),
            packed: [(); 2].map(|()| regions.take(table)),
            turned: [(); 2].map(|()| regions.take(only(backward, table))),
            delta: regions.take(only(backward, 4 * shape.batch * shape.heads * shape.q_len)),
            slopes: regions.take(only(backward, pairs * slope_bytes(shape))),
            parts: regions.take(only(backward, part_bytes(shape, shares, q_tiles + k_tiles))),
            end: regions.end(),
            pairs,
            shares,
        }
    }

    /// Bytes that are enough for any lengths up to the shape's: of shorter samples more heads run at a time, and tables are
    /// summed up in more shares.
    pub(super) fn bytes_up_to(shape: &AttentionShape, backward: bool) -> usize {
        let [q_tiles, k_tiles] = tiles(shape);
        let space = BandSpace::new(0, shape, backward);
        if !backward {
            return space.end as usize;
        }
        let of_tiles = |most: usize| part_bytes(shape, shares(shape, most), (2 * most).min(q_tiles + k_tiles));
        let parts = (1..=q_tiles.max(k_tiles)).map(of_tiles).max().unwrap_or(0);
        let slopes = SLOPE_BYTES.min(slope_bytes(shape).saturating_mul(shape.batch * shape.heads));
        // The last two regions, and what rounds them up.
        space.slopes as usize + slopes.next_multiple_of(256) + parts.next_multiple_of(256)
    }
}

/// In how many shares of the samples the tables' gradients are summed up, where the longer side has so many tiles.
fn shares(shape: &AttentionShape, tiles: usize) -> usize {
    (TABLE_BLOCKS / (shape.heads * tiles).max(1)).clamp(1, MOST_SHARES.min(shape.batch.max(1)))
}

/// Gradients of the tables by distance; tiles of both sides together.
fn part_bytes(shape: &AttentionShape, shares: usize, tiles: usize) -> usize {
    shares * shape.heads * tiles.saturating_sub(1) * 2 * 2 * TILE * shape.head_dim * 4
}

/// Vectors of 16 bytes that a table takes by distance.
fn packed_vectors(shape: &AttentionShape) -> usize {
    shape.heads * tiles(shape).iter().sum::<usize>() * 4 * shape.head_dim.div_ceil(16) * 32
}

/// Dynamic shared memory: tiles of two sides, the next ones besides, and the cells of a tile of scores.
pub(super) fn shared(shape: &AttentionShape) -> usize {
    2 * (4 * TILE * pitch(shape) + TILE * CELL_PITCH)
}

/// Elements between the rows of a tile of queries or keys.
fn pitch(shape: &AttentionShape) -> usize {
    shape.head_dim.next_multiple_of(16) + 8
}

impl Call<'_> {
    /// Both tables by distance, for the backward pass turned too.
    pub(super) fn pack_tables(
        &self,
        launch: &mut Launch<'_>,
        space: &BandSpace,
        turned: bool,
    ) -> Result<(), CudaError> {
        let ways: &[([u64; 2], i32)] = &[(space.packed, 0), (space.turned, 1)];
        for &(to, is_turned) in &ways[..1 + turned as usize] {
            for (&table, to) in self.tables.iter().zip(to) {
                self.pack(launch, table, space.rows, to, is_turned)?;
            }
        }
        Ok(())
    }

    fn pack(&self, launch: &mut Launch<'_>, table: u64, rows: u64, to: u64, turned: i32) -> Result<(), CudaError> {
        let s = &self.shape;
        let sizes = [s.span().0, s.heads, s.q_len, s.k_len].map(int);
        let addresses = [table, rows, to].map(Arg::Address);
        let args = [&addresses[..], &sizes, &[Arg::I32(turned)]].concat();
        run_over(launch, &self.positions("pack"), packed_vectors(s), &args)
    }

    fn positions(&self, entry: &'static str) -> Kernel {
        Kernel::new(POSITIONS, entry).dtype("T", self.dtype).define("D", self.shape.head_dim)
    }
}

impl Backward<'_> {
    pub(super) fn run_banded(&self, launch: &mut Launch<'_>, space: &BandSpace) -> Result<(), CudaError> {
        let (call, s) = (&self.call, &self.call.shape);
        call.write_distances(launch)?;
        self.write_deltas(launch)?;
        call.pack_tables(launch, space, true)?;
        let all = s.batch * s.heads;
        for first in (0..all).step_by(space.pairs) {
            self.run_pairs(launch, space, first, space.pairs.min(all - first))?;
        }
        match all * s.q_len * s.k_len {
            0 => self.dtables.iter().try_for_each(|&table| launch.queue.fill(table, 0, 2 * self.table_elements())),
            _ => self.add_positions(launch, space),
        }
    }

    /// The gradients of keys and values, then of queries, and the part of these heads in the tables'.
    fn run_pairs(
        &self,
        launch: &mut Launch<'_>,
        space: &BandSpace,
        first: usize,
        pairs: usize,
    ) -> Result<(), CudaError> {
        let (call, s) = (&self.call, &self.call.shape);
        let (heads, [q_tiles, k_tiles]) = (call.heads, tiles(s));
        let rest = [&call.sizes(heads, s.batch)[..], &call.scores(0)].concat();
        let mut put = |entry: &'static str, grid: Grid, addresses: &[u64], numbers: &[usize]| {
            let addresses = addresses.iter().map(|&address| Arg::Address(address));
            let args: Vec<Arg> = addresses.chain(numbers.iter().map(|&n| int(n))).chain(rest.iter().copied()).collect();
            launch.kernel(&call.kernel(entry, s.q_len), grid, &args)
        };
        let stages = |tiles: usize, rest: usize| 2 * (2 * TILE * (tiles * pitch(s) + SLOPE_PITCH) + rest);
        if k_tiles > 0 {
            let read = [heads.q, heads.k, heads.v, self.dout, self.lse, space.delta];
            let written = [self.to.k, self.to.v, space.slopes, space.turned[1]];
            let grid = Grid::new(pairs * k_tiles, 128).shared(shared(s));
            put("backward_keys", grid, &[&read[..], &written].concat(), &[first])?;
        }
        if q_tiles > 0 {
            let addresses = [heads.k, space.slopes, space.turned[0], self.to.q];
            let grid = Grid::new(pairs * q_tiles, 128).shared(stages(1, TILE * SHEARED_PITCH));
            put("backward_queries", grid, &addresses, &[first])?;
        }
        if q_tiles * k_tiles == 0 {
            return Ok(());
        }
        let numbers = [first, pairs, space.shares, (first == 0) as usize];
        let grid = Grid::new(s.heads * q_tiles.max(k_tiles) * space.shares, 256).shared(stages(2, 0));
        put("backward_tables", grid, &[heads.q, heads.k, space.slopes, space.parts], &numbers)
    }

    fn add_positions(&self, launch: &mut Launch<'_>, space: &BandSpace) -> Result<(), CudaError> {
        let s = &self.call.shape;
        let addresses = [space.parts, space.rows, self.dtables[0], self.dtables[1]].map(Arg::Address);
        let sizes = [s.span().0, s.bias_rows, s.heads, s.q_len, s.k_len, space.shares].map(int);
        let args = [&addresses[..], &sizes, &[Arg::F32(self.call.op.scale as f32)]].concat();
        run_over(launch, &self.call.positions("add_positions"), 2 * self.table_elements(), &args)
    }
}
