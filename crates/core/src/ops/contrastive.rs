//! The contrastive loss over a square of similarities: every row should find its column among all others, and every
//! column its row. Its gradient is written over the similarities.

use super::norm::refuse_statistics_gradient;
use super::*;
use crate::graph::{Aliases, InputGrads};
use crate::kernels::cpu::Element;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::parallel::{SharedMut, parallel};
use crate::kernels::cpu::rows;
use crate::kernels::cpu::with_float;
use crate::kernels::cuda::{Arg, Grid, Kernel, Source};
use crate::types::{DType, Results};
use device::{int, refuse_f64, run_over};
use plimsoll_base::simd::simd;
use smallvec::smallvec;

const SOURCE: Source = Source { name: "contrastive", text: include_str!("contrastive.cu") };

/// Inputs: logits (N, N) whose diagonal holds the pairs, weights (N). Outputs: Σ weight · ½ (−log p(column | row) −
/// log p(row | column)) of the pairs; Σ weight · ½ ([the row finds its column] + [the column finds its row]); and (2, N)
/// for rows and for columns: the largest logit and log Σ exp of the logits less the largest. The last three take no
/// gradient. A pair of weight 0 is not there: it counts neither as a sample nor among what the others are compared with.
///
/// Largest and logarithm are not added up: logits are some tens with differences that matter, and the sum would round
/// them away.
#[derive(Debug, Clone, PartialEq)]
pub struct Contrastive;

impl Contrastive {
    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let sample = |n: usize, weights: Fill| {
            let inputs = vec![SampleInput::float(&[n, n], Fill::Normal), SampleInput::constant(&[n], weights)];
            Sample::new(Contrastive, inputs).scalar_loss()
        };
        vec![sample(rng.size(2, 90), Fill::Mask), sample(rng.size(1, 9), Fill::Uniform(0.5, 2.0))]
    }
}

impl Op for Contrastive {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        match inputs {
            [logits, weights]
                if logits.rank() == 2
                    && logits.shape[0] == logits.shape[1]
                    && weights.shape[..] == logits.shape[..1]
                    && weights.dtype == logits.dtype.wide() =>
            {
                let (scalar, sums) = (logits.wide_shape(&[1]), logits.wide_shape(&[2, logits.shape[0]]));
                Ok(smallvec![scalar.clone(), scalar, sums.clone(), sums])
            }
            _ => OpError::new(format!("needs square logits and a weight for each row, not {inputs:?}")),
        }
    }
    fn class(&self) -> Class {
        Class::Loss
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost { flops: 30.0 * inputs[0].elements() as f64, bytes: Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], _: &Target) -> usize {
        // How often each pair was found: once as a row, once as a column.
        2 * inputs[1].elements() * inputs[1].dtype.bytes()
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.input_type(0).dtype, T => forward::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, &launch.inputs[0].ty)?;
        let (n, dtype) = (launch.inputs[0].ty.shape[0], launch.inputs[0].ty.dtype);
        let [logits, weights] = [0, 1].map(|i| Arg::from(&launch.inputs[i]));
        let [loss, hits, rows, columns] = [0, 1, 2, 3].map(|i| Arg::from(&launch.outputs[i]));
        let found = launch.workspace;
        let found_columns = Arg::Address(found + 4 * n as u64);
        let kernel = |entry| device_kernel(entry, dtype);
        if n > 0 {
            let args = [logits, weights, rows, Arg::Address(found), int(n)];
            launch.kernel(&kernel("along_rows"), Grid::new(n, 256), &args)?;
            let grid = Grid { threads: [32, 8, 1], ..Grid::new(n.div_ceil(32), 256) };
            launch.kernel(&kernel("down_columns"), grid, &[logits, weights, columns, found_columns, int(n)])?;
        }
        let args = [logits, weights, rows, columns, Arg::Address(found), loss, hits, int(n)];
        launch.kernel(&kernel("add_pairs"), Grid::new(1, 256), &args)
    }
}

