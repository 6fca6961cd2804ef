//! Arithmetic on two values, with broadcasting as NumPy and PyTorch do it.

use super::cuda::{Walk, map, put, refuse_f64, source, typed};
use super::*;
use crate::graph::{Aliases, InputGrads};
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::with_float;
use crate::kernels::cpu::{Element, elementwise, parallel};
use crate::kernels::cuda::{Arg, Grid};
use crate::types::{Dims, Results};
use plimsoll_base::simd::simd;
use smallvec::{SmallVec, smallvec};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Binary(pub Arithmetic);

impl Binary {
    pub const ADD: Binary = Binary(Arithmetic::Add);
    pub const SUB: Binary = Binary(Arithmetic::Sub);
    pub const MUL: Binary = Binary(Arithmetic::Mul);
    pub(crate) const DIV: Binary = Binary(Arithmetic::Div);

    pub fn samples(rng: &mut SampleRng) -> Vec<Sample> {
        let mut samples = Vec::new();
        for op in [Binary::ADD, Binary::SUB, Binary::MUL, Binary::DIV] {
            let (a, b, c) = (rng.size(1, 5), rng.size(1, 5), rng.size(1, 37));
            let shapes: [(Vec<usize>, Vec<usize>); 4] = [
                (vec![a, b, c], vec![a, b, c]),
                (vec![a, b, c], vec![c]),
                (vec![a, 1, c], vec![b, 1]),
                (vec![1], vec![a, c]),
            ];
            for (left, right) in shapes {
                let divisor = SampleInput::float(&right, Fill::Uniform(0.5, 2.0));
                samples.push(Sample::new(op.clone(), vec![SampleInput::float(&left, Fill::Normal), divisor]));
            }
        }
        samples
    }
}

