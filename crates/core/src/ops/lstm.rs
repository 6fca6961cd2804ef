//! The recurrence of one LSTM layer, one or both directions; the input projection is a product before it.

use super::*;
use crate::graph::{Aliases, InputGrads};
use crate::kernels::cpu::lstm::{self as kernel, Backward, Forward, LstmShape};
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Arg, Gemm, Kernel, Source};
use crate::types::{DType, Results};
use device::{GEMM_BYTES, Regions, by_columns, by_rows, every, int, multiply, product, refuse_f64, run_over};
use lstm_scan::Scan;
use smallvec::smallvec;

const SOURCE: Source = Source { name: "lstm", text: include_str!("lstm.cu") };

/// Inputs: gates (B, T, dirs, 4H) as x·W_ihᵀ + b_ih, w_hh (dirs, 4H, H), b_hh (dirs, 4H).
/// Outputs: h (B, T, dirs·H), activated gates (B, T, dirs, 4H), cells (B, T, dirs, H).
#[derive(Debug, Clone, PartialEq)]
pub struct Lstm;

impl Lstm {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let sample = |rng: &mut SampleRng, dirs: usize, hidden: usize, weights: Fill| {
            let (batch, time) = (rng.size(1, 4), rng.size(1, 7));
            let inputs = vec![
                SampleInput::float(&[batch, time, dirs, 4 * hidden], Fill::Normal),
                SampleInput::float(&[dirs, 4 * hidden, hidden], weights),
                SampleInput::float(&[dirs, 4 * hidden], Fill::Normal),
            ];
            Sample::new(Lstm, inputs).first_output()
        };
        let narrow = [1, 2, 2].map(|dirs| (dirs, rng.size(1, 9), Fill::Normal));
        // What a cluster of blocks holds; weights as small as so many units want them.
        let wide = (2, 32 * rng.size(1, 3), Fill::Uniform(-0.15, 0.15));
        narrow.into_iter().chain([wide]).map(|(dirs, hidden, weights)| sample(rng, dirs, hidden, weights)).collect()
    }

    fn shape(gates: &Type) -> LstmShape {
        let d = &gates.shape;
        LstmShape { batch: d[0], time: d[1], dirs: d[2], hidden: d[3] / 4 }
    }
}

impl Op for Lstm {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let [batch, time, dirs, all] = inputs[0].shape[..] else {
            return OpError::new(format!("{} is not (batch, time, directions, gates)", inputs[0]));
        };
        let h = all / 4;
        if all % 4 != 0 || inputs[1].shape[..] != [dirs, all, h] || inputs[2].shape[..] != [dirs, all] {
            return OpError::new(format!("{}, {} and {} do not belong together", inputs[0], inputs[1], inputs[2]));
        }
        let ty = |shape: &[usize]| inputs[0].with_shape(shape);
        Ok(smallvec![ty(&[batch, time, dirs * h]), inputs[0].clone(), ty(&[batch, time, dirs, h])])
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::may(1, 0)]
    }
    fn class(&self) -> Class {
        Class::Recurrent
    }
    fn products(&self, inputs: &[Type], _: &[Type]) -> Option<Products> {
        let s = Lstm::shape(&inputs[0]);
        Some(Products { count: s.time * s.dirs, m: s.batch, n: 4 * s.hidden, k: s.hidden })
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        let s = Lstm::shape(&inputs[0]);
        let rows = (s.batch * s.time * s.dirs) as f64;
        Cost { flops: rows * s.hidden as f64 * (8.0 * s.hidden as f64 + 80.0), bytes: Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        let (shape, dtype) = (Lstm::shape(&inputs[0]), inputs[0].dtype);
        match target.backend {
            Backend::Cpu => kernel::forward_scratch(shape, target.threads) * dtype.bytes(),
            Backend::Cuda => Space::new(0, shape, dtype, false).end as usize,
        }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => {
            let operands = Forward::<T> {
                gates_x: io.input_ptr(0).cast(),
                w_hh: io.input_ptr(1).cast(),
                b_hh: io.input_ptr(2).cast(),
                h: io.output_ptr(0).cast(),
                gates: io.output_ptr(1).cast(),
                c: io.output_ptr(2).cast(),
            };
            // SAFETY: the types were checked; only the gates may share memory, which the kernel allows.
            unsafe { kernel::forward(Lstm::shape(io.input_type(0)), operands, io.workspace()) }
        })
    }
    /// At once, or step by step: the product with the recurrent weights for both directions, then the cells.
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, &launch.inputs[0].ty)?;
        let (s, dtype) = (Lstm::shape(&launch.inputs[0].ty), launch.inputs[0].ty.dtype);
        if let Some(scan) = Scan::new(launch, s, dtype) {
            return scan.forward(launch);
        }
        let (space, gates) = (Space::new(launch.workspace, s, dtype, false), 4 * s.hidden);
        let [gates_x, w_hh, bias] = [0, 1, 2].map(|n| launch.inputs[n].address);
        let [h, activated, cells] = [0, 1, 2].map(|n| launch.outputs[n].address);
        let operands = [gates_x, bias, space.wide, h, activated, cells, space.rounded, space.cell].map(Arg::Address);
        let a = every(s.batch * s.hidden, by_rows(space.rounded, dtype, s.hidden));
        let b = every(gates * s.hidden, by_columns(w_hh, dtype, s.hidden));
        let c = every(s.batch * gates, by_rows(space.wide, DType::F32, gates));
        let recur = Gemm { batch: s.dirs, ..product([s.batch, gates, s.hidden], a, b, c) };
        for step in 0..s.time {
            if step > 0 && space.units > 0 {
                multiply(launch, recur)?;
            }
            space.step(launch, "forward", &operands, step)?;
        }
        Ok(())
    }
}

