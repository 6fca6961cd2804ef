//! Sizes of cuDNN's element types.

use std::ffi::c_int;

pub(crate) fn element_bytes(kind: c_int) -> u64 {
    match kind {
        // f64, i64
        1 | 10 => 8,
        // f32, i32
        0 | 4 => 4,
        // f16, bf16
        2 | 9 => 2,
        _ => 1,
    }
}
