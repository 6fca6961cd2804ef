//! What the kernels of simple ops share on the host: sources, widths of vectors, how rows and strides are walked.

use super::Op;
use crate::exec::cuda::{Arg, CudaError, DeviceTensor, Grid, Kernel, Launch, Source};
use crate::graph::{DType, Type};

/// The kernels beside an op, `name.cu`, after the headers they use.
macro_rules! source {
    ($name:literal $(, $header:literal)*) => {
        crate::exec::cuda::Source {
            name: $name,
            text: concat!(
                $(include_str!(concat!("../exec/cuda/", $header, ".cuh")),)*
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
    pub fn new(row: usize, width: usize) -> Group {
        Group::with(row, width, 4, &[32, 128, 256, 512])
    }

    /// A whole block, one vector to a thread up to 512: for kernels that keep more than the row while a block goes
    /// through many of them.
    pub fn block(row: usize, width: usize) -> Group {
        Group::with(row, width, 1, &[64, 128, 256, 512])
    }

    fn with(row: usize, width: usize, most: usize, sizes: &[usize]) -> Group {
        let vectors = row.div_ceil(width).max(1);
        let threads = sizes.iter().copied().find(|threads| vectors <= most * threads).unwrap_or(1024);
        Group { width, threads, packs: vectors.div_ceil(threads) }
    }

    pub fn define(&self, kernel: Kernel) -> Kernel {
        kernel.define("WIDTH", self.width).define("GROUP", self.threads).define("PACKS", self.packs)
    }

    /// One group per row; warps share blocks of 128.
    pub fn grid(&self, rows: usize) -> Grid {
        if self.threads == 32 { Grid::new(rows.div_ceil(4), 128) } else { Grid::new(rows, self.threads) }
    }
}

/// Blocks that share a row: threads to each, and how many of them.
pub(super) fn slices(row: usize, width: usize) -> (usize, usize) {
    let threads = row.div_ceil(width).next_multiple_of(32).clamp(32, 256);
    (threads, row.div_ceil(threads * width).max(1))
}

/// Into how many stretches a kernel cuts rows whose parts of a sum it keeps: enough blocks for a large card. It depends
/// on the number of rows alone, so that the order of the sum does too.
pub(super) fn stretches(rows: usize) -> usize {
    let most = (rows / 8).clamp(1, 1024);
    rows.div_ceil(rows.div_ceil(most).max(1)).max(1)
}

/// Dimensions that a kernel can walk; see walk.cuh.
const DIMS: usize = 6;

/// One shape seen through the strides of two tensors, with dimensions joined where both step evenly through them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Walk {
    /// (length, step of a, step of b), outermost first.
    dims: Vec<(usize, usize, usize)>,
    width: usize,
}

impl Walk {
    /// None if too many dimensions remain.
    pub fn new(shape: &[usize], a: &[usize], b: &[usize]) -> Option<Walk> {
        let mut dims: Vec<(usize, usize, usize)> = Vec::new();
        for (&len, (&a, &b)) in shape.iter().zip(a.iter().zip(b)).filter(|(len, _)| **len != 1) {
            match dims.last_mut() {
                Some(outer) if outer.1 == a * len && outer.2 == b * len => *outer = (outer.0 * len, a, b),
                _ => dims.push((len, a, b)),
            }
        }
        if dims.is_empty() {
            dims.push((1, 1, 1));
        }
        (dims.len() <= DIMS).then_some(Walk { dims, width: 1 })
    }

    /// The innermost steps of a and b.
    pub fn steps(&self) -> (usize, usize) {
        self.dims.last().map_or((1, 1), |&(_, a, b)| (a, b))
    }

    /// Walks as many neighbours at a time as 16 bytes hold, or fewer, so that vectors of elements of `size` bytes begin
    /// on their boundaries on both sides. A side that repeats one element has none.
    pub fn vectors(mut self, size: usize, addresses: &[u64]) -> Walk {
        let fits =
            |width: usize| self.consists_of(width) && addresses.iter().all(|a| a.is_multiple_of((width * size) as u64));
        let width = [8, 4, 2].into_iter().find(|&width| width * size <= 16 && fits(width)).unwrap_or(1);
        if let Some(last) = self.dims.last_mut() {
            *last = (last.0 / width, last.1 * width, last.2 * width);
        }
        Walk { width, ..self }
    }

    fn consists_of(&self, width: usize) -> bool {
        let Some((last, outer)) = self.dims.split_last() else { return false };
        let side = |inner: usize, step: fn(&(usize, usize, usize)) -> usize| match inner {
            0 => true,
            1 => outer.iter().all(|dim| step(dim).is_multiple_of(width)),
            _ => false,
        };
        last.0.is_multiple_of(width) && side(last.1, |dim| dim.1) && side(last.2, |dim| dim.2)
    }

    /// Vectors of all dimensions together.
    pub fn count(&self) -> usize {
        self.dims.iter().map(|dim| dim.0).product()
    }

    pub fn define(&self, kernel: Kernel) -> Kernel {
        let index = if u32::try_from(self.count()).is_ok() { "u32" } else { "u64" };
        kernel.define("WIDTH", self.width).define("RANK", self.dims.len()).define("INDEX", index)
    }

    /// The count, then lengths, steps of a and steps of b, outermost first, each filled up to [`DIMS`].
    pub fn args(&self) -> impl Iterator<Item = Arg> + '_ {
        let parts: [fn(&(usize, usize, usize)) -> usize; 3] = [|d| d.0, |d| d.1, |d| d.2];
        let of = |part: fn(&(usize, usize, usize)) -> usize| {
            self.dims.iter().map(part).chain(std::iter::repeat(1)).take(DIMS).map(Arg::from)
        };
        [Arg::from(self.count())].into_iter().chain(parts.into_iter().flat_map(of))
    }
}