fn device_kernel(entry: &'static str, dtype: DType) -> Kernel {
    Kernel::new(SOURCE, entry).dtype("T", dtype)
}

impl Differentiable for Contrastive {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        refuse_statistics_gradient(cx, 1..4)?;
        let inputs = [cx.input(0), cx.input(1), cx.output(2), cx.output(3), cx.grad0()];
        Ok(smallvec![Some(cx.add1(ContrastiveGrad, &inputs)?), None])
    }
}

/// Inputs: logits, weights, what the forward pass found of rows and of columns, dloss. Output: the gradient of the logits, over them if
/// nothing else reads them.
#[derive(Debug, Clone, PartialEq)]
struct ContrastiveGrad;

impl Op for ContrastiveGrad {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        Ok(smallvec![inputs[0].contiguous()])
    }
    fn aliases(&self, _: &[Type]) -> Aliases {
        smallvec![Alias::may(0, 0)]
    }
    fn class(&self) -> Class {
        Class::Loss
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        Cost::elementwise(inputs, outputs, 30.0)
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => backward::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let logits = &launch.inputs[0];
        refuse_f64(self, &logits.ty)?;
        let (n, kernel) = (logits.ty.shape[0], device_kernel("backward", logits.ty.dtype));
        let inputs = launch.inputs.iter().map(Arg::from);
        let args: Vec<Arg> = inputs.chain([Arg::from(&launch.outputs[0]), int(n)]).collect();
        run_over(launch, &kernel, n * n, &args)
    }
}

/// Columns that one task goes down: some cache lines wide.
const COLUMNS: usize = 64;

fn forward<T: Float + Element>(io: &CpuIo<'_>) {
    let (logits, weights) = (io.input::<T>(0), io.input::<T>(1));
    let n = weights.len();
    let (found_rows, found_columns) = io.workspace::<T>()[..2 * n].split_at_mut(n);
    let (rows, columns) = (io.output::<T>(2), io.output::<T>(3));
    look_along_rows(logits, weights, rows, found_rows);
    look_down_columns(logits, weights, columns, found_columns);
    let (mut loss, mut found) = (0.0, 0.0);
    for i in (0..n).filter(|&i| weights[i] != T::ZERO) {
        let (weight, pair) = (0.5 * weights[i].to_f64(), logits[i * n + i].to_f64());
        let entropy = |sums: &[T]| (sums[i].to_f64() - pair) + sums[n + i].to_f64();
        loss += weight * (entropy(rows) + entropy(columns));
        found += weight * (found_rows[i] + found_columns[i]).to_f64();
    }
    io.output::<T>(0)[0] = T::of(loss);
    io.output::<T>(1)[0] = T::of(found);
}

/// For each row, over the columns that are there: the largest logit and the log of the sum, and 1 if its pair is the
/// first of the largest.
fn look_along_rows<T: Float>(logits: &[T], weights: &[T], sums: &mut [T], found: &mut [T]) {
    let n = weights.len();
    let (sums, found) = (SharedMut::new(sums.as_mut_ptr()), SharedMut::new(found.as_mut_ptr()));
    parallel(n, |i| {
        let row = &logits[i * n..][..n];
        let ((largest, log_sum), is_found) = simd(
            #[inline(always)]
            || (log_sum_exp(row, weights), is_first_of_largest(row, weights, i)),
        );
        // SAFETY: task `i` writes slots `i` only.
        unsafe {
            sums.slice(i, 1)[0] = largest;
            sums.slice(n + i, 1)[0] = log_sum;
            found.slice(i, 1)[0] = if is_found { T::ONE } else { T::ZERO };
        }
    });
}

#[inline(always)]
fn log_sum_exp<T: Float>(row: &[T], weights: &[T]) -> (T, T) {
    let mut largest = T::NEG_INFINITY;
    for (&x, &weight) in row.iter().zip(weights) {
        largest = if weight == T::ZERO { largest } else { largest.max(x) };
    }
    let sum = rows::sum2(
        row,
        weights,
        #[inline(always)]
        |x, weight| if weight == T::ZERO { T::ZERO } else { (x - largest).exp() },
    );
    (largest, sum.ln())
}

