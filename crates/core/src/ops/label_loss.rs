//! Losses against several labels per row: binary cross-entropy and squared error, weighted sums of rows.

use super::cuda::{mismatch, put, refuse_f64, source, typed};
use super::*;
use crate::graph::{Aliases, InputGrads};
use crate::kernels::cpu::Element;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::{SharedMut, parallel};
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Arg, DeviceTensor, Grid, Kernel};
use crate::types::{DType, Results};
use smallvec::smallvec;

/// Inputs: outputs (M, L) of a model, labels (M, L), weights (M). Output: Σ weight · mean over the L labels of the loss.
/// A row of weight 0 counts nothing, whatever its labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelLoss {
    /// Outputs are logits, labels probabilities (0 or 1 for most).
    BinaryCrossEntropy,
    SquaredError,
}

impl LabelLoss {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let sample = |op: LabelLoss, rows: usize, labels: usize| {
            let truth = match op {
                LabelLoss::BinaryCrossEntropy => Fill::Mask,
                LabelLoss::SquaredError => Fill::Normal,
            };
            let inputs = vec![
                SampleInput::float(&[rows, labels], Fill::Normal),
                SampleInput::constant(&[rows, labels], truth),
                SampleInput::constant(&[rows], Fill::Mask),
            ];
            Sample::new(op, inputs).scalar_loss()
        };
        let kinds = [LabelLoss::BinaryCrossEntropy, LabelLoss::SquaredError];
        kinds.iter().flat_map(|&op| [sample(op, 7, 1), sample(op, rng.size(1, 20), rng.size(1, 50))]).collect()
    }

    fn value(self, output: f64, label: f64) -> f64 {
        match self {
            // −y·log σ(x) − (1 − y)·log(1 − σ(x)), without overflow at either end.
            LabelLoss::BinaryCrossEntropy => output.max(0.0) - output * label + (-output.abs()).exp().ln_1p(),
            LabelLoss::SquaredError => (output - label) * (output - label),
        }
    }

    fn slope(self, output: f64, label: f64) -> f64 {
        match self {
            LabelLoss::BinaryCrossEntropy => output.sigmoid() - label,
            LabelLoss::SquaredError => 2.0 * (output - label),
        }
    }
}

impl Op for LabelLoss {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let [outputs, labels, weights] = inputs else { return OpError::new("needs outputs, labels and weights") };
        let fits = outputs.rank() == 2 && labels.shape == outputs.shape && weights.shape[..] == outputs.shape[..1];
        let wide = outputs.dtype.wide();
        match fits && weights.dtype == wide && labels.dtype == wide && outputs.dtype.is_float() {
            true => Ok(smallvec![outputs.wide_shape(&[1])]),
            false => OpError::new(format!("{outputs}, {labels} and {weights} do not belong together")),
        }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        let sums = if target.backend == Backend::Cpu { DType::F64 } else { DType::F32 };
        sums.bytes() * inputs[0].shape[0]
    }
    fn class(&self) -> Class {
        Class::Loss
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: 20.0 * inputs[0].elements() as f64, bytes: Cost::traffic(inputs, outputs) }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => self.forward::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let ([outputs, labels, weights], [loss]) = (launch.inputs, launch.outputs) else {
            return Err(mismatch(self, launch, "outputs, labels and weights for a loss"));
        };
        let (rows, width) = (outputs.ty.shape[0], outputs.ty.shape[1]);
        let kernel = self.kernel("label_loss", outputs, weights, loss);
        let losses = launch.workspace;
        let args: [Arg; 5] = [outputs.into(), labels.into(), weights.into(), Arg::Address(losses), width.into()];
        let threads = width.next_multiple_of(32).clamp(32, 256);
        put(launch, &kernel, Grid::new(rows, threads), rows, &args)?;
        reduce::add_parts(launch, losses, rows, &[loss])
    }
}

impl LabelLoss {
    fn kernel(
        &self,
        entry: &'static str,
        outputs: &DeviceTensor,
        weights: &DeviceTensor,
        loss: &DeviceTensor,
    ) -> Kernel {
        let types = [("T", outputs), ("W", weights), ("D", loss)];
        typed(source!("label_loss", "map"), entry, &types).define("WIDTH", 1).define("LOSS", *self as u32)
    }

