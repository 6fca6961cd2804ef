//! What the kernels of simple ops share on the host: sources, widths of vectors, how rows and strides are walked.

use crate::graph::Op;
use crate::kernels::cuda::{Arg, CudaError, DeviceTensor, Grid, Kernel, Launch, Set, Source, Sweep};
use crate::types::{DType, Type};

/// The kernels beside an op, `name.cu`, after the headers they use.
macro_rules! source {
    ($name:literal $(, $header:literal)*) => {
        crate::kernels::cuda::Source {
            name: $name,
            text: concat!(
                $(include_str!(concat!("../kernels/cuda/", $header, ".cuh")),)*
                include_str!(concat!($name, ".cu"))
            ),
        }
    };
}
pub(super) use source;

/// Kernels read f32, bf16 and f16, and compute in f32.
pub(super) fn refuse_f64(op: &dyn Op, launch: &Launch<'_>) -> Result<(), CudaError> {
    match launch.inputs.iter().chain(launch.outputs).any(|t| t.ty.dtype == DType::F64) {
        true => Err(CudaError::NoKernel { op: format!("{op:?}"), dtype: DType::F64 }),
        false => Ok(()),
    }
}

/// Why an op is not launched with these tensors. Doing nothing instead would leave what was in memory as its result.
pub(super) fn mismatch(op: &dyn Op, launch: &Launch<'_>, needs: &'static str) -> CudaError {
    let types = |tensors: &[DeviceTensor]| {
        let types: Vec<String> = tensors.iter().map(|tensor| tensor.ty.to_string()).collect();
        format!("({})", types.join(", "))
    };
    let given = format!("{} for {}", types(launch.inputs), types(launch.outputs));
    CudaError::Mismatch { op: format!("{op:?}"), needs, given }
}

/// How many neighbours a thread handles: those in 16 bytes of the narrowest type if every tensor starts on such a
/// boundary and rows of `row` elements keep it, else one.
pub(super) fn width(tensors: &[&DeviceTensor], row: usize) -> usize {
    let narrowest = tensors.iter().map(|t| t.ty.dtype.bytes()).min().unwrap_or(16);
    let width = 16 / narrowest;
    let aligned = tensors.iter().all(|t| t.address.is_multiple_of(16));
    if aligned && row.is_multiple_of(width) { width } else { 1 }
}

/// An elementwise kernel over tensors of equally many elements. Its arguments: the tensors, their number of elements,
/// and `more`.
pub(super) fn map(
    launch: &mut Launch<'_>,
    kernel: Kernel,
    tensors: &[&DeviceTensor],
    more: &[Arg],
) -> Result<(), CudaError> {
    let elements = tensors[0].ty.elements();
    let width = width(tensors, 0);
    let addresses = tensors.iter().map(|&t| Arg::from(t));
    let args: Vec<Arg> = addresses.chain([elements.into()]).chain(more.iter().copied()).collect();
    put(launch, &kernel.define("WIDTH", width), Grid::over(elements, width), elements, &args)
}

/// The same as a launch that can be joined with others; the kernel is written with sweep.cuh, and what it takes beside
/// the tensors is `shared`.
pub(super) fn sweep(
    launch: &mut Launch<'_>,
    kernel: Kernel,
    tensors: &[&DeviceTensor],
    shared: &[Arg],
) -> Result<(), CudaError> {
    sweep_with(launch, kernel, tensors, Vec::new(), shared)
}

/// The same where each set of tensors has words of its own.
pub(super) fn sweep_with(
    launch: &mut Launch<'_>,
    kernel: Kernel,
    tensors: &[&DeviceTensor],
    words: Vec<u64>,
    shared: &[Arg],
) -> Result<(), CudaError> {
    let (elements, width) = (tensors[0].ty.elements(), width(tensors, 0));
    let set = Set { addresses: tensors.iter().map(|t| t.address).collect(), words, elements };
    let sweep = Sweep { kernel: kernel.define("WIDTH", width), width, sets: vec![set], shared: shared.to_vec() };
    if elements == 0 { Ok(()) } else { launch.queue.sweep(sweep) }
}

/// Puts a kernel on the queue unless there is nothing for it to do.
pub(super) fn put(
    launch: &mut Launch<'_>,
    kernel: &Kernel,
    grid: Grid,
    work: usize,
    args: &[Arg],
) -> Result<(), CudaError> {
    if work == 0 { Ok(()) } else { launch.kernel(kernel, grid, args) }
}

/// The kernel with element types as macros: `types(kernel, &[("T", x)])`.
pub(super) fn typed(source: Source, entry: &'static str, types: &[(&'static str, &DeviceTensor)]) -> Kernel {
    types.iter().fold(Kernel::new(source, entry), |kernel, (name, tensor)| kernel.dtype(name, tensor.ty.dtype))
}

/// `INDEX`, the type in which numbers up to `count` are divided: on a card 32 bits are several times faster than 64.
pub(super) fn define_index(kernel: Kernel, count: usize) -> Kernel {
    kernel.define("INDEX", if u32::try_from(count).is_ok() { "u32" } else { "u64" })
}

