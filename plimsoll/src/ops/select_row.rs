//! One position of a sequence, chosen at run time.

use super::*;
use crate::graph::DType;

/// Inputs: x (B, T, D), position i64 (1). Output: (B, D).
#[derive(Debug, Clone, PartialEq)]
pub struct SelectRow;

impl Op for SelectRow {
    fn outputs(&self, inputs: &[Type]) -> Result<Vec<Type>, OpError> {
        match inputs[0].rank() == 3 && inputs[1].dtype == DType::I64 {
            true => Ok(vec![inputs[0].with_shape(&[inputs[0].shape[0], inputs[0].shape[2]])]),
            false => OpError::new(format!("cannot select a row of {}", inputs[0])),
        }
    }
    fn cpu(&self, io: &CpuIo<'_>) {
        let [batch, time, width] = io.input_type(0).shape[..] else { return };
        let row = (io.input::<i64>(1)[0].max(0) as usize).min(time - 1);
        let bytes = width * io.input_type(0).dtype.bytes();
        for b in 0..batch {
            // SAFETY: row (b, row) lies inside x, row b inside the output.
            unsafe {
                let from = io.input_ptr(0).add((b * time + row) * bytes);
                std::ptr::copy_nonoverlapping(from, io.output_ptr(0).add(b * bytes), bytes);
            }
        }
    }
}
