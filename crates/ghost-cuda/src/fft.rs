//! cuFFT: plans. How much it wants to work with is not known here, and said so.

use crate::answer::{Status, put};
use crate::probe::guessed;
use std::ffi::{c_int, c_longlong};
use std::sync::atomic::{AtomicI32, Ordering};

static NEXT: AtomicI32 = AtomicI32::new(1);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftCreate(plan: *mut c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(plan, NEXT.fetch_add(1, Ordering::Relaxed)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cufftXtMakePlanMany(
    _plan: c_int,
    _rank: c_int,
    _sizes: *mut c_longlong,
    _input: *mut c_longlong,
    _input_stride: c_longlong,
    _input_distance: c_longlong,
    _input_type: c_int,
    _output: *mut c_longlong,
    _output_stride: c_longlong,
    _output_distance: c_longlong,
    _output_type: c_int,
    _batch: c_longlong,
    work_bytes: *mut usize,
    _type: c_int,
) -> Status {
    guessed(c"cufftXtMakePlanMany");
    // SAFETY: the caller's place for the answer.
    unsafe { put(work_bytes, 0) }
}
