//! The recurrence backwards: gradients of the gates step by step, then the weight gradient as one product.

use super::{LstmShape, Piece, share_out};
use crate::kernels::cpu::float::Float;
use crate::kernels::cpu::gemm::{
    Activation, Dims, Epilogue, Matrix, gemm, gemm_packed_b, pack_b, packed_b_len, scratch_len,
};
use crate::kernels::cpu::parallel::{SharedMut, parallel, threads};
use plimsoll_base::simd::simd;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// Operands of [`backward`]; all contiguous.
#[derive(Clone, Copy)]
pub struct Backward<T> {
    /// (batch, time, dirs·hidden): gradient of the layer's output.
    pub dh: *const T,
    /// (batch, time, dirs, 4·hidden), (batch, time, dirs, hidden), (batch, time, dirs·hidden): kept from forward.
    pub gates: *const T,
    pub c: *const T,
    pub h: *const T,
    /// (dirs, 4·hidden, hidden).
    pub w_hh: *const T,
    /// Out: (batch, time, dirs, 4·hidden), gradient of the sums going into the gates; may be the memory of `gates`.
    pub dgates: *mut T,
    /// Out: (dirs, 4·hidden, hidden).
    pub dw_hh: *mut T,
}

/// Elements of scratch that [`backward`] needs.
pub fn backward_scratch(shape: LstmShape, threads: usize) -> usize {
    let weights = scratch_len(weight_dims(&shape), threads).max(scratch_len(straddle_dims(&shape), threads));
    recurrence_scratch(&shape, threads).max(weights)
}

fn recurrence_scratch(shape: &LstmShape, threads: usize) -> usize {
    shape.dirs * packed_len(shape) + shape.workers(threads) * worker_len(shape)
}

fn packed_len(shape: &LstmShape) -> usize {
    packed_b_len(shape.hidden, shape.gates())
}

fn step_dims(shape: &LstmShape, rows: usize) -> Dims {
    Dims { m: rows, n: shape.hidden, k: shape.gates() }
}

/// All rows (sample, time) after the first against all before the last.
fn weight_dims(shape: &LstmShape) -> Dims {
    Dims { m: shape.gates(), n: shape.hidden, k: (shape.batch * shape.time).saturating_sub(1) }
}

fn straddle_dims(shape: &LstmShape) -> Dims {
    Dims { k: shape.batch.saturating_sub(1), ..weight_dims(shape) }
}

/// One block of gate gradients, the gradients of both states, and what the product wants.
fn worker_len(shape: &LstmShape) -> usize {
    let rows = shape.piece_rows();
    rows * (shape.gates() + 2 * shape.hidden) + scratch_len(step_dims(shape, rows), 1)
}

/// Gradients of the gates' sums and of the recurrent weights. Bias gradients are column sums of `dgates`.
///
/// # Safety
/// The pointers are valid for the sizes stated at [`Backward`]; outputs overlap nothing else, except `dgates` and
/// `gates` as stated there.
pub unsafe fn backward<T: Float>(shape: LstmShape, io: Backward<T>, scratch: &mut [T]) {
    if shape.is_empty() {
        let len = shape.dirs * shape.gates() * shape.hidden;
        // SAFETY: the whole of `dw_hh`.
        return unsafe { from_raw_parts_mut(io.dw_hh, len).fill(T::ZERO) };
    }
    let workers = shape.workers(threads());
    assert!(scratch.len() >= recurrence_scratch(&shape, threads()), "scratch is smaller than backward_scratch says");
    let (packed, rest) = scratch.split_at_mut(shape.dirs * packed_len(&shape));
    let run = Run { shape, io, packed: SharedMut::new(packed.as_mut_ptr()), rest: SharedMut::new(rest.as_mut_ptr()) };
    // SAFETY: a direction packs only its own part; tasks own disjoint rows, workers disjoint parts of the scratch.
    unsafe {
        parallel(shape.dirs, |dir| run.pack(dir));
        share_out(workers, shape.tasks(), |worker, task| run.task(worker, task));
        (0..shape.dirs).for_each(|dir| weight_gradient(&shape, &io, dir, scratch));
    }
}