/// What is kept from step to step on a CUDA device, for each direction and row of the batch.
struct Space {
    shape: LstmShape,
    dtype: DType,
    /// Units of all rows and directions.
    units: usize,
    /// Forward the sums going into the gates; backward the gradient of h. In f32.
    wide: u64,
    /// What the next product reads: forward h; backward the gradients of the gates' sums.
    rounded: u64,
    /// The cells, or their gradients, in f32.
    cell: u64,
    /// Backward: h of the step before each.
    before: u64,
    gemm: u64,
    end: u64,
}

impl Space {
    fn new(start: u64, shape: LstmShape, dtype: DType, backward: bool) -> Space {
        let mut regions = Regions::new(start);
        let units = shape.batch * shape.dirs * shape.hidden;
        let (wide, rounded) = if backward { (1, 4) } else { (4, 1) };
        let only = |bytes: usize| if backward { bytes } else { 0 };
        Space {
            wide: regions.take(wide * units * 4),
            rounded: regions.take(rounded * units * dtype.bytes()),
            cell: regions.take(units * 4),
            before: regions.take(only(units * shape.time * dtype.bytes())),
            gemm: regions.take(only(GEMM_BYTES)),
            end: regions.end(),
            shape,
            dtype,
            units,
        }
    }

    fn step(
        &self,
        launch: &mut Launch<'_>,
        entry: &'static str,
        operands: &[Arg],
        step: usize,
    ) -> Result<(), CudaError> {
        let s = &self.shape;
        let sizes = [step, s.batch, s.time, s.dirs, s.hidden].map(int);
        let kernel = Kernel::new(SOURCE, entry).dtype("T", self.dtype);
        run_over(launch, &kernel, self.units, &[operands, &sizes].concat())
    }

    /// Step by step from the last: the gates' gradients, then their product with the recurrent weights.
    fn backward(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (s, dtype, gates) = (&self.shape, self.dtype, 4 * self.shape.hidden);
        let [dh, activated, cells, h, w_hh] = [0, 1, 2, 3, 4].map(|n| launch.inputs[n].address);
        let dgates = launch.outputs[0].address;
        let operands = [dh, activated, cells, self.wide, self.cell, dgates, self.rounded].map(Arg::Address);
        let a = every(s.batch * gates, by_rows(self.rounded, dtype, gates));
        let b = every(gates * s.hidden, by_rows(w_hh, dtype, s.hidden));
        let c = every(s.batch * s.hidden, by_rows(self.wide, DType::F32, s.hidden));
        let recur = Gemm { batch: s.dirs, ..product([s.batch, s.hidden, gates], a, b, c) };
        for step in (0..s.time).rev() {
            self.step(launch, "backward", &operands, step)?;
            if step > 0 {
                multiply(launch, recur)?;
            }
        }
        let count = self.units * s.time;
        let sizes = [s.time, s.dirs, s.hidden].map(int);
        let args = [&[Arg::Address(h), Arg::Address(self.before), count.into()][..], &sizes].concat();
        run_over(launch, &Kernel::new(SOURCE, "shift").dtype("T", dtype), count, &args)
    }

