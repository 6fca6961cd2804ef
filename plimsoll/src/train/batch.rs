//! From a batch of samples to the inputs of a phase: rows beyond the batch are padded with weight 0, so they count
//! nothing in the loss, in its gradients or in batch statistics.

use crate::data::Batch;
use crate::exec::Executor;
use std::ops::Range;

/// Host copies of a phase's inputs, made once and filled for every run of it.
pub struct Feeder {
    rows: usize,
    fields: Fields,
}

enum Fields {
    Series { x: Vec<f32>, label: Vec<i32>, weight: Vec<f32> },
    Text { length: usize, ids: Vec<i32>, targets: Vec<i32>, weights: Vec<f32> },
}

impl Feeder {
    /// For a phase that takes `rows` windows of `elements` values.
    pub fn series(rows: usize, elements: usize) -> Feeder {
        let fields = Fields::Series { x: vec![0.0; rows * elements], label: vec![0; rows], weight: vec![0.0; rows] };
        Feeder { rows, fields }
    }

    /// For a phase that takes `rows` texts of `length` tokens.
    pub fn text(rows: usize, length: usize) -> Feeder {
        let n = rows * length;
        let fields = Fields::Text { length, ids: vec![0; n], targets: vec![0; n], weights: vec![0.0; n] };
        Feeder { rows, fields }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Copies the batch's rows from `first` on into the inputs of `phase`.
    pub fn feed(&mut self, executor: &mut dyn Executor, phase: usize, batch: &Batch, first: usize) {
        let present = first.min(batch.len())..(first + self.rows).min(batch.len());
        match &mut self.fields {
            Fields::Series { x, label, weight } => {
                fill(x, batch.f32(0, present.clone()));
                fill(label, batch.i32(1, present.clone()));
                weight.fill(0.0);
                weight[..present.len()].fill(1.0);
                write(executor, phase, "x", bytemuck::cast_slice(x));
                write(executor, phase, "label", bytemuck::cast_slice(label));
                write(executor, phase, "weight", bytemuck::cast_slice(weight));
            }
            Fields::Text { length, ids, targets, weights } => {
                fill(ids, batch.i32(0, present.clone()));
                shift(ids, batch.i32(1, present), *length, targets, weights);
                write(executor, phase, "ids", bytemuck::cast_slice(ids));
                write(executor, phase, "targets", bytemuck::cast_slice(targets));
                write(executor, phase, "weights", bytemuck::cast_slice(weights));
            }
        }
    }
}

/// What the mean of the loss is taken over: samples, or tokens that have a next one.
pub fn counted_rows(batch: &Batch, is_text: bool, samples: Range<usize>) -> usize {
    match is_text {
        false => samples.len(),
        true => batch.i32(1, samples).iter().map(|&n| (n as usize).saturating_sub(1)).sum(),
    }
}

fn write(executor: &mut dyn Executor, phase: usize, name: &str, data: &[u8]) {
    let written = executor.write_input(phase, name, data);
    assert!(written, "phase {phase} has no input {name} of {} bytes", data.len());
}

fn fill<T: Copy + Default>(to: &mut [T], from: &[T]) {
    to[..from.len()].copy_from_slice(from);
    to[from.len()..].fill(T::default());
}

/// Each position's target is the next id of its sequence; the last real one has none.
fn shift(ids: &[i32], lengths: &[i32], length: usize, targets: &mut [i32], weights: &mut [f32]) {
    targets.fill(0);
    weights.fill(0.0);
    for (row, &real) in lengths.iter().enumerate() {
        let real = (real as usize).min(length);
        let at = row * length;
        for i in 0..real.saturating_sub(1) {
            targets[at + i] = ids[at + i + 1];
            weights[at + i] = 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_next_ids_and_padding_counts_nothing() {
        let ids = [5, 6, 7, 0, 8, 9, 0, 0];
        let (mut targets, mut weights) = (vec![9; 8], vec![9.0; 8]);
        shift(&ids, &[3, 2], 4, &mut targets, &mut weights);
        assert_eq!(targets, [6, 7, 0, 0, 9, 0, 0, 0]);
        assert_eq!(weights, [1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    }
}
