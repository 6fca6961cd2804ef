//! Attention on a CUDA device: what its kernels are told, and the forward pass.

use super::form::{Form, are_aligned};
use super::groups::{self, Sums};
use super::space::Space;
use super::*;
use crate::kernels::cuda::{Arg, CudaError, DeviceTensor, Grid, Kernel, Launch, Source};
use crate::ops::device::{int, refuse_f64};
use kernel::AttentionShape;
use plimsoll_base::random::Dropping;

const TABLES: Source = Source { name: "attention/tables", text: include_str!("tables.cu") };

/// The largest head that a block's shared memory holds on every card.
const LARGEST_HEAD: usize = 128;

/// Where queries, keys and values lie, or their gradients, and how many elements apart rows are.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    pub q: u64,
    pub k: u64,
    pub v: u64,
    pub q_row: usize,
    pub kv_row: usize,
    pub element: usize,
}

impl Heads {
    pub(super) fn new(packing: Packing, tensors: &[DeviceTensor], shape: &AttentionShape) -> Heads {
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
    pub(super) fn starting_at(self, sample: usize, shape: &AttentionShape) -> Heads {
        let queries = (sample * shape.q_len * self.q_row * self.element) as u64;
        let keys = (sample * shape.k_len * self.kv_row * self.element) as u64;
        Heads { q: self.q + queries, k: self.k + keys, v: self.v + keys, ..self }
    }
}

/// Samples that are computed at a time.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub first: usize,
    pub samples: usize,
    /// Those of these samples.
    pub heads: Heads,
}

impl Part {
    /// Where its rows (samples, queries, heads, width) begin, if those of all begin at `address`.
    pub(super) fn rows(&self, address: u64, shape: &AttentionShape) -> u64 {
        address + (self.first * shape.q_len * shape.heads * shape.head_dim * self.heads.element) as u64
    }

    /// The same of statistics: a float for each query and head.
    pub(super) fn statistics(&self, address: u64, shape: &AttentionShape) -> u64 {
        address + 4 * (self.first * shape.q_len * shape.heads) as u64
    }
}

/// One direction of one op on the device.
pub(super) struct Call<'a> {
    pub op: &'a Attention,
    pub shape: AttentionShape,
    pub dtype: DType,
    pub heads: Heads,
    pub space: Space,
    pub form: Form,
    /// Elements of a row that the forms without tensor cores read at once.
    vector: usize,
    /// Addresses of the bias's tables.
    pub tables: Vec<u64>,
    mask: u64,
    position: u64,
    state: u64,
}

impl<'a> Call<'a> {
    pub(super) fn new(
        op: &'a Attention,
        node: &dyn Op,
        launch: &Launch<'_>,
        backward: bool,
    ) -> Result<Call<'a>, CudaError> {
        let (inputs, dtype) = (launch.inputs, launch.inputs[0].ty.dtype);
        refuse_f64(node, &inputs[0].ty)?;
        let shape = op.shape(|i| &inputs[i].ty).ok().filter(|shape| shape.head_dim <= LARGEST_HEAD);
        let Some(shape) = shape else { return Err(CudaError::NoKernel { op: format!("{node:?}"), dtype }) };
        let packed = op.packing.inputs();
        let form = Form::new(op, &shape, dtype, launch);
        let space = match form {
            Form::Banded => Space::banded(launch.workspace, &shape, backward),
            _ => Space::new(launch.workspace, &shape, dtype, backward),
        };
        let sums = Sums::new(op, &shape, dtype).filter(|_| backward && form == Form::Groups);
        let space = match sums {
            Some(sums) => space.with_sums(sums),
            None => space,
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
        let kernel = self.form.kernel(entry, &self.shape, self.op.dropout.is_some(), self.vector, len);
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
    pub(super) fn blocks(&self, entry: &str, len: usize) -> (usize, usize, usize) {
        self.form.cut(entry, &self.shape, self.op.dropout.is_some(), len)
    }

    /// The blocks of a kernel for `len` queries, or keys, of every head of `samples` samples.
    pub(super) fn grid(&self, entry: &str, samples: usize, len: usize) -> Grid {
        let (blocks, threads, shared) = self.blocks(entry, len);
        let most = match self.form {
            Form::Groups => groups::most_blocks(entry, &self.shape, self.op.dropout.is_some()),
            _ => usize::MAX,
        };
        Grid::new((samples * self.shape.heads * blocks).min(most), threads).shared(shared)
    }

    /// Whether there is anything to compute for these many rows.
    pub(super) fn is_empty(&self, len: usize) -> bool {
        self.shape.batch * self.shape.heads * self.shape.head_dim * len == 0
    }

    /// The parts of at most so many samples that run one after the other.
    pub(super) fn parts(&self, most: usize) -> impl Iterator<Item = Part> {
        let batch = self.shape.batch;
        (0..batch).step_by(most).map(move |first| {
            let heads = self.heads.starting_at(first, &self.shape);
            Part { first, samples: most.min(batch - first), heads }
        })
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
        for part in self.parts(self.space.group) {
            let Part { first, samples, heads } = part;
            if self.op.bias.tables() == 2 && self.form != Form::Banded && s.k_len > 0 {
                self.write_products(launch, part)?;
            }
            let operands = [heads.q, heads.k, heads.v, part.rows(out, s), part.statistics(lse, s)];
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
