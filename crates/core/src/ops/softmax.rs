//! Softmax over the last dimension with the scale and the masks of attention scores.

use super::cuda::{Group, put, refuse_f64, rows_of, source, typed, width};
use super::*;
use crate::graph::{Aliases, InputGrads};
use crate::kernels::cpu::Element;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::parallel;
use crate::kernels::cpu::rows::{self, InPlace};
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Arg, DeviceTensor};
use crate::types::{DType, Results};
use plimsoll_base::simd::simd;
use smallvec::smallvec;
use std::convert::identity;

/// `softmax(scale · x)` over rows of (…, Tq, Tk). A second input i32 (B, Tk), B being the first dimension of x, hides
/// keys where it is 0. A row without a visible key becomes zeros.
#[derive(Debug, Clone, PartialEq)]
pub struct Softmax {
    pub scale: f64,
    /// Query i sees key j only if j ≤ i + Tk − Tq.
    pub causal: bool,
    /// Whether the result counts as attention scores in the breakdown.
    pub scores: bool,
}

impl Softmax {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let mut samples = Vec::new();
        for (causal, masked) in [(false, false), (true, false), (false, true), (true, true)] {
            let (batch, queries, keys) = (rng.size(1, 3), rng.size(1, 9), rng.size(1, 70));
            let mut inputs = vec![SampleInput::float(&[batch, 2, queries, keys], Fill::Normal)];
            if masked {
                inputs.push(SampleInput::new(Type::new(DType::I32, &[batch, keys]), Fill::Mask));
            }
            samples.push(Sample::new(Softmax { scale: 0.7, causal, scores: true }, inputs));
        }
        let plain = Softmax { scale: 1.0, causal: false, scores: false };
        samples.push(Sample::new(plain, vec![SampleInput::float(&[rng.size(1, 90)], Fill::Normal)]));
        samples
    }

    /// How many leading keys the query of this row sees.
    #[inline(always)]
    fn visible(&self, row: usize, queries: usize, keys: usize) -> usize {
        if self.causal { (row % queries + 1 + keys).saturating_sub(queries).min(keys) } else { keys }
    }

    fn component(&self) -> Option<Component> {
        self.scores.then_some(Component::AttentionScores)
    }
}

impl Op for Softmax {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let (x, mask) = match inputs {
            [x] => (x, None),
            [x, mask] => (x, Some(mask)),
            _ => return OpError::new("needs scores and at most one mask"),
        };
        if x.rank() < 1 + self.causal as usize {
            return OpError::new(format!("{x} has too few dimensions"));
        }
        let fits = |mask: &Type| mask.dtype == DType::I32 && mask.shape[..] == [x.shape[0], x.shape[x.rank() - 1]];
        match mask.filter(|mask| x.rank() < 2 || !fits(mask)) {
            Some(mask) => OpError::new(format!("{mask} does not mask the keys of {x}")),
            None => Ok(smallvec![x.contiguous()]),
        }
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::may(0, 0)]
    }
    fn class(&self) -> Class {
        Class::Softmax
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, 14.0)
    }
    fn component(&self, _: usize) -> Option<Component> {
        self.component()
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => self.forward::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let (x, y) = (&launch.inputs[0], &launch.outputs[0]);
        let mask = launch.inputs.get(1).map_or(Arg::Address(0), Arg::from);
        let rows_per_sample = rows_of(&x.ty).0 / x.ty.shape[0].max(1);
        let more: [Arg; 2] = [rows_per_sample.into(), (self.scale as f32).into()];
        self.launch_rows(launch, "softmax", &[x, y], &[x.into(), mask, y.into()], &more)
    }
}

impl Differentiable for Softmax {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let inputs = [cx.grad0(), cx.output(0)];
        let dx = cx.add1(SoftmaxGrad(self.clone()), &inputs)?;
        Ok([Some(dx), None].into_iter().take(cx.inputs().len()).collect())
    }
}

/// Inputs: dy, y. `dx = scale · y · (dy − Σ y · dy)`; a masked key has y = 0, so the mask is not needed again.
#[derive(Debug, Clone, PartialEq)]
struct SoftmaxGrad(Softmax);

impl Op for SoftmaxGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[1].contiguous()])
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::may(0, 0)]
    }
    fn class(&self) -> Class {
        Class::Softmax
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, 5.0)
    }
    fn component(&self, _: usize) -> Option<Component> {
        self.0.component()
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => self.0.backward::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let (dy, y, dx) = (&launch.inputs[0], &launch.inputs[1], &launch.outputs[0]);
        let tensors = [dy, y, dx];
        self.0.launch_rows(launch, "softmax_grad", &tensors, &tensors.map(Arg::from), &[(self.0.scale as f32).into()])
    }
}

impl Softmax {
    /// A kernel over the rows of `tensors`, with the arguments `first`, then rows, queries and keys, then `more`.
    fn launch_rows(
        &self,
        launch: &mut Launch<'_>,
        entry: &'static str,
        tensors: &[&DeviceTensor],
        first: &[Arg],
        more: &[Arg],
    ) -> Result<(), CudaError> {
        let ty = &tensors[0].ty;
        let (rows, keys) = rows_of(ty);
        let queries = if ty.rank() > 1 { ty.shape[ty.rank() - 2] } else { 1 };
        let group = Group::new(keys, width(tensors, keys));
        let kernel = typed(source!("softmax", "map", "rows"), entry, &[("T", tensors[0])]);
        let kernel = group.define(kernel.define("CAUSAL", u32::from(self.causal)));
        let sizes = [rows, queries, keys].map(Arg::from);
        let args: Vec<Arg> = [first, &sizes, more].concat();
        put(launch, &kernel, group.grid(rows), ty.elements(), &args)
    }

