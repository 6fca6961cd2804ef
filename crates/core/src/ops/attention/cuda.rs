//! Attention on a CUDA device: which kernels run, on what, and what lies in the workspace between them.

use super::banded::{self, BandSpace};
use super::grad::AttentionGrad;
use super::groups::{self, Sums};
use super::*;
use crate::kernels::cuda::{Arg, CudaError, DeviceTensor, Gemm, Grid, Kernel, Launch, Source};
use crate::ops::device::{
    GEMM_BYTES, Regions, add_up, by_columns, by_rows, every, int, multiply, product, refuse_f64, round_to,
};
use kernel::AttentionShape;
use plimsoll_base::random::Dropping;

macro_rules! source {
    ($name:literal $(, $part:literal)*) => {
        Source {
            name: concat!("attention/", $name),
            text: concat!(
                include_str!("scores.cuh"),
                include_str!("bias_sums.cuh"),
                $(include_str!(concat!($part, ".cuh")),)*
                include_str!(concat!($name, ".cu"))
            ),
        }
    };
}
pub(super) use source;

const NARROW: Source = source!("narrow");
const TILED: Source = source!("tile");
const HALF: Source = source!("tensor", "../../kernels/cuda/half", "tiles", "half", "passes");
const TF32: Source = source!("tensor", "../../kernels/cuda/tf32", "tiles", "tf32", "passes");
const BANDED: Source = source!("disentangled", "../../kernels/cuda/half", "tiles", "half", "passes");
const TABLES: Source = Source { name: "attention/tables", text: include_str!("tables.cu") };
const DELTAS: Source = Source { name: "attention/deltas", text: include_str!("deltas.cu") };

/// The products of a disentangled bias take up to this much at a time; then samples are run in groups.
const PRODUCT_BYTES: usize = 64 << 20;

/// The largest head that a block's shared memory holds on every card.
const LARGEST_HEAD: usize = 128;

/// Up to this head size a thread of the narrow form has two rows.
const NARROW_PAIRS: usize = 8;

/// Threads that fill a large card: with fewer, the narrow form lets several have the same rows.
const NARROW_THREADS: usize = 64 << 10;

/// Which kernels compute the scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Narrow heads: a thread has one or two rows, or shares them with a few others.
    Narrow,
    /// In f32, whatever comes.
    Tiled,
    /// On tensor cores, in half precision.
    Half,
    /// The same with a disentangled bias, of which a tile computes its own band.
    Banded,
    /// On tensor cores, f32 rounded to tf32.
    Tf32,
    /// On tensor cores that groups of four warps share, in half precision.
    Groups,
}

/// Whether all tensors of this type start at multiples of so many bytes.
pub(super) fn are_aligned(launch: &Launch<'_>, dtype: DType, bytes: usize) -> bool {
    let mut operands = launch.inputs.iter().chain(launch.outputs).filter(|tensor| tensor.ty.dtype == dtype);
    operands.all(|tensor| tensor.address.is_multiple_of(bytes as u64))
}

impl Form {
    fn new(op: &Attention, shape: &AttentionShape, dtype: DType, launch: &Launch<'_>) -> Form {
        if groups::compute(op, shape, dtype, launch) {
            return Form::Groups;
        }
        let in_vectors = shape.head_dim.is_multiple_of(8) && are_aligned(launch, dtype, 16);
        match dtype {
            _ if in_vectors && banded::serves(shape, dtype) => Form::Banded,
            DType::Bf16 | DType::F16 if shape.head_dim >= 16 && in_vectors => Form::Half,
            // Wider heads than this do not fit into registers.
            DType::F32 if launch.tf32 && (17..=64).contains(&shape.head_dim) && in_vectors => Form::Tf32,
            _ if shape.head_dim <= 16 && shape.bias == Bias::None => Form::Narrow,
            _ => Form::Tiled,
        }
    }

    /// Whether the kernel for queries computes Σ dout · out itself, and writes it for the one for keys: `out` is rounded, and
    /// where few keys share the weight, a sum over it too coarse.
    fn sums_deltas(self, op: &Attention, shape: &AttentionShape, dtype: DType) -> bool {
        self == Form::Groups && Sums::new(op, shape, dtype, true).is_none() || self == Form::Narrow && dtype.bytes() < 4
    }

