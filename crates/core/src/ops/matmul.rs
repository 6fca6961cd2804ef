//! Matrix products: batched, operands through any strides, bias and activation folded in.

use super::*;
use crate::graph::{Aliases, InputGrads};
use crate::kernels::cpu::Element;
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::gemm::{self, Dims as Extents, Epilogue, Matrix};
use crate::kernels::cpu::with_float;
use crate::kernels::cuda;
use crate::types::{DType, Results};
use smallvec::{SmallVec, smallvec};

/// `y = act(a · b + bias)`, with `b` of shape (…, K, N), or (…, N, K) if transposed as linear layers store it.
/// With `accumulate`, a last input is overwritten by itself plus the product.
#[derive(Debug, Clone, PartialEq)]
pub struct MatMul {
    pub transpose_b: bool,
    pub bias: bool,
    pub activation: Activation,
    pub accumulate: bool,
}

impl MatMul {
    pub const PLAIN: MatMul =
        MatMul { transpose_b: false, bias: false, activation: Activation::None, accumulate: false };
    pub const TRANSPOSED: MatMul = MatMul { transpose_b: true, ..MatMul::PLAIN };
    /// `x · Wᵀ + bias`, as a linear layer.
    pub const LINEAR: MatMul = MatMul { transpose_b: true, bias: true, ..MatMul::PLAIN };

    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let (m, n, k, batch) = (rng.size(1, 40), rng.size(1, 40), rng.size(1, 40), rng.size(1, 4));
        let float = |shape: &[usize]| SampleInput::float(shape, Fill::Normal);
        let mut samples = vec![
            Sample::new(MatMul::PLAIN, vec![float(&[m, k]), float(&[k, n])]),
            Sample::new(MatMul::TRANSPOSED, vec![float(&[batch, 2, m, k]), float(&[batch, 2, n, k])]),
            Sample::new(MatMul::LINEAR, vec![float(&[m, k]), float(&[n, k]), float(&[n])]),
        ];
        let smooth = [
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Tanh,
            Activation::Sigmoid,
            Activation::Silu,
            Activation::QuickGelu,
        ];
        for activation in smooth {
            let op = MatMul { activation, ..MatMul::LINEAR };
            samples.push(Sample::new(op, vec![float(&[5, 3]), float(&[4, 3]), float(&[4])]));
        }
        // Sums of 0.5 to 3 beside a bias of ±6: no finite difference steps over ReLU's kink.
        let small = |shape: &[usize]| SampleInput::float(shape, Fill::Uniform(0.5, 1.0));
        let bias = SampleInput::float(&[4], Fill::Sign(6.0));
        let op = MatMul { activation: Activation::Relu, ..MatMul::LINEAR };
        samples.push(Sample::new(op, vec![small(&[5, 3]), small(&[4, 3]), bias]));
        let op = MatMul { accumulate: true, ..MatMul::PLAIN };
        samples.push(Sample::new(op, vec![float(&[3, 70]), float(&[70, 5]), float(&[3, 5])]));
        samples
    }

    /// (m, n, k) of one product.
    fn extents(&self, a: &Type, b: &Type) -> Extents {
        let [m, k] = [a.shape[a.rank() - 2], a.shape[a.rank() - 1]];
        Extents { m, n: b.shape[b.rank() - if self.transpose_b { 2 } else { 1 }], k }
    }

    fn as_products(&self, inputs: &[Type]) -> Products {
        let Extents { m, n, k } = self.extents(&inputs[0], &inputs[1]);
        Products { count: MatMul::batch(&inputs[0]).iter().product(), m, n, k }
    }

    fn batch(a: &Type) -> &[usize] {
        &a.shape[..a.rank() - 2]
    }
}

