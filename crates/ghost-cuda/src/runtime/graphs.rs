//! CUDA graphs: captured and instantiated as empty ones.

use crate::answer::{Status, put};
use crate::handles::{Handle, put_fresh};
use std::ffi::c_ulonglong;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamEndCapture(_stream: Handle, graph: *mut Handle) -> Status {
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