    /// The most queries, or keys, of `len` that a block computes; of a tensor core's 16 to a warp, as the `.cuh` of the
    /// form says.
    fn most_rows(self, shape: &AttentionShape, len: usize) -> usize {
        match self {
            Form::Narrow => 128 / narrow_lanes(shape, len) * narrow_rows(shape),
            Form::Tiled => 32,
            // A bias is added up in square tiles, and wider heads need more registers.
            Form::Half if shape.bias == Bias::None && shape.head_dim <= 64 => 96,
            Form::Half | Form::Banded | Form::Tf32 | Form::Groups => 64,
        }
    }

    /// The blocks that `len` queries, or keys, take, and how many threads each has: without a bias, blocks of tensor
    /// cores share the rows evenly.
    fn blocks(self, shape: &AttentionShape, len: usize) -> (usize, usize) {
        let blocks = len.div_ceil(self.most_rows(shape, len));
        let warps = match self {
            Form::Half | Form::Tf32 if shape.bias == Bias::None => len.div_ceil(16).div_ceil(blocks.max(1)),
            Form::Tiled => 2,
            _ => 4,
        };
        (blocks, 32 * warps)
    }

    /// Dynamic shared memory of a block: tiles of rows, and one of scores where several threads read them.
    fn shared(self, shape: &AttentionShape, backward: bool) -> usize {
        let width = |multiple: usize, gap: usize| shape.head_dim.next_multiple_of(multiple) + gap;
        let slopes = if backward && shape.bias != Bias::None { 4 * 68 } else { 0 };
        let stages = if shape.head_dim <= 64 { 2 } else { 1 };
        match self {
            Form::Narrow => 0,
            Form::Tiled => 4 * 32 * (width(4, 4) * if backward { 3 } else { 2 } + 36),
            Form::Half => 64 * (stages * 2 * 2 * width(16, 8) + slopes),
            Form::Banded => banded::shared(shape),
            Form::Tf32 => 64 * (4 * 2 * width(8, 4) + slopes),
            Form::Groups => unreachable!("groups are cut by their own file"),
        }
    }
}

/// The rows of a thread of the narrow form.
fn narrow_rows(shape: &AttentionShape) -> usize {
    if shape.head_dim <= NARROW_PAIRS { 2 } else { 1 }
}

/// How many threads of the narrow form have the same rows, of `len` queries or keys in every head.
fn narrow_lanes(shape: &AttentionShape, len: usize) -> usize {
    let threads = (shape.batch * shape.heads * len).div_ceil(narrow_rows(shape));
    [8, 4, 2].into_iter().find(|lanes| threads * lanes <= NARROW_THREADS).unwrap_or(1)
}

/// Where queries, keys and values lie, or their gradients, and how many elements apart rows are.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    pub q: u64,
    pub k: u64,
    pub v: u64,
    q_row: usize,
    kv_row: usize,
    element: usize,
}

impl Heads {
    fn new(packing: Packing, tensors: &[DeviceTensor], shape: &AttentionShape) -> Heads {
        let (row, element) = (shape.heads * shape.head_dim, tensors[0].ty.dtype.bytes());
        let part = |tensor: &DeviceTensor, n: usize| tensor.address + (n * row * element) as u64;
        match packing {
            Packing::Qkv => {
                let [q, k, v] = [0, 1, 2].map(|n| part(&tensors[0], n));
                Heads { q, k, v, q_row: 3 * row, kv_row: 3 * row, element }
            }
            Packing::QKv => {
                let [k, v] = [0, 1].map(|n| part(&tensors[1], n));
                Heads { q: tensors[0].address, k, v, q_row: row, kv_row: 2 * row, element }
            }
        }
    }

    /// Those from this sample on.
    fn starting_at(self, sample: usize, shape: &AttentionShape) -> Heads {
        let queries = (sample * shape.q_len * self.q_row * self.element) as u64;
        let keys = (sample * shape.k_len * self.kv_row * self.element) as u64;
        Heads { q: self.q + queries, k: self.k + keys, v: self.v + keys, ..self }
    }
}

/// The workspace: offsets in a plan, addresses on the device.
struct Space {
    rows: u64,
    by_distance: u64,
    by_query: u64,
    by_key: u64,
    delta: u64,
    /// Of a relative bias, every block's part of the gradient.
    parts: u64,
    /// Of a disentangled bias: the gradients of its products, and of its tables where they are summed in f32.
    dby_query: u64,
    dby_key: u64,
    dtables: [u64; 2],
    gemm: u64,
    /// Of gradients in one pass: sums of those of queries, and how many have added to them.
    sums: [u64; 2],
    end: u64,
    /// Samples that run at a time.
    group: usize,
    /// Elements from one query's products to the next one's.
    pitch: usize,
    /// What else the kernels of a band have.
    banded: Option<BandSpace>,
}