/// Comparisons with NaN are false: a row with one finds nothing.
#[inline(always)]
fn is_first_of_largest<T: Float>(row: &[T], weights: &[T], at: usize) -> bool {
    let (best, mut all) = (row[at], true);
    for (j, (&x, &weight)) in row.iter().zip(weights).enumerate() {
        all &= (weight == T::ZERO) | if j < at { x < best } else { x <= best };
    }
    all
}

/// The same for each column, a block of columns at a time.
fn look_down_columns<T: Float>(logits: &[T], weights: &[T], sums: &mut [T], found: &mut [T]) {
    let n = weights.len();
    let (sums, found) = (SharedMut::new(sums.as_mut_ptr()), SharedMut::new(found.as_mut_ptr()));
    parallel(n.div_ceil(COLUMNS), |task| {
        let first = task * COLUMNS;
        let len = COLUMNS.min(n - first);
        // SAFETY: the columns belong to this task.
        let [largest, log_sums, found] =
            unsafe { [sums.slice(first, len), sums.slice(n + first, len), found.slice(first, len)] };
        simd(
            #[inline(always)]
            || {
                pairs_in_columns(logits, weights, first, largest, found);
                log_sums_of_columns(logits, weights, first, largest, log_sums);
            },
        );
    });
}

#[inline(always)]
fn pairs_in_columns<T: Float>(logits: &[T], weights: &[T], first: usize, largest: &mut [T], found: &mut [T]) {
    let (n, mut pairs) = (weights.len(), [T::ZERO; COLUMNS]);
    for (j, pair) in pairs[..found.len()].iter_mut().enumerate() {
        *pair = logits[(first + j) * n + first + j];
    }
    largest.fill(T::NEG_INFINITY);
    found.fill(T::ONE);
    for i in (0..n).filter(|&i| weights[i] != T::ZERO) {
        let row = &logits[i * n + first..];
        for (j, (largest, found)) in largest.iter_mut().zip(found.iter_mut()).enumerate() {
            *largest = largest.max(row[j]);
            let beaten = if i < first + j { row[j] < pairs[j] } else { row[j] <= pairs[j] };
            *found = if beaten { *found } else { T::ZERO };
        }
    }
}

#[inline(always)]
fn log_sums_of_columns<T: Float>(logits: &[T], weights: &[T], first: usize, largest: &[T], log_sums: &mut [T]) {
    let n = weights.len();
    log_sums.fill(T::ZERO);
    for i in (0..n).filter(|&i| weights[i] != T::ZERO) {
        for ((sum, &largest), &x) in log_sums.iter_mut().zip(largest).zip(&logits[i * n + first..]) {
            *sum += (x - largest).exp();
        }
    }
    for sum in log_sums {
        *sum = sum.ln();
    }
}

/// `dlogits[i, j] = ½ dloss · (weight[i] · (p(j | i) − [i = j]) + weight[j] · (p(i | j) − [i = j]))`, and 0 where one
/// of the two is not there.
fn backward<T: Float + Element>(io: &CpuIo<'_>) {
    let weights = io.input::<T>(1);
    let (n, half) = (weights.len(), T::of(0.5) * io.scalar::<T>(4));
    let [rows, columns] = [2, 3].map(|i| io.input::<T>(i).split_at(n));
    let in_place = io.is_in_place(0, 0);
    let (logits, grads) = (SharedMut::new(io.input_ptr(0) as *mut T), SharedMut::new(io.output_ptr(0).cast::<T>()));
    parallel(n, |i| {
        // SAFETY: rows are disjoint.
        let grad = unsafe { grads.slice(i * n, n) };
        if weights[i] == T::ZERO {
            return grad.fill(T::ZERO);
        }
        if !in_place {
            // SAFETY: apart from the gradient, and only read.
            grad.copy_from_slice(unsafe { logits.slice(i * n, n) });
        }
        let (weight, largest, log_sum) = (half * weights[i], rows.0[i], rows.1[i]);
        simd(
            #[inline(always)]
            || {
                for (j, x) in grad.iter_mut().enumerate() {
                    let by_row = (*x - largest - log_sum).exp();
                    let by_column = (*x - columns.0[j] - columns.1[j]).exp();
                    let slope = weight * by_row + half * weights[j] * by_column;
                    *x = if weights[j] == T::ZERO { T::ZERO } else { slope };
                }
            },
        );
        grad[i] -= weight + weight;
    });
}