struct Run<T> {
    shape: LstmShape,
    io: Backward<T>,
    packed: SharedMut<T>,
    rest: SharedMut<T>,
}

// SAFETY: tasks write disjoint parts of the outputs and of the scratch.
unsafe impl<T: Send> Sync for Run<T> {}

impl<T: Float> Run<T> {
    /// # Safety
    /// `dir` is a direction, and nobody else packs it.
    unsafe fn pack(&self, dir: usize) {
        let (n, k, len) = (self.shape.hidden, self.shape.gates(), packed_len(&self.shape));
        // SAFETY: the weights hold a matrix for each direction, and so does what is packed.
        unsafe {
            let weights = Matrix { ptr: self.io.w_hh.add(dir * n * k), row_stride: n, col_stride: 1 };
            pack_b(n, k, weights, self.packed.slice(dir * len, len));
        }
    }

    /// # Safety
    /// `task` is a piece that nobody else has, and `worker` the number of the calling one.
    unsafe fn task(&self, worker: usize, task: usize) {
        let (shape, len) = (&self.shape, worker_len(&self.shape));
        let piece = Piece::new(shape, task);
        let size = piece.rows * shape.hidden;
        // SAFETY: this worker's part of the scratch.
        let own = unsafe { self.rest.slice(worker * len, len) };
        let (dgates, own) = own.split_at_mut(4 * size);
        let (dc, own) = own.split_at_mut(size);
        let (dh, product) = own.split_at_mut(size);
        dc.fill(T::ZERO);
        dh.fill(T::ZERO);
        for step in (0..shape.time).rev() {
            // SAFETY: as the caller of `backward` promises.
            unsafe {
                simd(
                    #[inline(always)]
                    || self.differentiate(piece, step, dh, dc, dgates),
                );
                if step > 0 {
                    self.recur(piece, dgates, dh, product);
                }
            }
        }
    }

    /// dh_previous = dgates · W_hh
    ///
    /// # Safety
    /// The direction is packed; `dgates` and `dh` have a row per sample of the piece.
    unsafe fn recur(&self, piece: Piece, dgates: &[T], dh: &mut [T], product: &mut [T]) {
        let (h, len) = (self.shape.hidden, packed_len(&self.shape));
        let a = Matrix { ptr: dgates.as_ptr(), row_stride: 4 * h, col_stride: 1 };
        // SAFETY: the direction's packed weights; `dh` has a row per sample of the piece and is the worker's own.
        unsafe {
            let packed = from_raw_parts(self.packed.ptr().add(piece.dir * len), len);
            let dims = step_dims(&self.shape, piece.rows);
            gemm_packed_b(dims, a, packed, dh.as_mut_ptr(), h, plain(T::ONE, false), product);
        }
    }

    /// From the gradients of both states after a step to those of its gates and of the cell state before it.
    ///
    /// # Safety
    /// The piece belongs to the caller alone, and `step` is below the time.
    #[inline(always)]
    unsafe fn differentiate(&self, piece: Piece, step: usize, dh: &mut [T], dc: &mut [T], dgates: &mut [T]) {
        let (shape, h) = (&self.shape, self.shape.hidden);
        let time = piece.time(shape, step);
        for row in 0..piece.rows {
            let (dh, dc) = (&mut dh[row * h..][..h], &mut dc[row * h..][..h]);
            let dz = &mut dgates[row * 4 * h..][..4 * h];
            let (at, wide) = (piece.offset(shape, row, time, h), piece.offset(shape, row, time, 4 * h));
            // SAFETY: rows of this task; `gates` is read before its memory may be overwritten as `dgates`.
            unsafe {
                let gates = from_raw_parts(self.io.gates.add(wide), 4 * h);
                let c = from_raw_parts(self.io.c.add(at), h);
                through_state(gates, c, from_raw_parts(self.io.dh.add(at), h), dh, dc, dz);
                if step == 0 {
                    dz[h..2 * h].fill(T::ZERO);
                } else {
                    let before = piece.offset(shape, row, piece.time(shape, step - 1), h);
                    through_forget(gates, from_raw_parts(self.io.c.add(before), h), dc, dz);
                }
                from_raw_parts_mut(self.io.dgates.add(wide), 4 * h).copy_from_slice(dz);
            }
        }
    }
}

