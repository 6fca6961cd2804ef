//! The feed-forward on a CUDA device: which kernels run, and the parts of sums between them.

use super::super::activation::define_activation;
use super::super::cuda::put;
use super::super::device::{Regions, add_up, int, refuse_f64, run_over};
use super::*;
use crate::kernels::cuda::{Arg, Grid, Kernel, Source};
use crate::types::DType;

/// The kernels of a precision, and how they cut the work up.
#[derive(Clone, Copy)]
struct Form {
    source: Source,
    /// Hidden values, or tokens, that lie in a tile, and the bytes of each of its cells.
    chunk: usize,
    cell_bytes: usize,
    /// Sixteens of tokens that a warp has at once, `FORWARD` and for the gradient of x (`INPUT`), where a row is no wider
    /// than 64.
    tokens: [usize; 2],
    /// Warps of a block, and blocks that a multiprocessor has at once: registers are full.
    warps: usize,
    resident: usize,
}

/// Places in `Form::tokens`.
const FORWARD: usize = 0;
const INPUT: usize = 1;

/// f32 and tf32.
const FULL: Form = Form {
    source: Source {
        name: "feed_forward/feed_forward",
        text: concat!(
            include_str!("../../kernels/cuda/activation.cuh"),
            include_str!("../../kernels/cuda/tf32.cuh"),
            include_str!("both.cuh"),
            include_str!("products.cuh"),
            include_str!("feed_forward.cu")
        ),
    },
    chunk: 32,
    cell_bytes: 4,
    tokens: [2, 1],
    warps: 8,
    resident: 1,
};

const HALF: Form = Form {
    source: Source {
        name: "feed_forward/half",
        text: concat!(
            include_str!("../../kernels/cuda/activation.cuh"),
            include_str!("../../kernels/cuda/half.cuh"),
            include_str!("both.cuh"),
            include_str!("half.cu")
        ),
    },
    chunk: 64,
    cell_bytes: 2,
    tokens: [2, 2],
    warps: 4,
    resident: 2,
};

impl Form {
    fn of(dtype: DType) -> Form {
        if dtype.is_half() { HALF } else { FULL }
    }

    /// Into how many parts sums of `steps` steps are cut, where `blocks` blocks compute different ones: about as few as
    /// take the fewest rounds of steps.
    fn parts(&self, blocks: usize, steps: usize, most: usize) -> usize {
        let rounds = |parts: usize| self.rounds(blocks, steps, parts);
        let most = most.min(steps).max(1);
        let fewest = (1..=most).map(rounds).min();
        (1..=most).find(|&parts| fewest.is_some_and(|fewest| 8 * rounds(parts) <= 9 * fewest)).unwrap_or(1)
    }

    /// Steps that all blocks take one after the other.
    fn rounds(&self, blocks: usize, steps: usize, parts: usize) -> usize {
        (blocks * parts).div_ceil(MULTIPROCESSORS * self.resident) * steps.div_ceil(parts)
    }
}

/// Tokens or hidden values that a warp has at once, a product's height.
const ROWS: usize = 16;
/// Multiprocessors of the card that this was fitted to. Others add up the same parts.
const MULTIPROCESSORS: usize = 132;

impl Sizes {
    /// A row's elements as the kernels have them.
    fn wide(&self) -> usize {
        self.width.next_multiple_of(32)
    }

    /// Bytes of the parts of y, or of the gradient of x.
    fn row_bytes(&self, parts: usize) -> usize {
        4 * parts * self.tokens * self.width
    }

    /// Parts of y, `FORWARD`, or of the gradient of x, `INPUT`.
    fn row_parts(&self, form: &Form, direction: usize) -> usize {
        let blocks = self.tokens.div_ceil(form.tokens[direction] * ROWS * form.warps);
        form.parts(blocks, self.hidden.div_ceil(form.chunk), 32)
    }

    fn weight_parts(&self, form: &Form) -> usize {
        form.parts(self.hidden.div_ceil(ROWS * form.warps), self.tokens.div_ceil(form.chunk), 8)
    }

    /// Where the parts of the gradients of up, its bias and down start, and where they end.
    fn weight_space(&self, form: &Form, start: u64) -> [u64; 4] {
        let (mut regions, many) = (Regions::new(start), self.weight_parts(form));
        let weight = 4 * many * self.hidden * self.width;
        [regions.take(weight), regions.take(4 * many * self.hidden), regions.take(weight), regions.end()]
    }
}

pub(super) fn forward_workspace(sizes: &Sizes, dtype: DType) -> usize {
    sizes.row_bytes(sizes.row_parts(&Form::of(dtype), FORWARD))
}

/// The gradient of x is added up before those of the weights begin.
pub(super) fn backward_workspace(sizes: &Sizes, dtype: DType) -> usize {
    let form = Form::of(dtype);
    sizes.row_bytes(sizes.row_parts(&form, INPUT)).max(sizes.weight_space(&form, 0)[3] as usize)
}