    /// Sums in f64, rows side by side, then their losses in order.
    fn forward<T: Float + Element>(&self, io: &CpuIo<'_>) {
        let (outputs, labels, weights) = (io.input::<T>(0), io.input::<T>(1), io.input::<T>(2));
        let (rows, width) = (weights.len(), io.input_type(0).shape[1]);
        let losses = &mut io.workspace::<f64>()[..rows];
        let slots = SharedMut::new(losses.as_mut_ptr());
        parallel(rows, |row| {
            let pairs = outputs[row * width..][..width].iter().zip(&labels[row * width..][..width]);
            let sum = || pairs.map(|(&x, &y)| self.value(x.to_f64(), y.to_f64())).sum::<f64>();
            let counts = weights[row] != T::ZERO;
            // SAFETY: each task writes its own slot.
            unsafe { slots.slice(row, 1)[0] = if counts { sum() * weights[row].to_f64() } else { 0.0 } };
        });
        io.output::<T>(0)[0] = T::of(losses.iter().sum::<f64>() / width as f64);
    }
}

impl Differentiable for LabelLoss {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let inputs = [cx.input(0), cx.input(1), cx.input(2), cx.grad0()];
        Ok(smallvec![Some(cx.add1(LabelLossGrad(*self), &inputs)?), None, None])
    }
}

/// Inputs: outputs, labels, weights, dloss. Output: the gradient of the outputs, over them if nothing else reads them.
#[derive(Debug, Clone, PartialEq)]
struct LabelLossGrad(LabelLoss);

impl Op for LabelLossGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[0].clone()])
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::may(0, 0)]
    }
    fn class(&self) -> Class {
        Class::Loss
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, 20.0)
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => self.backward::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let ([outputs, _, weights, dloss], [grads]) = (launch.inputs, launch.outputs) else {
            return Err(mismatch(self, launch, "outputs, labels, weights and dloss for doutputs"));
        };
        let (n, width) = (outputs.ty.elements(), outputs.ty.shape[1]);
        let kernel = self.0.kernel("label_loss_grad", outputs, weights, dloss);
        let tensors = launch.inputs.iter().chain([grads]).map(Arg::from);
        let args: Vec<Arg> = tensors.chain([n.into(), width.into()]).collect();
        put(launch, &kernel, Grid::over(n, 1), n, &args)
    }
}

impl LabelLossGrad {
    fn backward<T: Float + Element>(&self, io: &CpuIo<'_>) {
        let (labels, weights, dloss) = (io.input::<T>(1), io.input::<T>(2), io.scalar::<T>(3));
        let width = io.output_type(0).shape[1];
        let grads = crate::kernels::cpu::rows::InPlace::<T>::new(io, 0, 0);
        parallel(weights.len(), |row| {
            // SAFETY: rows are disjoint.
            let grad = unsafe { grads.load(row * width, width) };
            if weights[row] == T::ZERO {
                return grad.fill(T::ZERO);
            }
            let factor = weights[row].to_f64() * dloss.to_f64() / width as f64;
            for (x, y) in grad.iter_mut().zip(&labels[row * width..][..width]) {
                *x = T::of(factor * self.0.slope(x.to_f64(), y.to_f64()));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{f32s, run};
    use super::*;

    #[test]
    fn rows_of_weight_zero_count_nothing_even_if_they_are_broken() {
        let (nan, labels) = (f32::NAN, || f32s(&[2, 2], &[1.0, 0.0, f32::NAN, f32::NAN]));
        for op in [LabelLoss::BinaryCrossEntropy, LabelLoss::SquaredError] {
            let outputs = || f32s(&[2, 2], &[0.0, 0.0, nan, 1.0]);
            let loss = run(&op, &[outputs(), labels(), f32s(&[2], &[1.0, 0.0])]);
            let expected = if op == LabelLoss::SquaredError { 0.5 } else { std::f32::consts::LN_2 };
            assert_eq!(loss, [expected]);
            let inputs = [outputs(), labels(), f32s(&[2], &[1.0, 0.0]), f32s(&[1], &[1.0])];
            assert_eq!(run(&LabelLossGrad(op), &inputs)[2..], [0.0, 0.0]);
        }
    }

    #[test]
    fn far_logits_do_not_overflow() {
        let loss = |logit: f32, label: f32| {
            let inputs = [f32s(&[1, 1], &[logit]), f32s(&[1, 1], &[label]), f32s(&[1], &[1.0])];
            run(&LabelLoss::BinaryCrossEntropy, &inputs)[0]
        };
        assert_eq!((loss(1e30, 1.0), loss(-1e30, 0.0)), (0.0, 0.0));
        assert_eq!((loss(1000.0, 0.0), loss(-1000.0, 1.0)), (1000.0, 1000.0));
    }
}
