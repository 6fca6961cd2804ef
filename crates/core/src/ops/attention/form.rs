//! Which kernels compute attention on a CUDA device, and how rows are cut into blocks for them.

use super::kernel::AttentionShape;
use super::{Attention, Bias, DType, banded, groups};
use crate::kernels::cuda::{Kernel, Launch, Source};

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
    pub(super) fn new(op: &Attention, shape: &AttentionShape, dtype: DType, launch: &Launch<'_>) -> Form {
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
    pub(super) fn sums_deltas(self, dtype: DType) -> bool {
        self == Form::Groups || self == Form::Narrow && dtype.bytes() < 4
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
    pub(super) fn blocks(self, shape: &AttentionShape, len: usize) -> (usize, usize) {
        let blocks = len.div_ceil(self.most_rows(shape, len));
        let warps = match self {
            Form::Half | Form::Tf32 if shape.bias == Bias::None => len.div_ceil(16).div_ceil(blocks.max(1)),
            Form::Tiled => 2,
            _ => 4,
        };
        (blocks, 32 * warps)
    }

    /// The same for a kernel, and the dynamic shared memory of a block.
    pub(super) fn cut(self, entry: &str, shape: &AttentionShape, dropped: bool, len: usize) -> (usize, usize, usize) {
        match self {
            Form::Groups => groups::blocks(entry, shape, dropped, len),
            _ => {
                let (blocks, threads) = self.blocks(shape, len);
                (blocks, threads, self.shared(shape, entry != "forward"))
            }
        }
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

    /// The kernel for `len` queries, or keys, of every head, with what it is cut by. `vector`: elements of a row that the forms
    /// without tensor cores read at once.
    pub(super) fn kernel(
        self,
        entry: &'static str,
        shape: &AttentionShape,
        dropped: bool,
        vector: usize,
        len: usize,
    ) -> Kernel {
        match self {
            Form::Narrow => Kernel::new(NARROW, entry)
                .define("VECTOR", vector)
                .define("LANES", narrow_lanes(shape, len))
                .define("ROWS", narrow_rows(shape)),
            Form::Tiled => Kernel::new(TILED, entry).define("VECTOR", vector),
            Form::Half => Kernel::new(HALF, entry),
            Form::Banded => Kernel::new(BANDED, entry),
            Form::Tf32 => Kernel::new(TF32, entry),
            Form::Groups => groups::kernel(entry, shape, dropped),
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
