//! CUDA graphs: captured and instantiated as empty ones.

use crate::answer::{SUCCESS, Status, put};
use crate::handles::{Handle, put_fresh};
use std::ffi::{c_int, c_ulonglong};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The stream that is captured, with the number of its capture: one at a time is what PyTorch allows.
static CAPTURED: Mutex<Option<(usize, c_ulonglong)>> = Mutex::new(None);
static CAPTURES: AtomicU64 = AtomicU64::new(0);

fn set_captured(capture: Option<(usize, c_ulonglong)>) {
    *CAPTURED.lock().unwrap_or_else(PoisonError::into_inner) = capture;
}

/// The number of the capture of this stream.
pub(crate) fn captured(stream: Handle) -> Option<c_ulonglong> {
    let captured = CAPTURED.lock().unwrap_or_else(PoisonError::into_inner);
    captured.filter(|(captured, _)| *captured == stream as usize).map(|(_, number)| number)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamBeginCapture(stream: Handle, _mode: c_int) -> Status {
    set_captured(Some((stream as usize, CAPTURES.fetch_add(1, Ordering::Relaxed) + 1)));
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamEndCapture(_stream: Handle, graph: *mut Handle) -> Status {
    set_captured(None);
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(graph) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGraphInstantiateWithFlags(
    run: *mut Handle,
    _graph: Handle,
    _flags: c_ulonglong,
) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(run) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGraphInstantiate(run: *mut Handle, graph: Handle, flags: c_ulonglong) -> Status {
    // SAFETY: as above.
    unsafe { cudaGraphInstantiateWithFlags(run, graph, flags) }
}

/// One node: PyTorch warns where a graph has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGraphGetNodes(_graph: Handle, _nodes: *mut Handle, count: *mut usize) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(count, 1) }
}
