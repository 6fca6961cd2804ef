//! The feed-forward on a CUDA device: which kernels run, and the parts of sums between them.

use super::super::activation::define_activation;
use super::super::cuda::put;
use super::super::device::{Regions, add_up, int, refuse_f64, run_over};
use super::*;
use crate::exec::cuda::{Arg, Grid, Kernel, Source};
use crate::graph::DType;

const SOURCE: Source = Source {
    name: "feed_forward/feed_forward",
    text: concat!(
        include_str!("../../exec/cuda/activation.cuh"),
        include_str!("../../exec/cuda/tf32.cuh"),
        include_str!("products.cuh"),
        include_str!("feed_forward.cu")
    ),
};

/// Warps of a block, and blocks that a multiprocessor has at once: registers are full.
const WARPS: usize = 8;
const RESIDENT: usize = 1;
/// Hidden values, or tokens, that lie in a tile.
const CHUNK: usize = 32;
/// Tokens or hidden values that a warp has at once, a product's height.
const ROWS: usize = 16;
/// Blocks that run at once on the card that this was fitted to. Others add up the same parts.
const BLOCKS_AT_ONCE: usize = 132 * RESIDENT;

/// Into how many parts sums of `steps` steps are cut, where `blocks` blocks compute different ones: about as few as take
/// the fewest rounds of steps.
fn parts(blocks: usize, steps: usize, most: usize) -> usize {
    let rounds = |parts: usize| (blocks * parts).div_ceil(BLOCKS_AT_ONCE) * steps.div_ceil(parts);
    let most = most.min(steps).max(1);
    let fewest = (1..=most).map(rounds).min();
    (1..=most).find(|&parts| fewest.is_some_and(|fewest| 8 * rounds(parts) <= 9 * fewest)).unwrap_or(1)
}

impl Sizes {
    /// Bytes of the parts of y, or of the gradient of x.
    fn row_bytes(&self, parts: usize) -> usize {
        4 * parts * self.tokens * self.width
    }

    fn forward_parts(&self) -> usize {
        parts(self.tokens.div_ceil(2 * ROWS * WARPS), self.hidden.div_ceil(CHUNK), 32)
    }

    fn input_parts(&self) -> usize {
        parts(self.tokens.div_ceil(ROWS * WARPS), self.hidden.div_ceil(CHUNK), 32)
    }

    fn weight_parts(&self) -> usize {
        parts(self.hidden.div_ceil(ROWS * WARPS), self.tokens.div_ceil(CHUNK), 8)
    }

    /// Where the parts of the gradients of up, its bias and down start, and where they end.
    fn weight_space(&self, start: u64) -> [u64; 4] {
        let (mut regions, many) = (Regions::new(start), self.weight_parts());
        let weight = 4 * many * self.hidden * self.width;
        [regions.take(weight), regions.take(4 * many * self.hidden), regions.take(weight), regions.end()]
    }
}

pub(super) fn forward_workspace(sizes: &Sizes) -> usize {
    sizes.row_bytes(sizes.forward_parts())
}

/// The gradient of x is added up before those of the weights begin.
pub(super) fn backward_workspace(sizes: &Sizes) -> usize {
    sizes.row_bytes(sizes.input_parts()).max(sizes.weight_space(0)[3] as usize)
}

/// One direction on the device.
struct Call {
    sizes: Sizes,
    dtype: DType,
    activation: Activation,
    /// Products of f32 that stay f32's.
    exact: bool,
    vectors: bool,
    operands: Vec<Arg>,
}

impl Call {
    fn new(op: &dyn Op, activation: Activation, launch: &Launch<'_>) -> Result<Call, CudaError> {
        let (inputs, dtype) = (launch.inputs, launch.inputs[0].ty.dtype);
        let sizes = Sizes::new(&inputs[0].ty, &inputs[1].ty);
        refuse_f64(op, &inputs[0].ty)?;
        if sizes.width > FeedForward::WIDEST_ON_CUDA {
            return Err(CudaError::NoKernel { op: format!("{op:?} of rows of {}", sizes.width), dtype });
        }
        let aligned = inputs.iter().all(|tensor| tensor.address.is_multiple_of(16));
        let in_fours = sizes.width.is_multiple_of(4) && sizes.hidden.is_multiple_of(4);
        Ok(Call {
            sizes,
            dtype,
            activation,
            exact: dtype == DType::F32 && !launch.tf32,
            vectors: dtype == DType::F32 && aligned && in_fours,
            operands: inputs[..4].iter().map(Arg::from).collect(),
        })
    }