impl Op for MatMul {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        let (a, b) = (&inputs[0], &inputs[1]);
        let wrong =
            || OpError::new(format!("cannot multiply {a} by {b}{}", if self.transpose_b { " transposed" } else { "" }));
        if inputs.len() != 2 + self.bias as usize + self.accumulate as usize || a.rank() < 2 || a.rank() != b.rank() {
            return wrong();
        }
        let Extents { m, n, k } = self.extents(a, b);
        let inner = b.shape[b.rank() - if self.transpose_b { 1 } else { 2 }];
        if inner != k || MatMul::batch(a) != MatMul::batch(b) || a.dtype != b.dtype {
            return wrong();
        }
        if self.bias && inputs[2].shape[..] != [n] {
            return OpError::new(format!("bias {} does not fit {n} columns", inputs[2]));
        }
        let shape: Vec<usize> = MatMul::batch(a).iter().copied().chain([m, n]).collect();
        if self.accumulate && inputs[inputs.len() - 1].shape[..] != shape[..] {
            return OpError::new("the accumulator has another shape than the product");
        }
        Ok(smallvec![a.with_shape(&shape)])
    }
    fn aliases(&self, inputs: &[Type]) -> Aliases {
        if self.accumulate { smallvec![Alias::must(0, inputs.len() - 1)] } else { SmallVec::new() }
    }
    fn accepts(&self, input: usize, ty: &Type) -> bool {
        input < 2 || ty.is_contiguous()
    }
    fn class(&self) -> Class {
        Class::Product
    }
    fn products(&self, inputs: &[Type], _: &[Type]) -> Option<Products> {
        Some(self.as_products(inputs))
    }
    fn cost(&self, inputs: &[Type], outputs: &[Type]) -> Cost {
        let folded = self.activation.flops() * outputs[0].elements() as f64;
        let flops = self.as_products(inputs).flops() + folded;
        Cost { flops, bytes: Cost::traffic(inputs, outputs) }
    }
    fn workspace(&self, inputs: &[Type], target: &Target) -> usize {
        let dims = self.extents(&inputs[0], &inputs[1]);
        if target.backend == Backend::Cuda {
            return cuda_workspace(dims, MatMul::batch(&inputs[0]).iter().product());
        }
        let elements = match MatMul::batch(&inputs[0]).last() {
            None => gemm::scratch_len(dims, target.threads),
            Some(&count) => gemm::batch_scratch_len(count, dims, target.threads),
        };
        elements * inputs[0].dtype.bytes()
    }
    fn accumulating(&self) -> Option<Box<dyn Op>> {
        let plain = !self.bias && self.activation == Activation::None && !self.accumulate;
        plain.then(|| Box::new(MatMul { accumulate: true, ..self.clone() }) as Box<dyn Op>)
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => self.run::<T>(io))
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let output = launch.outputs[0].clone();
        if !matches!(output.ty.dtype, DType::F32 | DType::Bf16 | DType::F16) {
            return Err(CudaError::NoKernel { op: format!("{self:?}"), dtype: output.ty.dtype });
        }
        self.put_products(launch)?;
        match self.activation {
            Activation::None => Ok(()),
            activation => Activate(activation).cuda(&mut Launch {
                inputs: std::slice::from_ref(&output),
                outputs: std::slice::from_ref(&output),
                workspace: launch.workspace,
                workspace_bytes: launch.workspace_bytes,
                tf32: launch.tf32,
                queue: &mut *launch.queue,
            }),
        }
    }
}

/// Room for the partial sums of a product that is split along k: a function of its sizes alone. The library's algorithms
/// that want more are not used.
fn cuda_workspace(dims: Extents, batch: usize) -> usize {
    const PARTS: usize = 16;
    let partial_sums = dims.m.saturating_mul(dims.n).saturating_mul(batch).saturating_mul(4 * PARTS);
    partial_sums.clamp(64 << 10, 32 << 20)
}

const SOURCE: cuda::Source = cuda::Source { name: "matmul", text: include_str!("matmul.cu") };

/// A batch dimension: how often, and how far apart the operands and the result are.
#[derive(Clone, Copy)]
struct BatchDim {
    count: usize,
    strides: [usize; 3],
}

/// The leading dimensions, with those that are one step for all three made one.
fn batch_dims(types: [&Type; 3]) -> Vec<BatchDim> {
    let mut dims: Vec<BatchDim> = Vec::new();
    for (axis, &count) in MatMul::batch(types[0]).iter().enumerate().filter(|(_, count)| **count > 1) {
        let next = BatchDim { count, strides: types.map(|ty| ty.strides[axis]) };
        match dims.last_mut().filter(|last| (0..3).all(|i| last.strides[i] == next.strides[i] * count)) {
            Some(last) => *last = BatchDim { count: last.count * count, strides: next.strides },
            None => dims.push(next),
        }
    }
    dims
}

