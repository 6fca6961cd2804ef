//! The recurrence forwards in its direction of time.

use super::{LstmShape, Piece, share_out};
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::gemm::{Activation, Dims, Epilogue, Matrix, gemm_packed_b, pack_b, packed_b_len, scratch_len};
use crate::kernels::cpu::parallel::{SharedMut, parallel, threads};
use plimsoll_base::simd::simd;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// Operands of [`forward`]; all contiguous.
#[derive(Clone, Copy)]
pub struct Forward<T> {
    /// (batch, time, dirs, 4·hidden): x·W_ihᵀ + b_ih.
    pub gates_x: *const T,
    /// (dirs, 4·hidden, hidden).
    pub w_hh: *const T,
    /// (dirs, 4·hidden).
    pub b_hh: *const T,
    /// Out: (batch, time, dirs·hidden).
    pub h: *mut T,
    /// Out: (batch, time, dirs, 4·hidden), the gates after sigmoid and tanh; may be the memory of `gates_x`.
    pub gates: *mut T,
    /// Out: (batch, time, dirs, hidden), the cell states.
    pub c: *mut T,
}

/// Elements of scratch that [`forward`] needs.
pub fn forward_scratch(shape: LstmShape, threads: usize) -> usize {
    shape.dirs * packed_len(&shape) + shape.workers(threads) * worker_len(&shape)
}

fn packed_len(shape: &LstmShape) -> usize {
    packed_b_len(shape.gates(), shape.hidden)
}

fn step_dims(shape: &LstmShape, rows: usize) -> Dims {
    Dims { m: rows, n: shape.gates(), k: shape.hidden }
}

/// One block of gates, the hidden state, and what the product wants.
fn worker_len(shape: &LstmShape) -> usize {
    let rows = shape.piece_rows();
    rows * (shape.gates() + shape.hidden) + scratch_len(step_dims(shape, rows), 1)
}

/// Runs the layer from zero states.
///
/// # Safety
/// The pointers are valid for the sizes stated at [`Forward`]; outputs overlap nothing else, except `gates` and
/// `gates_x` as stated there.
pub unsafe fn forward<T: Float>(shape: LstmShape, io: Forward<T>, scratch: &mut [T]) {
    if shape.is_empty() {
        return;
    }
    let workers = shape.workers(threads());
    assert!(scratch.len() >= forward_scratch(shape, threads()), "scratch is smaller than forward_scratch says");
    let (packed, rest) = scratch.split_at_mut(shape.dirs * packed_len(&shape));
    let run = Run { shape, io, packed: SharedMut::new(packed.as_mut_ptr()), rest: SharedMut::new(rest.as_mut_ptr()) };
    // SAFETY: a direction packs only its own part; tasks own disjoint rows, workers disjoint parts of the scratch.
    unsafe {
        parallel(shape.dirs, |dir| run.pack(dir));
        share_out(workers, shape.tasks(), |worker, task| run.task(worker, task));
    }
}

struct Run<T> {
    shape: LstmShape,
    io: Forward<T>,
    packed: SharedMut<T>,
    rest: SharedMut<T>,
}

// SAFETY: tasks write disjoint parts of the outputs and of the scratch.
unsafe impl<T: Send> Sync for Run<T> {}

impl<T: Float> Run<T> {
    /// # Safety
    /// `dir` is a direction, and nobody else packs it.
    unsafe fn pack(&self, dir: usize) {
        let (n, k, len) = (self.shape.gates(), self.shape.hidden, packed_len(&self.shape));
        // SAFETY: the weights hold a matrix for each direction, and so does what is packed.
        unsafe {
            let transposed = Matrix { ptr: self.io.w_hh.add(dir * n * k), row_stride: 1, col_stride: k };
            pack_b(n, k, transposed, self.packed.slice(dir * len, len));
        }
    }

    /// # Safety
    /// `task` is a piece that nobody else has, and `worker` the number of the calling one.
    unsafe fn task(&self, worker: usize, task: usize) {
        let (shape, len) = (&self.shape, worker_len(&self.shape));
        let piece = Piece::new(shape, task);
        // SAFETY: this worker's part of the scratch.
        let own = unsafe { self.rest.slice(worker * len, len) };
        let (gates, own) = own.split_at_mut(piece.rows * shape.gates());
        let (hidden, product) = own.split_at_mut(piece.rows * shape.hidden);
        for step in 0..shape.time {
            // SAFETY: as the caller of `forward` promises.
            unsafe {
                self.recur(piece, step, hidden, gates, product);
                simd(
                    #[inline(always)]
                    || self.activate(piece, step, hidden, gates),
                );
            }
        }
    }