    /// dW_hh = Σ dgatesᵀ · h of the step before, over all steps of all samples at once.
    fn weight_gradient(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (s, dtype, gates) = (&self.shape, self.dtype, 4 * self.shape.hidden);
        let [dgates, dw_hh] = [0, 1].map(|n| launch.outputs[n].address);
        let a = every(gates, by_columns(dgates, dtype, s.dirs * gates));
        let b = every(s.hidden, by_rows(self.before, dtype, s.dirs * s.hidden));
        let c = every(gates * s.hidden, by_rows(dw_hh, dtype, s.hidden));
        let (workspace, workspace_bytes) = (self.gemm, GEMM_BYTES);
        let gemm = product([gates, s.hidden, s.batch * s.time], a, b, c);
        multiply(launch, Gemm { batch: s.dirs, workspace, workspace_bytes, ..gemm })
    }
}

impl Differentiable for Lstm {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let inputs = [cx.grad0(), cx.output(1), cx.output(2), cx.output(0), cx.input(1)];
        let grads = cx.add(LstmGrad, &inputs)?;
        let bias_shape = cx.graph.shape(cx.input(2)).to_vec();
        let bias = if cx.wants(2) { Some(reduce::sum_to(cx, grads[0], &bias_shape)?) } else { None };
        Ok(smallvec![Some(grads[0]), Some(grads[1]), bias])
    }
}

/// Inputs: dh, activated gates, cells, h, w_hh. Outputs: gradient of the gates' sums, gradient of w_hh.
#[derive(Debug, Clone, PartialEq)]
struct LstmGrad;

impl Op for LstmGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[1].clone(), inputs[4].clone()])
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::may(0, 1)]
    }
    fn class(&self) -> Class {
        Class::RecurrentGrad
    }
    /// The states' gradients and the weights' are a product each, of the same sizes.
    fn products(&self, inputs: &[Type], _: &[Type]) -> Option<Products> {
        let s = Lstm::shape(&inputs[1]);
        Some(Products { count: 2 * s.time * s.dirs, m: s.batch, n: s.hidden, k: 4 * s.hidden })
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        let s = Lstm::shape(&inputs[1]);
        let rows = (s.batch * s.time * s.dirs) as f64;
        Cost { flops: rows * s.hidden as f64 * (16.0 * s.hidden as f64 + 60.0), bytes: Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        let (shape, dtype) = (Lstm::shape(&inputs[1]), inputs[0].dtype);
        match target.backend {
            Backend::Cpu => kernel::backward_scratch(shape, target.threads) * dtype.bytes(),
            Backend::Cuda => Space::new(0, shape, dtype, true).end as usize,
        }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => {
            let operands = Backward::<T> {
                dh: io.input_ptr(0).cast(),
                gates: io.input_ptr(1).cast(),
                c: io.input_ptr(2).cast(),
                h: io.input_ptr(3).cast(),
                w_hh: io.input_ptr(4).cast(),
                dgates: io.output_ptr(0).cast(),
                dw_hh: io.output_ptr(1).cast(),
            };
            // SAFETY: the types were checked; only the gates may share memory, which the kernel allows.
            unsafe { kernel::backward(Lstm::shape(io.input_type(1)), operands, io.workspace()) }
        })
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, &launch.inputs[1].ty)?;
        let (s, dtype) = (Lstm::shape(&launch.inputs[1].ty), launch.inputs[1].ty.dtype);
        let space = Space::new(launch.workspace, s, dtype, true);
        let (dw_hh, weights) = (launch.outputs[1].address, s.dirs * 4 * s.hidden * s.hidden);
        if space.units * s.time == 0 {
            return launch.queue.fill(dw_hh, 0, weights * dtype.bytes());
        }
        match Scan::new(launch, s, dtype) {
            Some(scan) if scan.is_one_round() => scan.backward(launch, space.before)?,
            _ => space.backward(launch)?,
        }
        space.weight_gradient(launch)
    }
}