impl MatMul {
    /// One product per combination of batch dimensions but the longest, which goes into the product.
    fn put_products(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (a, b, y) = (&launch.inputs[0], &launch.inputs[1], &launch.outputs[0]);
        let mut dims = batch_dims([&a.ty, &b.ty, &y.ty]);
        let longest = (0..dims.len()).max_by_key(|&i| dims[i].count);
        let inner = longest.map_or(BatchDim { count: 1, strides: [0; 3] }, |i| dims.remove(i));
        let element_bytes = y.ty.dtype.bytes();
        for index in 0..dims.iter().map(|dim| dim.count).product() {
            let (mut rest, mut offsets) = (index, [0; 3]);
            for dim in dims.iter().rev() {
                (0..3).for_each(|i| offsets[i] += rest % dim.count * dim.strides[i] * element_bytes);
                rest /= dim.count;
            }
            self.put_product(launch, inner, offsets)?;
        }
        Ok(())
    }

    fn put_product(&self, launch: &mut Launch<'_>, batch: BatchDim, offsets: [usize; 3]) -> Result<(), CudaError> {
        let (a, b, y) = (&launch.inputs[0], &launch.inputs[1], &launch.outputs[0]);
        let Extents { m, n, k } = self.extents(&a.ty, &b.ty);
        let operand = |tensor: &cuda::DeviceTensor, which: usize, transposed: bool| {
            let [row, column] = [tensor.ty.strides[tensor.ty.rank() - 2], tensor.ty.strides[tensor.ty.rank() - 1]];
            cuda::Matrix {
                address: tensor.address + offsets[which] as u64,
                dtype: tensor.ty.dtype,
                row_stride: if transposed { column } else { row },
                column_stride: if transposed { row } else { column },
                batch_stride: batch.strides[which],
            }
        };
        let gemm = cuda::Gemm {
            m,
            n,
            k,
            batch: batch.count,
            a: operand(a, 0, false),
            b: operand(b, 1, self.transpose_b),
            c: operand(y, 2, false),
            alpha: 1.0,
            beta: if self.accumulate { 1.0 } else { 0.0 },
            bias: self.bias.then(|| launch.inputs[2].address),
            tf32: launch.tf32,
            workspace: launch.workspace,
            workspace_bytes: launch.workspace_bytes,
        };
        match is_plain(&gemm.a, m, k) && is_plain(&gemm.b, k, n) {
            true => launch.queue.gemm(&gemm),
            false => put_strided(launch, &gemm),
        }
    }
}

/// Whether rows or columns lie side by side.
fn is_plain(matrix: &cuda::Matrix, rows: usize, columns: usize) -> bool {
    matrix.column_stride == 1 || matrix.row_stride == 1 || rows == 1 || columns == 1
}

/// Our own kernel, which takes any strides.
fn put_strided(launch: &mut Launch<'_>, gemm: &cuda::Gemm) -> Result<(), CudaError> {
    const TILE: usize = 16;
    let kernel = cuda::Kernel::new(SOURCE, "product")
        .dtype("T", gemm.c.dtype)
        .define("BIAS", gemm.bias.is_some() as u32)
        .define("ADD", (gemm.beta != 0.0) as u32);
    let blocks = [gemm.n.div_ceil(TILE) as u32, gemm.m.div_ceil(TILE) as u32, gemm.batch as u32];
    let grid = cuda::Grid { blocks, threads: [TILE as u32, TILE as u32, 1], shared_bytes: 0 };
    let address = |address: u64| cuda::Arg::Address(address);
    let mut args = vec![address(gemm.a.address), address(gemm.b.address), address(gemm.bias.unwrap_or(0))];
    args.push(address(gemm.c.address));
    let (a, b) = (&gemm.a, &gemm.b);
    let numbers = [gemm.m, gemm.n, gemm.k, a.row_stride, a.column_stride, a.batch_stride];
    args.extend(
        numbers
            .into_iter()
            .chain([b.row_stride, b.column_stride, b.batch_stride, gemm.c.batch_stride])
            .map(cuda::Arg::from),
    );
    launch.kernel(&kernel, grid, &args)
}