/// Rows and how many elements each has.
pub(super) fn rows_of(ty: &Type) -> (usize, usize) {
    let width = ty.shape.last().copied().unwrap_or(1);
    (ty.elements() / width.max(1), width)
}

/// How threads share rows that are kept in registers: see rows.cuh.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Group {
    pub width: usize,
    pub threads: usize,
    pub packs: usize,
}

impl Group {
    /// The fewest threads that hold at most four vectors each; 1024 for the longest rows.
    pub(super) fn new(row: usize, width: usize) -> Group {
        Group::with(row, width, 4, &[32, 128, 256, 512])
    }

    /// The same, but rows of few vectors share a warp.
    pub(super) fn lanes(row: usize, width: usize) -> Group {
        if row <= 16 * width { Group::with(row, width, 1, &[8, 16]) } else { Group::new(row, width) }
    }

    /// For kernels that keep more than the row while a group goes through many of them: a warp has up to 32 elements to
    /// a lane, a block one vector to a thread up to 512.
    pub(super) fn teams(row: usize, width: usize) -> Group {
        match row {
            _ if row <= 16 * width => Group::lanes(row, width),
            ..=LANES_HOLD => Group::with(row, width, LANES_HOLD / 32 / width, &[32]),
            _ => Group::with(row, width, 1, &[64, 128, 256, 512]),
        }
    }

    /// For kernels that keep much more than the row: a warp has up to three vectors to a lane, a block one to a thread.
    pub(super) fn vectors(row: usize, width: usize) -> Group {
        match row {
            _ if row <= 16 * width => Group::lanes(row, width),
            _ if row <= 96 * width => Group::with(row, width, 3, &[32]),
            _ => Group::with(row, width, 1, &[128, 256, 512]),
        }
    }

    fn with(row: usize, width: usize, most: usize, sizes: &[usize]) -> Group {
        let vectors = row.div_ceil(width).max(1);
        let threads = sizes.iter().copied().find(|threads| vectors <= most * threads).unwrap_or(1024);
        Group { width, threads, packs: vectors.div_ceil(threads) }
    }

    pub(super) fn define(&self, kernel: Kernel) -> Kernel {
        kernel.define("WIDTH", self.width).define("GROUP", self.threads).define("PACKS", self.packs)
    }

    /// One group per row; warps, and parts of them, share blocks of 128.
    pub(super) fn grid(&self, rows: usize) -> Grid {
        match self.threads {
            ..=32 => Grid::new(rows.div_ceil(128 / self.threads), 128),
            _ => Grid::new(rows, self.threads),
        }
    }
}

/// Elements that the lanes of a warp hold beside their sums.
pub(super) const LANES_HOLD: usize = 1024;

/// Blocks that share a row: threads to each, and how many of them.
pub(super) fn slices(row: usize, width: usize) -> (usize, usize) {
    let threads = row.div_ceil(width).next_multiple_of(32).clamp(32, 256);
    (threads, row.div_ceil(threads * width).max(1))
}

/// How many neighbours a thread handles where rows are streamed, which may begin anywhere: those in 16 bytes, as long as
/// all tensors lie equally far from such a boundary. See long_rows.cuh.
pub(super) fn stream_width(tensors: &[&DeviceTensor]) -> usize {
    let (first, bytes) = (tensors[0].address, tensors[0].ty.dtype.bytes());
    let alike = tensors.iter().all(|t| t.address % 16 == first % 16);
    if alike && first.is_multiple_of(bytes as u64) { 16 / bytes } else { 1 }
}

/// Vectors that are on their way to a thread at a time, as long_rows.cuh has it.
const BATCH: usize = 4;

/// The threads of a block that streams a row.
pub(super) fn stream_threads(row: usize, width: usize) -> usize {
    row.div_ceil(width * BATCH).next_multiple_of(32).clamp(32, 512)
}

/// Blocks that share a row which is streamed: more than one only if there are few rows.
pub(super) fn stream_slices(rows: usize, row: usize, width: usize) -> usize {
    let batches = row.div_ceil(stream_threads(row, width) * width * BATCH);
    (1024 / rows.max(1)).clamp(1, batches.max(1))
}

/// Dimensions that a kernel can walk; see walk.cuh.
const DIMS: usize = 6;

/// One shape seen through the strides of two tensors, with dimensions joined where both step evenly through them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Walk {
    /// Outermost first, in vectors of the innermost.
    dims: Vec<Dim>,
    width: usize,
}

/// A length, and the steps of both tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Dim {
    len: usize,
    a: usize,
    b: usize,
}

impl Walk {
    /// None if too many dimensions remain.
    pub(super) fn new(shape: &[usize], a: &[usize], b: &[usize]) -> Option<Walk> {
        let mut dims: Vec<Dim> = Vec::new();
        for (&len, (&a, &b)) in shape.iter().zip(a.iter().zip(b)).filter(|(len, _)| **len != 1) {
            match dims.last_mut() {
                Some(outer) if outer.a == a * len && outer.b == b * len => *outer = Dim { len: outer.len * len, a, b },
                _ => dims.push(Dim { len, a, b }),
            }
        }
        if dims.is_empty() {
            dims.push(Dim { len: 1, a: 1, b: 1 });
        }
        (dims.len() <= DIMS).then_some(Walk { dims, width: 1 })
    }