#[cfg(test)]
mod tests {
    use super::testing::{f32s, run};
    use super::*;

    const LOGITS: [f32; 9] = [2.0, 1.0, 0.0, 0.5, -1.0, 3.0, 1.0, 0.0, 4.0];

    fn loss(n: usize, logits: &[f32], weights: &[f32]) -> f32 {
        run(&Contrastive, &[f32s(&[n, n], logits), f32s(&[n], weights)])[0]
    }

    /// The mean over rows and columns of −log softmax at the diagonal, by hand.
    fn by_hand(logits: &[[f64; 2]; 2]) -> f64 {
        let cross_entropy = |pair: f64, other: f64| (1.0 + (other - pair).exp()).ln();
        let [[a, b], [c, d]] = *logits;
        0.5 * (cross_entropy(a, b) + cross_entropy(d, c) + cross_entropy(a, c) + cross_entropy(d, b))
    }

    #[test]
    fn pairs_that_are_not_there_change_nothing() {
        let expected = by_hand(&[[2.0, 0.0], [1.0, 4.0]]);
        let mut logits = LOGITS;
        for absent in [-1.0, f32::NAN, f32::INFINITY] {
            [1, 3, 4, 5, 7].iter().for_each(|&at| logits[at] = absent);
            assert!((f64::from(loss(3, &logits, &[1.0, 0.0, 1.0])) - expected).abs() < 1e-6);
        }
        assert_eq!(loss(3, &LOGITS, &[0.0; 3]), 0.0);
    }

    #[test]
    fn gradients_of_absent_pairs_are_zero() {
        let log_sum = |difference: f32| (1.0 + difference.exp()).ln();
        let rows = [2.0, f32::NEG_INFINITY, 4.0, log_sum(-2.0), f32::NEG_INFINITY, log_sum(-3.0)];
        let columns = [2.0, f32::NEG_INFINITY, 4.0, log_sum(-1.0), f32::NEG_INFINITY, log_sum(-4.0)];
        let weights = f32s(&[3], &[1.0, 0.0, 1.0]);
        let inputs =
            [f32s(&[3, 3], &LOGITS), weights, f32s(&[2, 3], &rows), f32s(&[2, 3], &columns), f32s(&[1], &[1.0])];
        let grad = run(&ContrastiveGrad, &inputs);
        assert!([1, 3, 4, 5, 7].iter().all(|&at| grad[at] == 0.0), "{grad:?}");
        assert!(grad.iter().sum::<f32>().abs() < 1e-6 && grad[0] < 0.0 && grad[2] > 0.0, "{grad:?}");
    }

    #[test]
    fn what_is_found_counts_half_for_each_side() {
        let n = 3;
        let (mut sums, mut rows, mut columns) = (vec![0.0; 2 * n], vec![0.0; n], vec![0.0; n]);
        look_along_rows(&LOGITS, &[1.0; 3], &mut sums, &mut rows);
        look_down_columns(&LOGITS, &[1.0; 3], &mut sums, &mut columns);
        assert_eq!((rows, columns), (vec![1.0, 0.0, 1.0], vec![1.0, 0.0, 1.0]));
        let equal = [1.0f32; 4];
        let (mut sums, mut rows) = (vec![0.0; 4], vec![0.0; 2]);
        look_along_rows(&equal, &[1.0; 2], &mut sums, &mut rows);
        assert_eq!(rows, [1.0, 0.0], "the first of equals wins");
    }
}
