//! One-dimensional convolution, channels last: x (batch, time, channels_in) → y (batch, time_out, channels_out), the
//! weight in PyTorch's layout (channels_out, channels_in, kernel).
//!
//! With channels last, the window under an output row is one contiguous run of kernel·channels_in values, and windows
//! lie `stride` rows apart. So a product can read its left matrix straight from (zero-padded) x with overlapping rows,
//! and nothing of the size of an unfolded input is ever stored.

mod backward_weight;
mod slide;
#[cfg(test)]
mod tests;

pub(crate) use backward_weight::{backward_weight, backward_weight_scratch};

use crate::kernels::cpu::float::Float;
use slide::{Slide, slide, slide_scratch};
use std::slice::from_raw_parts;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv1dShape {
    pub batch: usize,
    pub time: usize,
    pub channels_in: usize,
    pub channels_out: usize,
    pub kernel: usize,
    pub stride: usize,
    /// Zeros before the first and after the last row of x.
    pub padding: usize,
}

impl Conv1dShape {
    /// Rows of the output; 0 if the padded input is shorter than the kernel.
    pub(crate) fn time_out(&self) -> usize {
        (self.time + 2 * self.padding + self.stride).saturating_sub(self.kernel) / self.stride
    }

    fn weights(&self) -> usize {
        self.channels_out * self.channels_in * self.kernel
    }

    /// Kernel taps that reach inputs of `phase` = (input row + padding) mod stride: phase, phase + stride, …
    fn taps(&self, phase: usize) -> usize {
        self.kernel.saturating_sub(phase).div_ceil(self.stride)
    }
}

fn forward_slide<T>(s: &Conv1dShape, x: *const T, bias: Option<*const T>, y: *mut T) -> Slide<T> {
    Slide {
        samples: s.batch,
        source: x,
        source_rows: s.time,
        source_width: s.channels_in,
        first: -(s.padding as isize),
        step: s.stride,
        taps: s.kernel,
        bias,
        target: y,
        target_sample: s.time_out() * s.channels_out,
        target_row: s.channels_out,
        target_rows: s.time_out(),
        target_width: s.channels_out,
    }
}

/// Elements of scratch that [`forward`] needs.
pub fn forward_scratch(shape: Conv1dShape, threads: usize) -> usize {
    let null = std::ptr::null_mut::<f32>();
    shape.weights() + slide_scratch(&forward_slide(&shape, null, None, null), threads)
}

/// y = x ∗ w + bias.
///
/// # Safety
/// x, w, bias (where given) and y have the sizes of `shape`; y overlaps nothing.
pub unsafe fn forward<T: Float>(
    shape: Conv1dShape,
    x: *const T,
    w: *const T,
    bias: Option<*const T>,
    y: *mut T,
    scratch: &mut [T],
) {
    let (weights, scratch) = scratch.split_at_mut(shape.weights());
    // SAFETY: w has this size.
    let w = unsafe { from_raw_parts(w, shape.weights()) };
    let (inputs, outputs, kernel) = (shape.channels_in, shape.channels_out, shape.kernel);
    // The window's order: (tap, input channel) × output channel.
    for tap in 0..kernel {
        for c in 0..inputs {
            let row = &mut weights[(tap * inputs + c) * outputs..][..outputs];
            row.iter_mut().enumerate().for_each(|(o, to)| *to = w[(o * inputs + c) * kernel + tap]);
        }
    }
    // SAFETY: the slide describes x and y as the caller promises them.
    unsafe { slide(&forward_slide(&shape, x, bias, y), weights, scratch) }
}

/// Input rows of one phase are a sliding product over dy with that phase's taps, last tap first. `None` when the input
/// is too short to have such rows.
fn input_slide<T>(s: &Conv1dShape, phase: usize, dy: *const T, dx: *mut T) -> Option<Slide<T>> {
    // The input row that output row q reaches with tap `phase` is q·stride + phase − padding: start where that is ≥ 0.
    let first_output = s.padding.saturating_sub(phase).div_ceil(s.stride);
    let start = first_output * s.stride + phase - s.padding.min(first_output * s.stride + phase);
    let rows = s.time.saturating_sub(start).div_ceil(s.stride);
    (rows > 0).then(|| Slide {
        samples: s.batch,
        source: dy,
        source_rows: s.time_out(),
        source_width: s.channels_out,
        first: first_output as isize + 1 - s.taps(phase) as isize,
        step: 1,
        taps: s.taps(phase),
        bias: None,
        target: dx.wrapping_add(start * s.channels_in),
        target_sample: s.time * s.channels_in,
        target_row: s.stride * s.channels_in,
        target_rows: rows,
        target_width: s.channels_in,
    })
}

/// Elements of scratch that [`backward_input`] needs.
pub(crate) fn backward_input_scratch(shape: Conv1dShape, threads: usize) -> usize {
    let null = std::ptr::null_mut::<f32>();
    let slides = (0..shape.stride).filter_map(|phase| input_slide(&shape, phase, null, null));
    shape.weights() + slides.map(|s| slide_scratch(&s, threads)).max().unwrap_or(0)
}

/// dx, the gradient of the input.
///
/// # Safety
/// dy, w and dx have the sizes of `shape`; dx overlaps nothing.
pub(crate) unsafe fn backward_input<T: Float>(
    shape: Conv1dShape,
    dy: *const T,
    w: *const T,
    dx: *mut T,
    scratch: &mut [T],
) {
    let (weights, scratch) = scratch.split_at_mut(shape.weights());
    // SAFETY: w has this size.
    let w = unsafe { from_raw_parts(w, shape.weights()) };
    let (inputs, outputs) = (shape.channels_in, shape.channels_out);
    for phase in 0..shape.stride {
        let Some(run) = input_slide(&shape, phase, dy, dx) else { continue };
        // The window's order: (tap from last to first, output channel) × input channel.
        for j in 0..run.taps {
            let tap = phase + (run.taps - 1 - j) * shape.stride;
            for o in 0..outputs {
                let row = &mut weights[(j * outputs + o) * inputs..][..inputs];
                row.iter_mut().enumerate().for_each(|(c, to)| *to = w[(o * inputs + c) * shape.kernel + tap]);
            }
        }
        // SAFETY: phases write disjoint rows of dx; the slide describes them as the caller promises.
        unsafe { slide(&run, weights, scratch) }
    }
}