impl Space {
    /// Bytes that are enough for any lengths up to the shape's, whichever form their addresses allow.
    fn bytes_up_to(op: &Attention, shape: &AttentionShape, dtype: DType, backward: bool) -> usize {
        let sums = Sums::new(op, shape, dtype, backward).map_or([0; 2], |sums| sums.bytes_up_to());
        let sums: usize = sums.iter().map(|bytes| bytes.next_multiple_of(256)).sum();
        let plain = Space::plain_up_to(shape, dtype, backward) + sums;
        let banded = banded::suits(shape, dtype).then(|| BandSpace::bytes_up_to(shape, backward));
        banded.map_or(plain, |banded| banded.max(plain))
    }

    /// Of shorter samples more run at a time.
    fn plain_up_to(shape: &AttentionShape, dtype: DType, backward: bool) -> usize {
        let space = Space::new(0, shape, dtype, backward);
        let widths = [dtype.bytes(), if backward { 4 } else { 0 }];
        let of_sample = |len: usize| widths.map(|bytes| shape.heads * len * space.pitch * bytes);
        let products = [of_sample(shape.q_len), of_sample(shape.k_len)].concat();
        let sample = products.iter().sum::<usize>();
        let most = product_bytes(shape, dtype).max(sample).min(shape.batch.max(1) * sample);
        // Each of them is a region of its own, and rounded up.
        let taken: usize = products.iter().map(|bytes| (space.group * bytes).next_multiple_of(256)).sum();
        let rounding = if sample > 0 { 256 * products.len() } else { 0 };
        space.end as usize - taken + most + rounding
    }

    /// The same with room for gradients in one pass at its end.
    fn with_sums(self, sums: Option<Sums>) -> Space {
        let mut regions = Regions::new(self.end);
        let sums = sums.map_or([0; 2], |sums| sums.bytes()).map(|bytes| regions.take(bytes));
        Space { sums, end: regions.end(), ..self }
    }

    fn new(start: u64, shape: &AttentionShape, dtype: DType, backward: bool) -> Space {
        let (mut regions, distances) = (Regions::new(start), shape.distances());
        let (relative, disentangled) = (shape.bias.tables() == 1, shape.bias.tables() == 2);
        let only = |when: bool, elements: usize| if when { elements } else { 0 };
        let pitch = if disentangled { shape.span().1.next_multiple_of(8) } else { 0 };
        let bytes = dtype.bytes() + only(backward, 4);
        let sample = shape.heads * (shape.q_len + shape.k_len) * pitch * bytes;
        let group = product_bytes(shape, dtype).checked_div(sample).unwrap_or(shape.batch).clamp(1, shape.batch.max(1));
        let products = |len: usize| group * shape.heads * len * pitch;
        // Of all forms that a bias may take, this one has the most tiles.
        let tiles = Form::Tiled.blocks(shape, shape.q_len).0;
        let table = shape.bias_rows * shape.heads * shape.head_dim;
        let rounded = backward && disentangled && dtype.bytes() < 4;
        Space {
            rows: regions.take(only(relative || disentangled, 4 * distances)),
            by_distance: regions.take(only(relative, 4 * shape.heads * distances)),
            by_query: regions.take(products(shape.q_len) * dtype.bytes()),
            by_key: regions.take(products(shape.k_len) * dtype.bytes()),
            delta: regions.take(only(backward, 4 * shape.batch * shape.heads * shape.q_len)),
            parts: regions.take(only(backward && relative, 4 * shape.batch * tiles * shape.heads * shape.bias_rows)),
            dby_query: regions.take(only(backward, 4 * products(shape.q_len))),
            dby_key: regions.take(only(backward, 4 * products(shape.k_len))),
            dtables: [(); 2].map(|()| regions.take(only(rounded, 4 * table))),
            gemm: regions.take(only(backward && disentangled, GEMM_BYTES)),
            sums: [0; 2],
            end: regions.end(),
            group,
            pitch,
            banded: None,
        }
    }

