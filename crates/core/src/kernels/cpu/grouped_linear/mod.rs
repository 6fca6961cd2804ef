//! Many small linear layers side by side: group g maps columns g·inputs .. (g+1)·inputs of x with its own weights.
//! The outputs of a group come in `parts` (query, key and value, say), and y is (rows, parts, groups, outputs), so that
//! one part of all groups is contiguous.
//!
//! Groups as narrow as a few lanes of a vector register have their own loops ([`lanes`]); wide ones are products.

mod lanes;
mod products;
#[cfg(test)]
mod tests;

use crate::kernels::cpu::float::Float;
use lanes::Narrow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupedShape {
    pub rows: usize,
    pub groups: usize,
    pub parts: usize,
    /// Width of a group's input, and of one part of its output.
    pub inputs: usize,
    pub outputs: usize,
    /// From a row of x (or dx) to the next, in elements.
    pub row_stride: usize,
}

impl GroupedShape {
    /// Values in a row of y.
    fn y_row(&self) -> usize {
        self.parts * self.groups * self.outputs
    }

    fn weights(&self) -> usize {
        self.groups * self.parts * self.outputs * self.inputs
    }

    fn biases(&self) -> usize {
        self.groups * self.parts * self.outputs
    }
}

/// Elements of scratch that [`forward`] needs.
pub fn forward_scratch(shape: GroupedShape, threads: usize) -> usize {
    match Narrow::new(&shape) {
        Some(narrow) => narrow.scratch(),
        None => products::forward_scratch(&shape, threads),
    }
}

/// y[m, p, g, o] = b[g, p·outputs + o] + Σ_i x[m, g, i] · w[g, p·outputs + o, i].
///
/// # Safety
/// x has `rows` rows at the stride, w is (groups, parts·outputs, inputs), b (groups, parts·outputs), and y (rows, parts,
/// groups, outputs) overlaps nothing.
pub unsafe fn forward<T: Float>(
    shape: GroupedShape,
    x: *const T,
    w: *const T,
    b: *const T,
    y: *mut T,
    scratch: &mut [T],
) {
    // SAFETY: as the caller promises.
    unsafe {
        match Narrow::new(&shape) {
            Some(narrow) => narrow.forward(x, w, b, y, scratch),
            None => products::forward(&shape, x, w, b, y, scratch),
        }
    }
}

/// Elements of scratch that [`backward_input`] needs.
pub(crate) fn backward_input_scratch(shape: GroupedShape, threads: usize) -> usize {
    match Narrow::new(&shape) {
        Some(narrow) => narrow.scratch(),
        None => products::backward_input_scratch(&shape, threads),
    }
}

/// dx[m, g, i] = Σ dy[m, p, g, o] · w[g, p·outputs + o, i] over p and o.
///
/// # Safety
/// As for [`forward`]; the groups·inputs first values of each row of dx are written and overlap nothing.
pub(crate) unsafe fn backward_input<T: Float>(
    shape: GroupedShape,
    dy: *const T,
    w: *const T,
    dx: *mut T,
    scratch: &mut [T],
) {
    // SAFETY: as the caller promises.
    unsafe {
        match Narrow::new(&shape) {
            Some(narrow) => narrow.backward_input(dy, w, dx, scratch),
            None => products::backward_input(&shape, dy, w, dx, scratch),
        }
    }
}

/// Elements of scratch that [`backward_weights`] needs.
pub(crate) fn backward_weights_scratch(shape: GroupedShape, threads: usize) -> usize {
    match Narrow::new(&shape) {
        Some(narrow) => narrow.weights_scratch(),
        None => products::backward_weights_scratch(&shape, threads),
    }
}

/// dw[g, p·outputs + o, i] = Σ_m dy[m, p, g, o] · x[m, g, i], and db = Σ_m dy.
///
/// # Safety
/// As for [`forward`]; dw and db have the shapes of w and b and overlap nothing.
pub(crate) unsafe fn backward_weights<T: Float>(
    shape: GroupedShape,
    x: *const T,
    dy: *const T,
    dw: *mut T,
    db: *mut T,
    scratch: &mut [T],
) {
    // SAFETY: as the caller promises.
    unsafe {
        match Narrow::new(&shape) {
            Some(narrow) => narrow.backward_weights(x, dy, dw, db, scratch),
            None => products::backward_weights(&shape, x, dy, dw, db, scratch),
        }
    }
}