impl MatMul {
    fn run<T: Float + Element>(&self, io: &CpuIo<'_>) {
        let (ta, tb, ty) = (io.input_type(0), io.input_type(1), io.output_type(0));
        let dims = self.extents(ta, tb);
        let epilogue = Epilogue {
            alpha: T::ONE,
            bias: self.bias.then(|| io.input::<T>(2).as_ptr()),
            activation: self.activation,
            accumulate: self.accumulate,
        };
        let batch = MatMul::batch(ta);
        let (count, outer) = (batch.last().copied().unwrap_or(1), batch.len().saturating_sub(1));
        let stride = |t: &Type| if batch.is_empty() { 0 } else { t.strides[outer] };
        let scratch = io.workspace::<T>();
        for index in 0..batch[..outer].iter().product() {
            let at = |t: &Type| offset(index, &batch[..outer], t);
            // SAFETY: the types describe the operands' memory; the output is apart from both.
            unsafe {
                let a = matrix(io.input_ptr(0).cast::<T>().add(at(ta)), ta, false);
                let b = matrix(io.input_ptr(1).cast::<T>().add(at(tb)), tb, self.transpose_b);
                let c = io.output_ptr(0).cast::<T>().add(at(ty));
                match batch.is_empty() {
                    true => gemm::gemm(dims, a, b, c, dims.n, epilogue, scratch),
                    false => gemm::gemm_batch(
                        count,
                        dims,
                        a,
                        stride(ta),
                        b,
                        stride(tb),
                        c,
                        dims.n,
                        stride(ty),
                        epilogue,
                        scratch,
                    ),
                }
            }
        }
    }
}

/// The last two dimensions as a matrix.
fn matrix<T>(ptr: *const T, ty: &Type, transposed: bool) -> Matrix<T> {
    let [row_stride, col_stride] = [ty.strides[ty.rank() - 2], ty.strides[ty.rank() - 1]];
    match transposed {
        false => Matrix { ptr, row_stride, col_stride },
        true => Matrix { ptr, row_stride: col_stride, col_stride: row_stride },
    }
}

/// Where product `index` of the leading dimensions starts.
fn offset(index: usize, leading: &[usize], ty: &Type) -> usize {
    let (mut rest, mut offset) = (index, 0);
    for (i, &dim) in leading.iter().enumerate().rev() {
        offset += rest % dim * ty.strides[i];
        rest /= dim;
    }
    offset
}

/// dY summed over its rows: by the node that computes dY where that can, and right behind it otherwise, while it is near.
fn bias_gradient(cx: &mut Vjp<'_>, dy: ValueId) -> Result<ValueId, GraphError> {
    let n = cx.graph.shape(cx.input(2)).to_vec();
    match norm_grad::sum_within(cx.graph, dy) {
        Some(sum) => Ok(sum),
        None => reduce::sum_to(cx, dy, &n),
    }
}

impl Differentiable for MatMul {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let (a, b) = (cx.input(0), cx.input(1));
        let dy = self.activation_grad(cx)?;
        let rank = cx.graph.shape(a).len();
        let mut grads = smallvec![None; cx.inputs().len()];
        if self.bias && cx.wants(2) {
            grads[2] = Some(bias_gradient(cx, dy)?);
        }
        if cx.wants(0) {
            // dA = dY · Bᵀ
            grads[0] = Some(cx.add1(MatMul { transpose_b: !self.transpose_b, ..MatMul::PLAIN }, &[dy, b])?);
        }
        if cx.wants(1) {
            // dB = Aᵀ · dY, or dYᵀ · A if B is stored transposed
            let (left, right) = if self.transpose_b { (dy, a) } else { (a, dy) };
            let left = cx.add1(Permute::transpose(rank), &[left])?;
            grads[1] = Some(cx.add1(MatMul::PLAIN, &[left, right])?);
        }
        if self.accumulate {
            grads[cx.inputs().len() - 1] = Some(dy);
        }
        Ok(grads)
    }
}

impl MatMul {
    /// The gradient before the folded activation, whose input is computed again: folding is for passes that keep
    /// nothing.
    fn activation_grad(&self, cx: &mut Vjp<'_>) -> Result<ValueId, GraphError> {
        let dy = cx.grad0();
        if self.activation == Activation::None {
            return Ok(dy);
        }
        let inputs = cx.inputs();
        let input = cx.add1(MatMul { activation: Activation::None, ..self.clone() }, &inputs)?;
        cx.add1(activation::ActivateGrad(self.activation), &[input, dy])
    }
}