    /// That of a disentangled bias whose products stay in their tiles: all samples run at a time.
    fn banded(start: u64, shape: &AttentionShape, backward: bool) -> Space {
        let band = BandSpace::new(start, shape, backward);
        let [by_query, by_key] = band.packed;
        let nothing = Space::new(start, &AttentionShape { bias: Bias::None, ..*shape }, DType::F32, false);
        let (rows, delta, end) = (band.rows, band.delta, band.end);
        Space { rows, by_query, by_key, delta, end, banded: Some(band), ..nothing }
    }
}

/// What products with the tables may take. Where a band is the rule, they are for addresses that no vector can be read
/// from.
fn product_bytes(shape: &AttentionShape, dtype: DType) -> usize {
    if banded::serves(shape, dtype) { 0 } else { PRODUCT_BYTES }
}

/// One direction of one op on the device.
pub(super) struct Call<'a> {
    pub op: &'a Attention,
    pub shape: AttentionShape,
    pub dtype: DType,
    pub heads: Heads,
    space: Space,
    form: Form,
    /// Elements of a row that the forms without tensor cores read at once.
    vector: usize,
    /// Addresses of the bias's tables.
    pub tables: Vec<u64>,
    mask: u64,
    position: u64,
    state: u64,
}

impl<'a> Call<'a> {
    fn new(op: &'a Attention, node: &dyn Op, launch: &Launch<'_>, backward: bool) -> Result<Call<'a>, CudaError> {
        let (inputs, dtype) = (launch.inputs, launch.inputs[0].ty.dtype);
        refuse_f64(node, &inputs[0].ty)?;
        let shape = op.shape(|i| &inputs[i].ty).ok().filter(|shape| shape.head_dim <= LARGEST_HEAD);
        let Some(shape) = shape else { return Err(CudaError::NoKernel { op: format!("{node:?}"), dtype }) };
        let packed = op.packing.inputs();
        let form = Form::new(op, &shape, dtype, launch);
        let space = match form {
            Form::Banded => Space::banded(launch.workspace, &shape, backward),
            _ => {
                let sums = Sums::new(op, &shape, dtype, backward);
                Space::new(launch.workspace, &shape, dtype, backward).with_sums(sums)
            }
        };
        let reads = |n: usize| shape.head_dim.is_multiple_of(n) && are_aligned(launch, dtype, n * dtype.bytes());
        let optional = |there: bool, index: usize| if there { inputs[index].address } else { 0 };
        Ok(Call {
            op,
            dtype,
            heads: Heads::new(op.packing, inputs, &shape),
            space,
            form,
            vector: if reads(4) {
                4
            } else if form == Form::Narrow && reads(2) {
                2
            } else {
                1
            },
            tables: inputs[packed..packed + op.bias.tables()].iter().map(|table| table.address).collect(),
            mask: optional(op.key_mask, op.mask()),
            position: optional(op.offset, op.position()),
            state: optional(op.dropout.is_some(), op.random_state()),
            shape,
        })
    }

    /// A kernel for `len` queries, or keys, of every head.
    pub(super) fn kernel(&self, entry: &'static str, len: usize) -> Kernel {
        let kernel = match self.form {
            Form::Narrow => Kernel::new(NARROW, entry)
                .define("VECTOR", self.vector)
                .define("LANES", narrow_lanes(&self.shape, len))
                .define("ROWS", narrow_rows(&self.shape)),
            Form::Tiled => Kernel::new(TILED, entry).define("VECTOR", self.vector),
            Form::Half => Kernel::new(HALF, entry),
            Form::Banded => Kernel::new(BANDED, entry),
            Form::Tf32 => Kernel::new(TF32, entry),
            Form::Groups => groups::kernel(entry, &self.shape, self.op.dropout.is_some()),
        };
        let bias = if self.form == Form::Banded { 3 } else { self.op.bias.tables() };
        kernel
            .dtype("T", self.dtype)
            .define("D", self.shape.head_dim)
            .define("LIMITED", if self.op.offset { 2 } else { self.op.causal as u32 })
            .define("MASKED", self.op.key_mask as u32)
            .define("DROPPED", self.op.dropout.is_some() as u32)
            .define("BIAS", bias)
            .define("BF16", (self.dtype == DType::Bf16) as u32)
    }

    /// The blocks that `len` queries, or keys, of a head take, how many threads each has, and its dynamic shared memory.
    fn blocks(&self, entry: &str, len: usize) -> (usize, usize, usize) {
        match self.form {
            Form::Groups => groups::blocks(entry, &self.shape, self.op.dropout.is_some(), len),
            form => {
                let (blocks, threads) = form.blocks(&self.shape, len);
                (blocks, threads, form.shared(&self.shape, entry != "forward"))
            }
        }
    }

    /// The blocks of a kernel for `len` queries, or keys, of every head of `samples` samples.
    fn grid(&self, entry: &str, samples: usize, len: usize) -> Grid {
        let (blocks, threads, shared) = self.blocks(entry, len);
        let most = match self.form {
            Form::Groups => groups::most_blocks(entry, &self.shape, self.op.dropout.is_some()),
            _ => usize::MAX,
        };
        Grid::new((samples * self.shape.heads * blocks).min(most), threads).shared(shared)
    }

    /// Whether there is anything to compute for these many rows.
    fn is_empty(&self, len: usize) -> bool {
        self.shape.batch * self.shape.heads * self.shape.head_dim * len == 0
    }

    /// The groups of samples that run one after the other: the first, and how many.
    fn groups(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (batch, group) = (self.shape.batch, self.space.group);
        (0..batch).step_by(group).map(move |first| (first, group.min(batch - first)))
    }

    pub(super) fn sizes(&self, heads: Heads, samples: usize) -> [Arg; 7] {
        let s = &self.shape;
        let lens = [samples, s.heads, s.q_len, s.k_len].map(int);
        let [a, b, c, d] = lens;
        [heads.q_row.into(), heads.kv_row.into(), a, b, c, d, Arg::F32(self.op.scale as f32)]
    }

    /// SCORE_PARAMETERS of scores.cuh, for the samples from `first` on.
    pub(super) fn scores(&self, first: usize) -> [Arg; 13] {
        let (space, s) = (&self.space, &self.shape);
        let there = |count: usize, address: u64| Arg::Address(if self.op.bias.tables() == count { address } else { 0 });
        let rows = Arg::Address(if s.bias == Bias::None { 0 } else { space.rows });
        let mask = if self.op.key_mask { self.mask + (first * s.k_len * 4) as u64 } else { 0 };
        let (p, site) = self.op.dropout.unwrap_or((0.0, 0));
        let dropping = Dropping::new(p.into());
        [
            there(1, space.by_distance),
            rows,
            there(2, space.by_query),
            there(2, space.by_key),
            int(space.pitch),
            Arg::Address(mask),
            Arg::Address(self.position),
            Arg::I32(s.first_position() as i32),
            Arg::Address(self.state),
            Arg::U64(site),
            int(first),
            Arg::U32(dropping.threshold),
            Arg::F32(dropping.keep as f32),
        ]
    }

    /// The row of the bias's tables for each distance, and the values of a relative bias.
    pub(super) fn write_distances(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (s, count) = (&self.shape, self.shape.distances());
        if s.bias == Bias::None || count == 0 {
            return Ok(());
        }
        let reach = self.op.bias.reach().min(s.q_len + s.k_len) as i64;
        let rows: Vec<String> = (-reach..=reach).map(|r| s.bias.row(r, s.bias_rows).to_string()).collect();
        let kernel = Kernel::new(TABLES, "distances")
            .dtype("T", self.dtype)
            .define("ROWS", format!("{{{}}}", rows.join(",")))
            .define("REACH", reach)
            .define("VALUES", (self.op.bias.tables() == 1) as u32);
        let first_row = if self.op.bias.tables() == 2 { s.span().0 } else { 0 };
        let args = [
            Arg::Address(self.tables[0]),
            Arg::Address(self.space.rows),
            Arg::Address(self.space.by_distance),
            int(count),
            int(s.q_len),
            int(s.heads),
            int(first_row),
            Arg::Address(self.position),
            Arg::I32(s.first_position() as i32),
        ];
        let values = if self.op.bias.tables() == 1 { s.heads } else { 1 };
        let mut grid = Grid::over(count, 1);
        grid.blocks[1] = values as u32;
        launch.kernel(&kernel, grid, &args)
    }

    /// Of a disentangled bias, the products of a group's queries and keys with the rows in use.
    fn write_products(&self, launch: &mut Launch<'_>, heads: Heads, samples: usize) -> Result<(), CudaError> {
        let s = &self.shape;
        let sides = [
            (heads.q, heads.q_row, s.q_len, self.space.by_query, 0),
            (heads.k, heads.kv_row, s.k_len, self.space.by_key, 1),
        ];
        for (from, row, len, to, table) in sides {
            let rows = samples * len;
            let a = every(s.head_dim, by_rows(from, self.dtype, row));
            let b = every(s.head_dim, by_columns(self.table_in_use(table), self.dtype, s.heads * s.head_dim));
            let c = every(rows * self.space.pitch, by_rows(to, self.dtype, self.space.pitch));
            let gemm = product([rows, s.span().1, s.head_dim], a, b, c);
            multiply(launch, Gemm { batch: s.heads, alpha: self.op.scale as f32, ..gemm })?;
        }
        Ok(())
    }

    /// The first row in use of a table.
    fn table_in_use(&self, table: usize) -> u64 {
        self.tables[table] + (self.in_use() * self.dtype.bytes()) as u64
    }

    /// Elements of a table before the first row in use.
    fn in_use(&self) -> usize {
        self.shape.span().0 * self.shape.heads * self.shape.head_dim
    }

    fn forward(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let s = &self.shape;
        if self.is_empty(s.q_len) {
            return Ok(());
        }
        self.write_distances(launch)?;
        if let Some(space) = &self.space.banded {
            self.pack_tables(launch, space, false)?;
        }
        let [out, lse] = [0, 1].map(|n| launch.outputs[n].address);
        for (first, samples) in self.groups() {
            let heads = self.heads.starting_at(first, s);
            if self.op.bias.tables() == 2 && self.form != Form::Banded && s.k_len > 0 {
                self.write_products(launch, heads, samples)?;
            }
            let done = first * s.q_len * s.heads;
            let operands =
                [heads.q, heads.k, heads.v, out + (done * s.head_dim * heads.element) as u64, lse + 4 * done as u64];
            let args = [&operands.map(Arg::Address)[..], &self.sizes(heads, samples), &self.scores(first)].concat();
            launch.kernel(&self.kernel("forward", s.q_len), self.grid("forward", samples, s.q_len), &args)?;
        }
        Ok(())
    }
}