    fn wide(&self) -> usize {
        self.sizes.width.next_multiple_of(32)
    }

    fn kernel(&self, entry: &'static str) -> Kernel {
        let kernel = Kernel::new(SOURCE, entry)
            .dtype("T", self.dtype)
            .define("WIDE", self.wide())
            .define("WARPS", WARPS)
            .define("RESIDENT", RESIDENT)
            .define("EXACT", self.exact as u32)
            .define("VECTORS", self.vectors as u32);
        match self.activation {
            Activation::Gelu if !self.exact => {
                kernel.define("ACT", "quick_erf_gelu").define("SLOPE", "quick_erf_gelu_slope")
            }
            activation => define_activation(kernel, activation),
        }
    }

    /// Tokens that a warp has in the forward pass, as TOKENS in the kernels.
    fn forward_rows(&self) -> usize {
        if self.wide() <= 64 && !self.exact { 2 * ROWS } else { ROWS }
    }

    /// A kernel of blocks that share `rows` rows, `each` to a warp, and `parts` parts of sums.
    fn run(
        &self,
        launch: &mut Launch<'_>,
        entry: &'static str,
        [rows, each, parts]: [usize; 3],
        more: &[u64],
    ) -> Result<(), CudaError> {
        let stages = if self.wide() <= 64 { 2 } else { 1 };
        let shared = stages * CHUNK * (2 * self.wide() + 1) * 4;
        let blocks = [rows.div_ceil(each * WARPS) as u32, parts as u32, 1];
        let grid = Grid { blocks, ..Grid::new(1, 32 * WARPS).shared(shared) };
        let more = more.iter().map(|&address| Arg::Address(address));
        let sizes = [self.sizes.tokens.into(), int(self.sizes.width), int(self.sizes.hidden)];
        let args: Vec<Arg> = self.operands.iter().copied().chain(more).chain(sizes).collect();
        put(launch, &self.kernel(entry), grid, rows, &args)
    }
}

pub(super) fn forward(op: &FeedForward, launch: &mut Launch<'_>) -> Result<(), CudaError> {
    let call = Call::new(op, op.activation, launch)?;
    let (sizes, space, many) = (call.sizes, launch.workspace, call.sizes.forward_parts());
    call.run(launch, "forward", [sizes.tokens, call.forward_rows(), many], &[space])?;
    let (bias, y) = (launch.inputs[4].address, launch.outputs[0].address);
    let (elements, ends) = (sizes.tokens * sizes.width, [space, bias, y].map(Arg::Address));
    let args = [&ends[..], &[elements.into(), int(many), int(sizes.width)]].concat();
    run_over(launch, &call.kernel("finish"), elements, &args)
}

pub(super) fn backward(op: &FeedForwardGrad, launch: &mut Launch<'_>) -> Result<(), CudaError> {
    let call = Call::new(op, op.activation, launch)?;
    let (sizes, space, dy) = (call.sizes, launch.workspace, launch.inputs[4].address);
    let [dx, dup, dbias, ddown] = [0, 1, 2, 3].map(|index| launch.outputs[index].address);
    let many = sizes.input_parts();
    call.run(launch, "backward_input", [sizes.tokens, ROWS, many], &[dy, space])?;
    add_up(launch, call.dtype, space, dx, sizes.tokens * sizes.width, many)?;
    let ([up, bias, down, _], many) = (sizes.weight_space(space), sizes.weight_parts());
    call.run(launch, "backward_weights", [sizes.hidden, ROWS, many], &[dy, up, bias, down])?;
    let weight = sizes.hidden * sizes.width;
    for (from, to, count) in [(up, dup, weight), (bias, dbias, sizes.hidden), (down, ddown, weight)] {
        add_up(launch, call.dtype, from, to, count, many)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_cut_where_blocks_are_few() {
        assert_eq!(parts(64, 200, 32), 2);
        assert_eq!(parts(1000, 200, 32), 1);
        assert_eq!(parts(1, 1, 32), 1);
        assert_eq!(parts(0, 0, 8), 1);
        for (blocks, steps) in [(4, 200), (50, 512), (50, 32), (131, 7)] {
            let many = parts(blocks, steps, 32);
            assert!((1..=steps.min(32)).contains(&many), "{blocks} blocks of {steps}: {many}");
            let rounds = |parts: usize| (blocks * parts).div_ceil(BLOCKS_AT_ONCE) * steps.div_ceil(parts);
            assert!(rounds(many) <= rounds(1), "{blocks} blocks of {steps} take longer in {many} parts");
        }
    }
}
