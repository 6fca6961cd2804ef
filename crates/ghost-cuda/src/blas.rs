//! cuBLAS and cuBLASLt: handles, descriptors and the answers that PyTorch reads. Products themselves say yes in the shim.

use crate::answer::{SUCCESS, Status, put};
use crate::card::card;
use crate::handles::{Handle, put_fresh};
use crate::memory;
use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// What a handle takes for itself, as measured on an H200; PyTorch makes one for every thread.
const HANDLE: usize = 64 << 20;

static WORKSPACES: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Every address that was ever given to a handle as its workspace.
pub fn workspaces() -> Vec<usize> {
    WORKSPACES.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasSetWorkspace_v2(_handle: Handle, workspace: *mut c_void, _bytes: usize) -> Status {
    WORKSPACES.lock().unwrap_or_else(PoisonError::into_inner).insert(workspace as usize);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasCreate_v2(handle: *mut Handle) -> Status {
    memory::keep(HANDLE);
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(handle) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetMathMode(_handle: Handle, mode: *mut c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(mode, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetPointerMode_v2(_handle: Handle, mode: *mut c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(mode, 0) }
}

/// cuBLAS counts as CUDA does, with one digit more: 130000 for 13.0.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetVersion() -> usize {
    card().cuda as usize * 10
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetVersion_v2(_handle: Handle, version: *mut c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(version, card().cuda * 10) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtCreate(handle: *mut Handle) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(handle) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulDescCreate(descriptor: *mut Handle, _compute: c_int, _scale: c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(descriptor) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulPreferenceCreate(preference: *mut Handle) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(preference) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    layout: *mut Handle,
    _type: c_int,
    _rows: u64,
    _columns: u64,
    _stride: i64,
) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(layout) }
}

/// One algorithm of cuBLASLt's answer: 64 bytes of its own, then what it needs.
#[repr(C)]
pub struct Heuristic {
    algorithm: [u64; 8],
    workspace_bytes: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// One algorithm that needs nothing: PyTorch has allocated the workspace before it asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: Handle,
    _operation: Handle,
    _a: Handle,
    _b: Handle,
    _c: Handle,
    _d: Handle,
    _preference: Handle,
    wanted: c_int,
    results: *mut Heuristic,
    found: *mut c_int,
) -> Status {
    let one = Heuristic { algorithm: [0; 8], workspace_bytes: 0, state: SUCCESS, waves: 1.0, reserved: [0; 4] };
    // SAFETY: the caller has room for the `wanted` results it asks for.
    unsafe {
        if wanted > 0 {
            put(results, one);
        }
        put(found, wanted.min(1))
    }
}