/// One direction on the device.
struct Call {
    form: Form,
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
        let form = Form::of(dtype);
        let aligned = inputs.iter().all(|tensor| tensor.address.is_multiple_of(16));
        let in_vectors = [sizes.width, sizes.hidden].iter().all(|n| n.is_multiple_of(16 / form.cell_bytes));
        Ok(Call {
            form,
            sizes,
            dtype,
            activation,
            exact: dtype == DType::F32 && !launch.tf32,
            vectors: aligned && in_vectors,
            operands: inputs[..4].iter().map(Arg::from).collect(),
        })
    }

    fn kernel(&self, entry: &'static str) -> Kernel {
        let kernel = Kernel::new(self.form.source, entry)
            .dtype("T", self.dtype)
            .define("WIDE", self.sizes.wide())
            .define("WARPS", self.form.warps)
            .define("RESIDENT", self.form.resident)
            .define("VECTORS", self.vectors as u32);
        let kernel = match self.dtype.is_half() {
            true => kernel.define("BF16", (self.dtype == DType::Bf16) as u32),
            false => kernel.define("EXACT", self.exact as u32),
        };
        match self.activation {
            Activation::Gelu if !self.exact => {
                kernel.define("ACT", "quick_erf_gelu").define("SLOPE", "quick_erf_gelu_slope")
            }
            activation => define_activation(kernel, activation),
        }
    }

    /// Tokens that a warp has in a direction, as TOKENS in the kernels.
    fn rows(&self, direction: usize) -> usize {
        if self.sizes.wide() <= 64 && !self.exact { self.form.tokens[direction] * ROWS } else { ROWS }
    }

    /// A kernel of blocks that share `rows` rows, `each` to a warp, and `parts` parts of sums.
    fn run(
        &self,
        launch: &mut Launch<'_>,
        entry: &'static str,
        [rows, each, parts]: [usize; 3],
        more: &[u64],
    ) -> Result<(), CudaError> {
        let (wide, Form { chunk, cell_bytes, warps, .. }) = (self.sizes.wide(), self.form);
        let stages = if wide <= 64 { 2 } else { 1 };
        let shared = stages * chunk * (2 * wide + 1) * cell_bytes;
        let blocks = [rows.div_ceil(each * warps) as u32, parts as u32, 1];
        let grid = Grid { blocks, ..Grid::new(1, 32 * warps).shared(shared) };
        let more = more.iter().map(|&address| Arg::Address(address));
        let sizes = [self.sizes.tokens.into(), int(self.sizes.width), int(self.sizes.hidden)];
        let args: Vec<Arg> = self.operands.iter().copied().chain(more).chain(sizes).collect();
        put(launch, &self.kernel(entry), grid, rows, &args)
    }
}

pub(super) fn forward(op: &FeedForward, launch: &mut Launch<'_>) -> Result<(), CudaError> {
    let call = Call::new(op, op.activation, launch)?;
    let (sizes, space, many) = (call.sizes, launch.workspace, call.sizes.row_parts(&call.form, FORWARD));
    call.run(launch, "forward", [sizes.tokens, call.rows(FORWARD), many], &[space])?;
    let (bias, y) = (launch.inputs[4].address, launch.outputs[0].address);
    let (elements, ends) = (sizes.tokens * sizes.width, [space, bias, y].map(Arg::Address));
    let args = [&ends[..], &[elements.into(), int(many), int(sizes.width)]].concat();
    run_over(launch, &call.kernel("finish"), elements, &args)
}

pub(super) fn backward(op: &FeedForwardGrad, launch: &mut Launch<'_>) -> Result<(), CudaError> {
    let call = Call::new(op, op.activation, launch)?;
    let (sizes, space, dy) = (call.sizes, launch.workspace, launch.inputs[4].address);
    let [dx, dup, dbias, ddown] = [0, 1, 2, 3].map(|index| launch.outputs[index].address);
    let many = sizes.row_parts(&call.form, INPUT);
    call.run(launch, "backward_input", [sizes.tokens, call.rows(INPUT), many], &[dy, space])?;
    add_up(launch, call.dtype, space, dx, sizes.tokens * sizes.width, many)?;
    let ([up, bias, down, _], many) = (sizes.weight_space(&call.form, space), sizes.weight_parts(&call.form));
    call.run(launch, "backward_weights", [sizes.hidden, ROWS, many], &[dy, up, bias, down])?;
    let weight = sizes.hidden * sizes.width;
    let ends = [up, bias, down, dup, dbias, ddown].map(Arg::Address);
    let args = [&ends[..], &[weight.into(), sizes.hidden.into(), int(many)]].concat();
    run_over(launch, &call.kernel("finish_weights"), 2 * weight + sizes.hidden, &args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_cut_where_blocks_are_few() {
        assert_eq!(FULL.parts(64, 200, 32), 2);
        assert_eq!(HALF.parts(64, 200, 32), 4);
        for form in [FULL, HALF] {
            assert_eq!(form.parts(1000, 200, 32), 1);
            assert_eq!(form.parts(1, 1, 32), 1);
            assert_eq!(form.parts(0, 0, 8), 1);
            for (blocks, steps) in [(4, 200), (50, 512), (50, 32), (131, 7)] {
                let many = form.parts(blocks, steps, 32);
                assert!((1..=steps.min(32)).contains(&many), "{blocks} blocks of {steps}: {many}");
                let takes_longer = form.rounds(blocks, steps, many) > form.rounds(blocks, steps, 1);
                assert!(!takes_longer, "{blocks} blocks of {steps} take longer in {many} parts");
            }
        }
    }
}
