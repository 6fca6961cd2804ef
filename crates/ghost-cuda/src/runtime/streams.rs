//! Streams and events: all work is done as soon as it is asked for.

use crate::answer::{SUCCESS, Status, put};
use crate::handles::{Handle, put_fresh};
use crate::memory;
use crate::runtime::graphs;
use crate::runtime::kernels::draws_numbers;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamCreate(stream: *mut Handle) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamCreateWithFlags(stream: *mut Handle, _flags: c_uint) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamCreateWithPriority(stream: *mut Handle, _flags: c_uint, _priority: c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamGetPriority(_stream: Handle, priority: *mut c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(priority, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamIsCapturing(stream: Handle, status: *mut c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(status, c_int::from(graphs::captured(stream).is_some())) }
}

/// The other answers, which have moved between versions, are left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamGetCaptureInfo(stream: Handle, status: *mut c_int, id: *mut c_ulonglong) -> Status {
    let capture = graphs::captured(stream);
    // SAFETY: the caller's places for the answers.
    unsafe { put(status, c_int::from(capture.is_some())) + put(id, capture.unwrap_or(0)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamGetCaptureInfo_v2(
    stream: Handle,
    status: *mut c_int,
    id: *mut c_ulonglong,
) -> Status {
    // SAFETY: as above.
    unsafe { cudaStreamGetCaptureInfo(stream, status, id) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaEventCreate(event: *mut Handle) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(event) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaEventCreateWithFlags(event: *mut Handle, _flags: c_uint) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(event) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaEventElapsedTime(milliseconds: *mut f32, _from: Handle, _to: Handle) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(milliseconds, 1.0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaEventElapsedTime_v2(milliseconds: *mut f32, from: Handle, to: Handle) -> Status {
    // SAFETY: as above.
    unsafe { cudaEventElapsedTime(milliseconds, from, to) }
}

type Callback = unsafe extern "C" fn(Handle, Status, *mut c_void);
type HostFunction = unsafe extern "C" fn(*mut c_void);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamAddCallback(
    stream: Handle,
    callback: Callback,
    data: *mut c_void,
    _flags: c_uint,
) -> Status {
    // SAFETY: the caller's function, with the caller's data.
    unsafe { callback(stream, SUCCESS, data) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaLaunchHostFunc(_stream: Handle, function: HostFunction, data: *mut c_void) -> Status {
    // SAFETY: the caller's function, with the caller's data.
    unsafe { function(data) };
    SUCCESS
}

/// Only that it happens counts: where it is launched and with what is left unread.
#[unsafe(no_mangle)]
pub extern "C" fn cudaLaunchKernel(function: *const c_void) -> Status {
    memory::launch(|| draws_numbers(function));
    SUCCESS
}

/// What `kernel<<<…>>>()` calls since CUDA 13.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaLaunchKernel(kernel: *const c_void) -> Status {
    cudaLaunchKernel(kernel)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaLaunchKernelExC(_configuration: *const c_void, function: *const c_void) -> Status {
    memory::launch(|| draws_numbers(function));
    SUCCESS
}
