//! Kernels: registered, asked about, and never launched.

use crate::answer::{SUCCESS, Status, put};
use crate::card::card;
use crate::handles::Handle;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, PoisonError};

/// A grid's or a block's extent.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Extent {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

#[derive(Clone, Copy)]
struct Launch {
    grid: Extent,
    block: Extent,
    shared_bytes: usize,
    stream: Handle,
}

thread_local! {
    static LAUNCH: Cell<Option<Launch>> = const { Cell::new(None) };
}

/// The first half of `kernel<<<…>>>()`.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaPushCallConfiguration(
    grid: Extent,
    block: Extent,
    shared_bytes: usize,
    stream: Handle,
) -> c_uint {
    LAUNCH.set(Some(Launch { grid, block, shared_bytes, stream }));
    0
}

/// The second half, inside the stub that the compiler made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaPopCallConfiguration(
    grid: *mut Extent,
    block: *mut Extent,
    shared_bytes: *mut usize,
    stream: *mut Handle,
) -> Status {
    let one = Extent { x: 1, y: 1, z: 1 };
    let none = Launch { grid: one, block: one, shared_bytes: 0, stream: std::ptr::null_mut() };
    let launch = LAUNCH.take().unwrap_or(none);
    // SAFETY: the caller's places for the answers.
    unsafe {
        put(grid, launch.grid);
        put(block, launch.block);
        put(shared_bytes, launch.shared_bytes);
        put(stream, launch.stream)
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterFatBinary(_binary: *const c_void) -> *mut *mut c_void {
    // Nothing is ever looked up through it; it only must not be null.
    Box::leak(Box::new([std::ptr::null_mut::<c_void>(); 4])).as_mut_ptr()
}

/// The kernels that draw random numbers, by the address of their stub.
static DRAWING: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
const DRAWING_NAME: &[u8] = b"distribution_";

/// Every kernel of PyTorch comes by here, with its name, when it is loaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterFunction(
    _binary: *mut *mut c_void,
    stub: *const c_void,
    _function: *mut c_char,
    name: *const c_char,
) {
    if name.is_null() {
        return;
    }
    // SAFETY: the compiler's own name of the kernel, which ends in a zero.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    if name.windows(DRAWING_NAME.len()).any(|part| part == DRAWING_NAME) {
        DRAWING.lock().unwrap_or_else(PoisonError::into_inner).insert(stub as usize);
    }
}

pub fn draws_numbers(stub: *const c_void) -> bool {
    DRAWING.lock().unwrap_or_else(PoisonError::into_inner).contains(&(stub as usize))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaGetKernel(kernel: *mut *const c_void, function: *const c_void) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(kernel, function) }
}

/// The first fields of a `cudaFuncAttributes`; those behind them say whether clusters are asked for: no.
#[repr(C)]
pub struct FunctionAttributes {
    shared_bytes: usize,
    constant_bytes: usize,
    local_bytes: usize,
    threads_per_block: c_int,
    registers: c_int,
    ptx_version: c_int,
    binary_version: c_int,
    cache_mode: c_int,
    dynamic_shared_bytes: c_int,
    carveout: c_int,
    clusters: [c_int; 6],
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaFuncGetAttributes(found: *mut FunctionAttributes, _function: *const c_void) -> Status {
    let answer = FunctionAttributes {
        shared_bytes: 0,
        constant_bytes: 0,
        local_bytes: 0,
        threads_per_block: 1024,
        registers: 32,
        ptx_version: card().compiled_for(),
        binary_version: card().compiled_for(),
        cache_mode: 0,
        dynamic_shared_bytes: card().shared_optin_bytes(),
        carveout: 0,
        clusters: [0; 6],
    };
    // SAFETY: the caller's place for the answer.
    unsafe { put(found, answer) }
}

/// As many blocks as threads allow: kernels of PyTorch are written to be bound by them.
fn blocks_at_once(threads: c_int) -> c_int {
    (card().threads_per_multiprocessor() / threads.max(1)).clamp(1, 16)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    _function: *const c_void,
    threads: c_int,
    _shared_bytes: usize,
) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(blocks, blocks_at_once(threads)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: *mut c_int,
    _function: *const c_void,
    threads: c_int,
    _shared_bytes: usize,
    _flags: c_uint,
) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(blocks, blocks_at_once(threads)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaOccupancyMaxActiveClusters(
    clusters: *mut c_int,
    _function: *const c_void,
    _launch: *const c_void,
) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(clusters, card().multiprocessors / 2) }
}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaInitModule(_module: *mut *mut c_void) -> u8 {
    SUCCESS as u8
}