    /// Runs `body(row, x, visible)` on every row of output 0, which starts as input 0.
    fn for_rows<T: Element>(&self, io: &CpuIo<'_>, body: impl Fn(usize, &mut [T], usize) + Sync) {
        let ty = io.output_type(0);
        let keys = ty.shape[ty.rank() - 1];
        let queries = if ty.rank() > 1 { ty.shape[ty.rank() - 2] } else { 1 };
        let count = ty.elements() / keys.max(1);
        let (data, step) = (InPlace::<T>::new(io, 0, 0), rows::rows_per_task(keys));
        parallel(count.div_ceil(step), |task| {
            simd(
                #[inline(always)]
                || {
                    for row in task * step..((task + 1) * step).min(count) {
                        // SAFETY: a row belongs to one task.
                        let x = unsafe { data.load(row * keys, keys) };
                        body(row, x, self.visible(row, queries, keys));
                    }
                },
            )
        });
    }

    fn forward<T: Float + Element>(&self, io: &CpuIo<'_>) {
        let ty = io.output_type(0);
        let keys = ty.shape[ty.rank() - 1];
        let rows_per_sample = ty.elements() / keys.max(1) / ty.shape[0].max(1);
        let mask = (io.inputs() > 1).then(|| io.input::<i32>(1));
        let scale = T::of(self.scale);
        self.for_rows::<T>(
            io,
            #[inline(always)]
            |row, x, visible| {
                let (x, hidden) = x.split_at_mut(visible);
                hidden.fill(T::ZERO);
                let mask = mask.map(|mask| &mask[row / rows_per_sample * keys..][..visible]);
                softmax_row(x, scale, mask);
            },
        );
    }

    fn backward<T: Float + Element>(&self, io: &CpuIo<'_>) {
        let (y, scale) = (io.input::<T>(1), T::of(self.scale));
        self.for_rows::<T>(
            io,
            #[inline(always)]
            |row, dx, visible| {
                let y = &y[row * dx.len()..][..visible];
                let (dx, hidden) = dx.split_at_mut(visible);
                hidden.fill(T::ZERO);
                let dot = rows::sum2(
                    y,
                    dx,
                    #[inline(always)]
                    |y, dy| y * dy,
                );
                for (dx, y) in dx.iter_mut().zip(y) {
                    *dx = scale * *y * (*dx - dot);
                }
            },
        );
    }
}

#[inline(always)]
fn softmax_row<T: Float>(row: &mut [T], scale: T, mask: Option<&[i32]>) {
    for x in row.iter_mut() {
        *x *= scale;
    }
    if let Some(mask) = mask {
        for (x, &seen) in row.iter_mut().zip(mask) {
            *x = if seen == 0 { T::NEG_INFINITY } else { *x };
        }
    }
    // Nothing visible leaves a sum of zero; a NaN, which `max` can miss, reaches the sum in any case.
    let highest = rows::max(row);
    let shift = if highest == T::NEG_INFINITY { T::ZERO } else { highest };
    for x in row.iter_mut() {
        *x = (*x - shift).exp();
    }
    let sum = rows::sum(row, identity);
    let factor = if sum == T::ZERO { T::ZERO } else { T::ONE / sum };
    for x in row.iter_mut() {
        *x *= factor;
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{f32s, i32s, run};
    use super::*;

    const CAUSAL: Softmax = Softmax { scale: 1.0, causal: true, scores: true };

    #[test]
    fn causal_rows_see_keys_up_to_their_own_position() {
        // Two queries, the last of three positions: they see two and three keys.
        let y = run(&CAUSAL, &[f32s(&[2, 3], &[0.0; 6])]);
        assert_eq!(y, [0.5, 0.5, 0.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0]);
        // More queries than keys: the first sees none.
        assert_eq!(run(&CAUSAL, &[f32s(&[2, 1], &[7.0, 7.0])]), [0.0, 1.0]);
    }

    #[test]
    fn masked_keys_count_nothing_whatever_they_hold() {
        let op = Softmax { causal: false, ..CAUSAL };
        let x = f32s(&[2, 1, 2], &[f32::NAN, 3.0, f32::INFINITY, f32::NAN]);
        assert_eq!(run(&op, &[x, i32s(&[2, 2], &[0, 1, 0, 0])]), [0.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn a_visible_nan_is_not_hidden() {
        let op = Softmax { causal: false, ..CAUSAL };
        let y = run(&op, &[f32s(&[1, 2], &[f32::NAN, f32::NEG_INFINITY])]);
        assert!(y.iter().all(|y| y.is_nan()));
    }

    #[test]
    fn scores_are_counted_as_such_in_both_directions() {
        assert_eq!(Op::component(&CAUSAL, 0), Some(Component::AttentionScores));
        assert_eq!(Op::component(&SoftmaxGrad(CAUSAL), 0), Some(Component::AttentionScores));
        assert_eq!(Op::component(&Softmax { scores: false, ..CAUSAL }, 0), None);
    }
}