impl Attention {
    pub(super) fn cuda_workspace(&self, inputs: &[Type], backward: bool) -> usize {
        self.shape(|i| &inputs[i]).map_or(0, |shape| Space::bytes_up_to(self, &shape, inputs[0].dtype, backward))
    }

    pub(super) fn cuda_forward(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        Call::new(self, self, launch, false)?.forward(launch)
    }
}

impl AttentionGrad {
    pub(super) fn cuda_backward(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        Backward::new(self, launch)?.run(launch)
    }
}

/// The backward pass: what it reads besides, and where gradients go.
pub(super) struct Backward<'a> {
    pub call: Call<'a>,
    out: u64,
    pub lse: u64,
    pub dout: u64,
    pub to: Heads,
    /// Addresses of the gradients of the bias's tables.
    pub dtables: Vec<u64>,
}

impl<'a> Backward<'a> {
    fn new(op: &'a AttentionGrad, launch: &Launch<'_>) -> Result<Backward<'a>, CudaError> {
        let call = Call::new(&op.0, op, launch, true)?;
        let [out, lse, dout] = [0, 1, 2].map(|n| launch.inputs[op.0.inputs() + n].address);
        let to = Heads::new(op.0.packing, launch.outputs, &call.shape);
        let dtables = launch.outputs[op.0.packing.inputs()..].iter().map(|table| table.address).collect();
        Ok(Backward { call, out, lse, dout, to, dtables })
    }

    fn run(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (call, s) = (&self.call, &self.call.shape);
        if let Some(space) = &call.space.banded {
            return self.run_banded(launch, space);
        }
        let disentangled = call.op.bias.tables() == 2;
        if disentangled {
            self.clear_tables(launch)?;
        }
        call.write_distances(launch)?;
        if !call.form.sums_deltas(call.op, s, call.dtype) {
            self.write_deltas(launch)?;
        }
        let sums = Sums::new(call.op, s, call.dtype, true).filter(|_| call.form == Form::Groups);
        if let Some(sums) = sums {
            return self.write_in_one_pass(launch, sums);
        }
        for (first, samples) in call.groups() {
            let heads = call.heads.starting_at(first, s);
            if disentangled && s.q_len * s.k_len > 0 {
                call.write_products(launch, heads, samples)?;
                let bytes = |len: usize| 4 * samples * s.heads * len * call.space.pitch;
                launch.queue.fill(call.space.dby_query, 0, bytes(s.q_len))?;
                launch.queue.fill(call.space.dby_key, 0, bytes(s.k_len))?;
            }
            self.write_gradients(launch, heads, first, samples)?;
            if disentangled && s.q_len * s.k_len > 0 {
                self.add_products(launch, heads, first, samples)?;
            }
        }
        match call.op.bias {
            Bias::None => Ok(()),
            Bias::Relative { .. } => self.add_up_relative(launch),
            Bias::Disentangled { .. } => self.round_tables(launch),
        }
    }

    pub(super) fn write_deltas(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (call, s) = (&self.call, &self.call.shape);
        if call.is_empty(s.q_len) {
            return Ok(());
        }
        let rows = s.batch * s.q_len * s.heads;
        let operands = [self.out, self.dout, call.space.delta].map(Arg::Address);
        let args = [&operands[..], &[rows.into(), int(s.q_len), int(s.heads), int(s.head_dim)]].concat();
        let vector = 16 / call.dtype.bytes();
        let aligned = s.head_dim.is_multiple_of(vector) && (self.out | self.dout).is_multiple_of(16);
        let vector = if aligned { vector } else { 1 };
        let lanes = s.head_dim.div_ceil(vector).next_power_of_two().min(32);
        let kernel = Kernel::new(DELTAS, "deltas").dtype("T", call.dtype);
        let kernel = kernel.define("LANES", lanes).define("VECTOR", vector);
        launch.kernel(&kernel, Grid::new(rows.div_ceil(128 / lanes), 128), &args)
    }

    /// The gradients of a group's queries, then of its keys and values; beside them those of what a bias adds.
    fn write_gradients(
        &self,
        launch: &mut Launch<'_>,
        heads: Heads,
        first: usize,
        samples: usize,
    ) -> Result<(), CudaError> {
        let (call, s) = (&self.call, &self.call.shape);
        let (to, done) = (self.to.starting_at(first, s), first * s.q_len * s.heads);
        let [out, dout] = [self.out, self.dout].map(|address| address + (done * s.head_dim * heads.element) as u64);
        let [lse, delta] = [self.lse, call.space.delta].map(|address| address + 4 * done as u64);
        let operands = [heads.q, heads.k, heads.v, dout, lse, delta].map(Arg::Address);
        let rest = [&call.sizes(heads, samples)[..], &call.scores(first)].concat();
        if !call.is_empty(s.q_len) {
            let sums = if call.op.bias.tables() == 1 { call.space.parts } else { call.space.dby_query };
            let own = match call.form {
                Form::Groups => vec![Arg::Address(to.q), Arg::Address(out)],
                _ => vec![Arg::Address(to.q)],
            };
            let bias = [Arg::Address(sums), int(s.bias_rows)];
            let (args, entry) = ([&operands[..], &own, &bias, &rest].concat(), "backward_queries");
            launch.kernel(&call.kernel(entry, s.q_len), call.grid(entry, samples, s.q_len), &args)?;
        }
        if call.is_empty(s.k_len) {
            return Ok(());
        }
        let own = [to.k, to.v, call.space.dby_key].map(Arg::Address);
        let (args, entry) = ([&operands[..], &own, &rest].concat(), "backward_keys");
        launch.kernel(&call.kernel(entry, s.k_len), call.grid(entry, samples, s.k_len), &args)
    }

    /// All gradients of as many samples as there is room for sums of at a time.
    fn write_in_one_pass(&self, launch: &mut Launch<'_>, room: Sums) -> Result<(), CudaError> {
        let (call, s, [sums, turns]) = (&self.call, &self.call.shape, self.call.space.sums);
        for first in (0..s.batch).step_by(room.group) {
            let samples = room.group.min(s.batch - first);
            let (heads, to) = (call.heads.starting_at(first, s), self.to.starting_at(first, s));
            let done = first * s.q_len * s.heads;
            let dout = self.dout + (done * s.head_dim * heads.element) as u64;
            let [lse, delta] = [self.lse, call.space.delta].map(|address| address + 4 * done as u64);
            launch.queue.fill(turns, 0, room.turn_bytes(samples))?;
            let operands = [heads.q, heads.k, heads.v, dout, lse, delta, to.k, to.v, sums, turns].map(Arg::Address);
            let args = [&operands[..], &call.sizes(heads, samples), &call.scores(first)].concat();
            launch.kernel(&call.kernel("backward", s.k_len), call.grid("backward", samples, s.k_len), &args)?;
            let operands = [sums, turns, to.q].map(Arg::Address);
            let sizes = [heads.q_row.into(), int(s.heads), int(s.q_len), Arg::F32(call.op.scale as f32)];
            let tiles = samples * s.heads * s.q_len.div_ceil(64);
            let kernel = call.kernel("round_queries", s.q_len);
            launch.kernel(&kernel, Grid::new(tiles, 128), &[&operands[..], &sizes].concat())?;
        }
        Ok(())
    }

    /// From the gradients of a disentangled bias's products to those of queries, keys and tables, added to what is
    /// there.
    fn add_products(
        &self,
        launch: &mut Launch<'_>,
        heads: Heads,
        first: usize,
        samples: usize,
    ) -> Result<(), CudaError> {
        let (call, s) = (&self.call, &self.call.shape);
        let (to, space, width) = (self.to.starting_at(first, s), &call.space, s.span().1);
        let sides = [
            (heads.q, to.q, heads.q_row, s.q_len, space.dby_query, space.by_query, 0),
            (heads.k, to.k, heads.kv_row, s.k_len, space.dby_key, space.by_key, 1),
        ];
        for (from, to, row, len, sums, rounded, table) in sides {
            let rows = samples * len;
            let slopes = self.rounded(launch, sums, rounded, rows * s.heads * space.pitch)?;
            let slopes = |turned: bool| {
                let matrix = if turned { by_columns } else { by_rows };
                every(rows * space.pitch, matrix(slopes, call.dtype, space.pitch))
            };
            let table_row = s.heads * s.head_dim;
            let b = every(s.head_dim, by_rows(call.table_in_use(table), call.dtype, table_row));
            let c = every(s.head_dim, by_rows(to, call.dtype, row));
            let whole = Gemm { batch: s.heads, alpha: call.op.scale as f32, beta: 1.0, ..product([0; 3], b, b, c) };
            multiply(launch, Gemm { m: rows, n: s.head_dim, k: width, a: slopes(false), ..whole })?;
            let b = every(s.head_dim, by_rows(from, call.dtype, row));
            let (address, dtype) = self.table_sums(table);
            let address = address + (call.in_use() * dtype.bytes()) as u64;
            let c = every(s.head_dim, by_rows(address, dtype, table_row));
            let (workspace, workspace_bytes) = (space.gemm, GEMM_BYTES);
            let whole = Gemm { b, c, workspace, workspace_bytes, ..whole };
            multiply(launch, Gemm { m: width, n: s.head_dim, k: rows, a: slopes(true), ..whole })?;
        }
        Ok(())
    }

    /// f32 sums in the type that products read: where they are, or rounded to `to`.
    fn rounded(&self, launch: &mut Launch<'_>, sums: u64, to: u64, count: usize) -> Result<u64, CudaError> {
        if self.call.dtype == DType::F32 || count == 0 {
            return Ok(sums);
        }
        round_to(launch, self.call.dtype, sums, to, count)?;
        Ok(to)
    }

    /// Where the gradient of a table is summed up, and in which type.
    fn table_sums(&self, table: usize) -> (u64, DType) {
        match self.call.dtype {
            DType::F32 => (self.dtables[table], DType::F32),
            _ => (self.call.space.dtables[table], DType::F32),
        }
    }

    pub(super) fn table_elements(&self) -> usize {
        self.call.shape.bias_rows * self.call.shape.heads * self.call.shape.head_dim
    }

    fn clear_tables(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        (0..2).try_for_each(|table| launch.queue.fill(self.table_sums(table).0, 0, 4 * self.table_elements()))
    }

    fn round_tables(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        for table in 0..2 {
            self.rounded(launch, self.table_sums(table).0, self.dtables[table], self.table_elements())?;
        }
        Ok(())
    }

    fn add_up_relative(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (call, s) = (&self.call, &self.call.shape);
        let tiles = call.blocks("backward_queries", s.q_len).0;
        add_up(launch, call.dtype, call.space.parts, self.dtables[0], s.bias_rows * s.heads, s.batch * tiles)
    }
}
