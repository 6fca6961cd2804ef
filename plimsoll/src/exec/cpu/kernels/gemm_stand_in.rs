//! A naive product with the interface of the real one, until that lands.
#![allow(dead_code, clippy::too_many_arguments, clippy::missing_safety_doc)]

use crate::exec::cpu::float::Float;

#[derive(Clone, Copy)]
pub struct Matrix<T> {
    pub ptr: *const T,
    pub row_stride: usize,
    pub col_stride: usize,
}

#[derive(Clone, Copy)]
pub struct Dims {
    pub m: usize,
    pub n: usize,
    pub k: usize,
}

#[derive(Clone, Copy)]
pub enum Activation {
    None,
}

#[derive(Clone, Copy)]
pub struct Epilogue<T> {
    pub alpha: T,
    pub bias: Option<*const T>,
    pub activation: Activation,
    pub accumulate: bool,
}

pub fn scratch_len(_dims: Dims, _threads: usize) -> usize {
    0
}

pub unsafe fn gemm<T: Float>(
    dims: Dims,
    a: Matrix<T>,
    b: Matrix<T>,
    c: *mut T,
    ldc: usize,
    epilogue: Epilogue<T>,
    _scratch: &mut [T],
) {
    for i in 0..dims.m {
        for j in 0..dims.n {
            let mut sum = T::ZERO;
            for k in 0..dims.k {
                unsafe {
                    let left = *a.ptr.add(i * a.row_stride + k * a.col_stride);
                    sum = left.mul_add(*b.ptr.add(k * b.row_stride + j * b.col_stride), sum);
                }
            }
            unsafe {
                let out = c.add(i * ldc + j);
                let mut value = epilogue.alpha * sum;
                if let Some(bias) = epilogue.bias {
                    value += *bias.add(j);
                }
                if epilogue.accumulate {
                    value += *out;
                }
                *out = value;
            }
        }
    }
}

pub fn packed_b_len(n: usize, k: usize) -> usize {
    n * k
}

pub unsafe fn pack_b<T: Float>(n: usize, k: usize, b: Matrix<T>, dst: &mut [T]) {
    for i in 0..k {
        for j in 0..n {
            dst[i * n + j] = unsafe { *b.ptr.add(i * b.row_stride + j * b.col_stride) };
        }
    }
}

pub unsafe fn gemm_packed_b<T: Float>(
    dims: Dims,
    a: Matrix<T>,
    packed: &[T],
    c: *mut T,
    ldc: usize,
    epilogue: Epilogue<T>,
    scratch: &mut [T],
) {
    let b = Matrix { ptr: packed.as_ptr(), row_stride: dims.n, col_stride: 1 };
    unsafe { gemm(dims, a, b, c, ldc, epilogue, scratch) }
}
