//! A feed-forward whose hidden values never exist in memory: both products, and the function between them, chunk by
//! chunk of the hidden width.

mod cpu;
mod cuda;
mod grad;

use super::*;
use crate::graph::InputGrads;
use crate::kernels::cpu::with_float;
use crate::types::Results;
use grad::FeedForwardGrad;
use smallvec::smallvec;

/// `y = act(x · Wᵤᵀ + bᵤ) · W_dᵀ + b_d`. Inputs: x (N, D), up (H, D) and its bias (H), down (D, H) and its bias (D).
#[derive(Debug, Clone, PartialEq)]
pub struct FeedForward {
    pub activation: Activation,
}

impl FeedForward {
    /// The widest rows that the CUDA kernels hold in registers.
    pub const WIDEST_ON_CUDA: usize = 128;

    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let sample = |activation, [tokens, width, hidden]: [usize; 3]| {
            // Hidden values of order 1, whatever the width.
            let share = |n: usize| Fill::Uniform(-1.0 / (n as f64).sqrt(), 1.0 / (n as f64).sqrt());
            let inputs = vec![
                SampleInput::float(&[tokens, width], Fill::Normal),
                SampleInput::float(&[hidden, width], share(width)),
                SampleInput::float(&[hidden], Fill::Normal),
                SampleInput::float(&[width, hidden], share(hidden)),
                SampleInput::float(&[width], Fill::Normal),
            ];
            Sample::new(FeedForward { activation }, inputs)
        };
        let mut small = || [rng.size(1, 40), rng.size(1, 40), rng.size(1, 70)];
        let smooth = [Activation::GeluTanh, Activation::Silu, Activation::Sigmoid].map(|act| sample(act, small()));
        // Rows that come as vectors in f32, in half precision too, and in neither, of every width that kernels have.
        let fixed = [[33, 64, 100], [70, 8, 36], [5, 100, 12], [300, 64, 136], [40, 88, 72], [129, 128, 200]];
        let gelu = fixed.into_iter().chain([small()]).map(|sizes| sample(Activation::Gelu, sizes)).collect::<Vec<_>>();
        smooth.into_iter().chain(gelu).collect()
    }
}

/// Rows, their width, and the width between the two products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    tokens: usize,
    width: usize,
    hidden: usize,
}

impl Sizes {
    fn new(x: &Type, up: &Type) -> Sizes {
        Sizes { tokens: x.shape[0], width: x.shape[1], hidden: up.shape[0] }
    }

    /// Operations of this many products, each between rows and hidden values, and of this much work on a hidden value.
    fn flops(&self, products: f64, each: f64) -> f64 {
        let values = self.tokens as f64 * self.hidden as f64;
        values * (2.0 * products * self.width as f64 + each)
    }
}

/// The types of x, up, its bias and down, or why they do not go together.
fn check(inputs: &[Type]) -> Result<Sizes, OpError> {
    let wrong = |what: &str| OpError::new(format!("a feed-forward of {}: {what}", inputs[0]));
    let [x, up, bias, down, ..] = inputs else { return OpError::new("a feed-forward has five inputs") };
    if x.rank() != 2 || up.rank() != 2 || up.shape[1] != x.shape[1] {
        return wrong(&format!("the first weight is {up}"));
    }
    let sizes = Sizes::new(x, up);
    if bias.shape[..] != [sizes.hidden] || down.shape[..] != [sizes.width, sizes.hidden] {
        return wrong(&format!("the first bias is {bias}, the second weight {down}"));
    }
    match inputs.iter().all(|ty| ty.dtype == x.dtype) {
        true => Ok(sizes),
        false => wrong("its inputs are of several types"),
    }
}

impl Op for FeedForward {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let sizes = check(inputs)?;
        match inputs {
            [x, _, _, _, bias] if bias.shape[..] == [sizes.width] => Ok(smallvec![x.contiguous()]),
            _ => OpError::new(format!("a feed-forward of {} takes a second bias of {}", inputs[0], sizes.width)),
        }
    }
    /// Products with a function between them, whose results stay where they are computed: its rates are attention's.
    fn class(&self) -> Class {
        Class::FeedForward
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        let flops = Sizes::new(&inputs[0], &inputs[1]).flops(2.0, self.activation.flops());
        Cost { flops, bytes: Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        let sizes = Sizes::new(&inputs[0], &inputs[1]);
        match target.backend {
            Backend::Cpu => cpu::forward_scratch(&sizes, target.threads) * inputs[0].dtype.bytes(),
            Backend::Cuda => cuda::forward_workspace(&sizes, inputs[0].dtype),
        }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => cpu::forward::<T>(self.activation, io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        cuda::forward(self, launch)
    }
}

impl Differentiable for FeedForward {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let (dy, width) = (cx.grad0(), cx.graph.shape(cx.input(4)).to_vec());
        let inputs = [cx.input(0), cx.input(1), cx.input(2), cx.input(3), dy];
        let grads = cx.add(FeedForwardGrad { activation: self.activation }, &inputs)?;
        let bias = if cx.wants(4) { Some(reduce::sum_to(cx, dy, &width)?) } else { None };
        Ok(grads.into_iter().map(Some).chain([bias]).collect())
    }
}