    /// gates = h_previous · W_hhᵀ + b_hh; the state before the first step is zero.
    ///
    /// # Safety
    /// The direction is packed; `hidden` and `gates` have a row per sample of the piece.
    #[inline]
    unsafe fn recur(&self, piece: Piece, step: usize, hidden: &[T], gates: &mut [T], product: &mut [T]) {
        let (n, len) = (self.shape.gates(), packed_len(&self.shape));
        // SAFETY: the direction's bias and packed weights; `gates` has a row per sample of the piece and is the
        // worker's own.
        unsafe {
            let bias = self.io.b_hh.add(piece.dir * n);
            if step == 0 {
                return gates.chunks_exact_mut(n).for_each(|row| row.copy_from_slice(from_raw_parts(bias, n)));
            }
            let a = Matrix { ptr: hidden.as_ptr(), row_stride: self.shape.hidden, col_stride: 1 };
            let epilogue =
                Epilogue { alpha: T::ONE, bias: Some(bias), activation: Activation::None, accumulate: false };
            let packed = from_raw_parts(self.packed.ptr().add(piece.dir * len), len);
            gemm_packed_b(step_dims(&self.shape, piece.rows), a, packed, gates.as_mut_ptr(), n, epilogue, product);
        }
    }

    /// Adds the input's share, applies the gates, and stores what the step leaves behind.
    ///
    /// # Safety
    /// The piece belongs to the caller alone, and `step` is below the time.
    #[inline(always)]
    unsafe fn activate(&self, piece: Piece, step: usize, hidden: &mut [T], gates: &mut [T]) {
        let (shape, h) = (&self.shape, self.shape.hidden);
        let time = piece.time(shape, step);
        for row in 0..piece.rows {
            let z = &mut gates[row * 4 * h..][..4 * h];
            let state = &mut hidden[row * h..][..h];
            let (at, wide) = (piece.offset(shape, row, time, h), piece.offset(shape, row, time, 4 * h));
            // SAFETY: rows of this task; `gates_x` is read before its memory may be overwritten as `gates`.
            unsafe {
                add(z, from_raw_parts(self.io.gates_x.add(wide), 4 * h));
                let c = from_raw_parts_mut(self.io.c.add(at), h);
                if step == 0 {
                    cell(z, None, c, state);
                } else {
                    let before = piece.offset(shape, row, piece.time(shape, step - 1), h);
                    cell(z, Some(from_raw_parts(self.io.c.add(before), h)), c, state);
                }
                from_raw_parts_mut(self.io.gates.add(wide), 4 * h).copy_from_slice(z);
                from_raw_parts_mut(self.io.h.add(at), h).copy_from_slice(state);
            }
        }
    }
}

#[inline(always)]
fn add<T: Float>(to: &mut [T], from: &[T]) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to += from;
    }
}

/// One row: `z` holds the sums going into the gates and leaves as the gates.
#[inline(always)]
fn cell<T: Float>(z: &mut [T], c_before: Option<&[T]>, c: &mut [T], state: &mut [T]) {
    let h = c.len();
    let (i, rest) = z.split_at_mut(h);
    let (f, rest) = rest.split_at_mut(h);
    let (g, o) = rest.split_at_mut(h);
    let (o, state) = (&mut o[..h], &mut state[..h]);
    squash(i);
    squash(f);
    squash(o);
    for g in g.iter_mut() {
        *g = g.tanh();
    }
    match c_before {
        Some(before) => keep(i, f, g, &before[..h], c),
        None => {
            for j in 0..h {
                c[j] = i[j] * g[j];
            }
        }
    }
    for j in 0..h {
        state[j] = o[j] * c[j].tanh();
    }
}

/// c = f · c_before + i · g
#[inline(always)]
fn keep<T: Float>(i: &[T], f: &[T], g: &[T], before: &[T], c: &mut [T]) {
    for j in 0..c.len() {
        c[j] = f[j].mul_add(before[j], i[j] * g[j]);
    }
}

#[inline(always)]
fn squash<T: Float>(values: &mut [T]) {
    for value in values {
        *value = value.sigmoid();
    }
}