    /// The innermost steps of a and b.
    pub(super) fn steps(&self) -> (usize, usize) {
        self.dims.last().map_or((1, 1), |dim| (dim.a, dim.b))
    }

    /// Walks as many neighbours at a time as 16 bytes hold, or fewer, so that vectors of elements of `size` bytes begin
    /// on their boundaries on both sides. A side that repeats one element has none.
    pub(super) fn vectors(mut self, size: usize, addresses: &[u64]) -> Walk {
        let aligned = |width: usize| addresses.iter().all(|address| address.is_multiple_of((width * size) as u64));
        let fits = |&width: &usize| width * size <= 16 && self.consists_of(width) && aligned(width);
        let width = [8, 4, 2].into_iter().find(fits).unwrap_or(1);
        if let Some(last) = self.dims.last_mut() {
            *last = Dim { len: last.len / width, a: last.a * width, b: last.b * width };
        }
        Walk { width, ..self }
    }

    fn consists_of(&self, width: usize) -> bool {
        let Some((last, outer)) = self.dims.split_last() else { return false };
        let side = |inner: usize, step: fn(&Dim) -> usize| match inner {
            0 => true,
            1 => outer.iter().all(|dim| step(dim).is_multiple_of(width)),
            _ => false,
        };
        last.len.is_multiple_of(width) && side(last.a, |dim| dim.a) && side(last.b, |dim| dim.b)
    }

    /// Vectors of all dimensions together.
    pub(super) fn count(&self) -> usize {
        self.dims.iter().map(|dim| dim.len).product()
    }

    pub(super) fn define(&self, kernel: Kernel) -> Kernel {
        define_index(kernel, self.count()).define("WIDTH", self.width).define("RANK", self.dims.len())
    }

    /// The count, then lengths, steps of a and steps of b, each filled up to [`DIMS`].
    pub(super) fn args(&self) -> impl Iterator<Item = Arg> + '_ {
        let of = |part: fn(&Dim) -> usize| (0..DIMS).map(move |i| Arg::from(self.dims.get(i).map_or(1, part)));
        let [len, a, b]: [fn(&Dim) -> usize; 3] = [|dim| dim.len, |dim| dim.a, |dim| dim.b];
        [Arg::from(self.count())].into_iter().chain(of(len)).chain(of(a)).chain(of(b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_are_joined_and_walked_in_vectors() {
        // A slice of columns into a row-major tensor: rows stay apart, columns go eight at a time.
        let walk = Walk::new(&[2, 3, 16], &[96, 32, 1], &[48, 16, 1]).unwrap();
        assert_eq!(walk.dims, [Dim { len: 6, a: 32, b: 16 }, Dim { len: 16, a: 1, b: 1 }]);
        let walk = walk.vectors(2, &[64, 128]);
        assert_eq!((walk.width, walk.count()), (8, 12));
        // Four bytes off the boundary, two elements of two bytes are the most.
        let walk = Walk::new(&[2, 16], &[32, 1], &[16, 1]).unwrap();
        assert_eq!(walk.vectors(2, &[68, 128]).width, 2);
        // A transpose has no vectors; repeated elements do.
        assert_eq!(Walk::new(&[8, 8], &[1, 8], &[8, 1]).unwrap().vectors(4, &[0, 0]).width, 1);
        assert_eq!(Walk::new(&[8, 8], &[1, 0], &[8, 1]).unwrap().vectors(4, &[0, 0]).width, 4);
        assert_eq!(Walk::new(&[1, 1], &[9, 9], &[1, 1]).unwrap().count(), 1);
        assert_eq!(Walk::new(&[2; 7], &[0, 1, 0, 2, 0, 4, 0], &[1; 7]), None);
    }

    #[test]
    fn groups_hold_every_element_of_a_row() {
        for (row, width) in [(1, 1), (64, 8), (768, 4), (1024, 8), (5001, 1), (65536, 8), (100_003, 1)] {
            let groups = [Group::new, Group::lanes, Group::teams, Group::vectors].map(|group| group(row, width));
            for group in groups {
                assert!(group.threads * group.packs * width >= row && group.threads <= 1024, "{row}: {group:?}");
            }
        }
    }

    #[test]
    fn rows_are_streamed_in_vectors_if_tensors_begin_alike() {
        let at = |address: u64| DeviceTensor { address, ty: Type::new(DType::F32, &[3, 50257]) };
        assert_eq!(stream_width(&[&at(64), &at(256)]), 4);
        assert_eq!(stream_width(&[&at(68), &at(132)]), 4);
        assert_eq!(stream_width(&[&at(68), &at(64)]), 1);
        // Many rows have a block each; few are shared, but never so that a block has nothing to read.
        assert_eq!((stream_threads(50257, 4), stream_slices(4096, 50257, 4)), (512, 1));
        assert_eq!((stream_slices(1, 50257, 4), stream_slices(1, 7, 4)), (7, 1));
    }
}