/// Gates i, g and o of one row; `dc` leaves as the gradient of the cell state after the step.
#[inline(always)]
fn through_state<T: Float>(gates: &[T], c: &[T], dh_out: &[T], dh: &[T], dc: &mut [T], dz: &mut [T]) {
    let h = c.len();
    let (i, g, o) = (&gates[..h], &gates[2 * h..][..h], &gates[3 * h..][..h]);
    let (dz_i, rest) = dz.split_at_mut(h);
    let (dz_g, dz_o) = rest[h..].split_at_mut(h);
    let (dz_o, dh_out, dh, dc) = (&mut dz_o[..h], &dh_out[..h], &dh[..h], &mut dc[..h]);
    for j in 0..h {
        let (dh, c) = (dh_out[j] + dh[j], c[j].tanh());
        dz_o[j] = dh * c * o[j] * (T::ONE - o[j]);
        let through = dh * o[j] * (T::ONE - c * c) + dc[j];
        dc[j] = through;
        dz_i[j] = through * g[j] * i[j] * (T::ONE - i[j]);
        dz_g[j] = through * i[j] * (T::ONE - g[j] * g[j]);
    }
}

/// Gate f of one row; `dc` goes on to the cell state before the step.
#[inline(always)]
fn through_forget<T: Float>(gates: &[T], c_before: &[T], dc: &mut [T], dz: &mut [T]) {
    let h = dc.len();
    let (f, dz_f, c_before) = (&gates[h..2 * h], &mut dz[h..2 * h], &c_before[..h]);
    for j in 0..h {
        dz_f[j] = dc[j] * c_before[j] * f[j] * (T::ONE - f[j]);
        dc[j] *= f[j];
    }
}

/// dW_hh = Σ dgates[t]ᵀ · h[step before t], over all samples. Rows (sample, time) lie at one stride, so one product
/// pairs each with its neighbour; a second takes back the pairs that straddle two samples.
///
/// # Safety
/// All pieces of the direction are done; `dw_hh` of the direction belongs to the caller alone.
unsafe fn weight_gradient<T: Float>(shape: &LstmShape, io: &Backward<T>, dir: usize, scratch: &mut [T]) {
    let (n, h) = (shape.gates(), shape.hidden);
    // SAFETY: `dw_hh` holds a matrix for each direction.
    let out = unsafe { io.dw_hh.add(dir * n * h) };
    if shape.time == 1 {
        // SAFETY: the direction's part of `dw_hh`.
        return unsafe { from_raw_parts_mut(out, n * h).fill(T::ZERO) };
    }
    // Row of the first pair in each operand: the later of the two rows has the gate gradients, in the direction's time.
    let (late, early) = if dir == 0 { (1, 0) } else { (0, 1) };
    // SAFETY: rows (sample, time) of both operands lie inside, as `first`, `late` and `early` are below batch × time.
    let pairs = |first: usize, apart: usize| unsafe {
        let gate_row = ((first + late) * shape.dirs + dir) * n;
        let state_row = ((first + early) * shape.dirs + dir) * h;
        let a = Matrix { ptr: io.dgates.add(gate_row).cast_const(), row_stride: 1, col_stride: apart * shape.dirs * n };
        let b = Matrix { ptr: io.h.add(state_row), row_stride: apart * shape.dirs * h, col_stride: 1 };
        (a, b)
    };
    let (a, b) = pairs(0, 1);
    // SAFETY: every row but the last of a direction has a successor; `out` is the direction's own.
    unsafe { gemm(weight_dims(shape), a, b, out, h, plain(T::ONE, false), scratch) };
    if shape.batch > 1 {
        let (a, b) = pairs(shape.time - 1, shape.time);
        // SAFETY: the last row of a sample and the first of the next, of which there are batch − 1.
        unsafe { gemm(straddle_dims(shape), a, b, out, h, plain(-T::ONE, true), scratch) };
    }
}

fn plain<T>(alpha: T, accumulate: bool) -> Epilogue<T> {
    Epilogue { alpha, bias: None, activation: Activation::None, accumulate }
}