impl Op for Binary {
    fn outputs(&self, inputs: &[Type]) -> Result<Results, OpError> {
        if inputs[0].dtype != inputs[1].dtype {
            return OpError::new(format!("{} and {} differ in element type", inputs[0], inputs[1]));
        }
        match broadcast(&inputs[0].shape, &inputs[1].shape) {
            Some(shape) => Ok(smallvec![inputs[0].with_shape(&shape)]),
            None => OpError::new(format!("{} and {} do not broadcast", inputs[0], inputs[1])),
        }
    }
    fn aliases(&self, inputs: &[Type]) -> Aliases {
        let whole = broadcast(&inputs[0].shape, &inputs[1].shape);
        (0..2).filter(|&i| whole.as_deref() == Some(&inputs[i].shape[..])).map(|i| Alias::may(0, i)).collect()
    }
    fn is_cheap(&self) -> bool {
        true
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        with_float!(io.output_type(0).dtype, T => match self.0 {
            Arithmetic::Add => run::<T>(io, #[inline(always)] |a, b| a + b),
            Arithmetic::Sub => run::<T>(io, #[inline(always)] |a, b| a - b),
            Arithmetic::Mul => run::<T>(io, #[inline(always)] |a, b| a * b),
            Arithmetic::Div => run::<T>(io, #[inline(always)] |a, b| a / b),
        })
    }
    fn cuda(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        refuse_f64(self, launch)?;
        let (a, b, y) = (&launch.inputs[0], &launch.inputs[1], &launch.outputs[0]);
        if a.ty.shape != b.ty.shape {
            return self.broadcast(launch);
        }
        let kernel = typed(source!("binary", "map"), "binary", &[("T", y)]).define("OP", self.operator());
        map(launch, kernel, &[a, b, y], &[])
    }
}

impl Binary {
    fn operator(&self) -> &'static str {
        match self.0 {
            Arithmetic::Add => "+",
            Arithmetic::Sub => "-",
            Arithmetic::Mul => "*",
            Arithmetic::Div => "/",
        }
    }

    fn broadcast(&self, launch: &mut Launch<'_>) -> Result<(), CudaError> {
        let (a, b, y) = (&launch.inputs[0], &launch.inputs[1], &launch.outputs[0]);
        let strides = [a, b].map(|x| broadcast_strides(&x.ty, &y.ty));
        let Some(walk) = Walk::new(&y.ty.shape, &strides[0], &strides[1]) else {
            return Err(CudaError::NoKernel { op: format!("{self:?} of {} and {}", a.ty, b.ty), dtype: y.ty.dtype });
        };
        let (step_a, step_b) = walk.steps();
        let walk = walk.vectors(y.ty.dtype.bytes(), &[a.address, b.address, y.address]);
        let kernel = typed(source!("broadcast", "map", "walk"), "broadcast", &[("T", y)])
            .define("OP", self.operator())
            .define("STEP_A", step_a)
            .define("STEP_B", step_b);
        let args: Vec<Arg> = [a, b, y].into_iter().map(Arg::from).chain(walk.args()).collect();
        put(launch, &walk.define(kernel), Grid::over(walk.count(), 1), walk.count(), &args)
    }
}

impl Differentiable for Binary {
    fn vjp(&self, cx: &mut Vjp<'_>) -> Result<InputGrads, GraphError> {
        let (a, b, dy) = (cx.input(0), cx.input(1), cx.grad0());
        let da = match self.0 {
            Arithmetic::Add | Arithmetic::Sub => dy,
            _ if !cx.wants(0) => dy,
            Arithmetic::Mul => cx.add1(Binary::MUL, &[dy, b])?,
            Arithmetic::Div => cx.add1(Binary::DIV, &[dy, b])?,
        };
        let db = match self.0 {
            _ if !cx.wants(1) => dy,
            Arithmetic::Add => dy,
            Arithmetic::Sub => cx.add1(Scale(-1.0), &[dy])?,
            Arithmetic::Mul => cx.add1(Binary::MUL, &[dy, a])?,
            Arithmetic::Div => {
                let slope = cx.add1(Binary::DIV, &[cx.output(0), b])?;
                let product = cx.add1(Binary::MUL, &[dy, slope])?;
                cx.add1(Scale(-1.0), &[product])?
            }
        };
        let mut grads = SmallVec::new();
        for (index, (value, grad)) in [(a, da), (b, db)].into_iter().enumerate() {
            let shape = cx.graph.shape(value).to_vec();
            grads.push(if cx.wants(index) { Some(reduce::sum_to(cx, grad, &shape)?) } else { None });
        }
        Ok(grads)
    }
}

/// The shape two shapes broadcast to.
fn broadcast(a: &[usize], b: &[usize]) -> Option<Dims> {
    let rank = a.len().max(b.len());
    let dim = |shape: &[usize], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    (0..rank)
        .map(|i| match (dim(a, i), dim(b, i)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

fn run<T: Float + Element>(io: &CpuIo<'_>, f: impl Fn(T, T) -> T + Sync) {
    let (a, b, y) = (io.input_type(0), io.input_type(1), io.output_type(0));
    if a.shape == b.shape {
        return elementwise::map2(io, 0, 1, f);
    }
    let width = y.shape.last().copied().unwrap_or(1);
    let rows_per_task = (16384 / width.max(1)).max(1);
    let (strides_a, strides_b) = (broadcast_strides(a, y), broadcast_strides(b, y));
    let (pa, pb) =
        (parallel::SharedMut::new(io.input_ptr(0) as *mut T), parallel::SharedMut::new(io.input_ptr(1) as *mut T));
    parallel::parallel_chunks(io.output::<T>(0), rows_per_task * width.max(1), |task, piece| {
        for (row, out) in piece.chunks_mut(width.max(1)).enumerate() {
            let row = task * rows_per_task + row;
            let (at_a, at_b) = (row_offset(row, y, &strides_a), row_offset(row, y, &strides_b));
            let last = y.rank() - 1;
            // SAFETY: offsets come from the inputs' own strides; an input that shares the output's memory has the
            // output's shape, so each element is read before it is overwritten.
            unsafe {
                let (a, b) = (pa.ptr().add(at_a), pb.ptr().add(at_b));
                row_loop(out, a, strides_a[last], b, strides_b[last], &f);
            }
        }
    });
}

/// One row; a stride is 0 (one value for the row) or 1.
///
/// # Safety
/// `a` and `b` have `out.len()` elements at these steps; an operand may be `out` itself, element for element.
unsafe fn row_loop<T: Float>(
    out: &mut [T],
    a: *const T,
    step_a: usize,
    b: *const T,
    step_b: usize,
    f: &impl Fn(T, T) -> T,
) {
    let (n, y) = (out.len(), out.as_mut_ptr());
    simd(
        #[inline(always)]
        // SAFETY: `a` and `b` have an element for each of `out`, or one for all where their step is 0.
        || unsafe {
            match (step_a, step_b) {
                (0, _) => {
                    let x = *a;
                    for i in 0..n {
                        *y.add(i) = f(x, *b.add(i * step_b));
                    }
                }
                (_, 0) => {
                    let x = *b;
                    for i in 0..n {
                        *y.add(i) = f(*a.add(i), x);
                    }
                }
                _ => {
                    for i in 0..n {
                        *y.add(i) = f(*a.add(i), *b.add(i));
                    }
                }
            }
        },
    )
}

/// Strides that read `ty` in the shape of `whole`: 0 where it is repeated.
fn broadcast_strides(ty: &Type, whole: &Type) -> Dims {
    let missing = whole.rank() - ty.rank();
    let stride = |i: usize| if ty.shape[i] == 1 { 0 } else { ty.strides[i] };
    (0..whole.rank()).map(|i| i.checked_sub(missing).map_or(0, stride)).collect()
}

fn row_offset(row: usize, whole: &Type, strides: &[usize]) -> usize {
    let (mut rest, mut offset) = (row, 0);
    for i in (0..whole.rank() - 1).rev() {
        offset += rest % whole.shape[i] * strides[i];
        rest /= whole.shape[i];
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::DType;

    #[test]
    fn shapes_broadcast_as_in_numpy() {
        let dims = |d: &[usize]| Some(Dims::from_slice(d));
        assert_eq!(broadcast(&[3, 1, 4], &[2, 1]), dims(&[3, 2, 4]));
        assert_eq!(broadcast(&[3], &[4]), None);
        let ty = Type::new(DType::F32, &[3]);
        assert!(Binary::ADD.outputs(&[ty.clone(), Type::new(DType::F64, &[3])]).is_err());
        assert!(Binary::ADD.outputs(&[ty.clone(), ty]).is_ok());
    }
}
