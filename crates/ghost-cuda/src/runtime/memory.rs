//! Memory of the card and of the host, and copies.

use crate::answer::{OUT_OF_MEMORY, SUCCESS, Status, put};
use crate::card::card;
use crate::copies::{copy, copy_rows};
use crate::handles::{Handle, put_fresh};
use crate::memory::{self, on_card};
use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMalloc(place: *mut *mut c_void, bytes: usize) -> Status {
    let taken = memory::take(bytes);
    // SAFETY: the caller's place for the answer.
    unsafe { put(place, taken.map_or(null_mut(), |address| address as *mut c_void)) };
    if taken.is_some() { SUCCESS } else { OUT_OF_MEMORY }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaFree(address: *mut c_void) -> Status {
    memory::give(address as usize);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMallocAsync(place: *mut *mut c_void, bytes: usize, _stream: Handle) -> Status {
    // SAFETY: as of cudaMalloc.
    unsafe { cudaMalloc(place, bytes) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaFreeAsync(address: *mut c_void, _stream: Handle) -> Status {
    cudaFree(address)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> Status {
    // SAFETY: the caller's places for the answers.
    unsafe { put(free, memory::free_bytes() as usize) + put(total, card().total_bytes as usize) }
}

/// Host memory that was handed out as pinned, by address.
static PINNED: Mutex<BTreeMap<usize, Layout>> = Mutex::new(BTreeMap::new());

unsafe fn pin(place: *mut *mut c_void, bytes: usize) -> Status {
    let Ok(layout) = Layout::from_size_align(bytes.max(1), 4096) else { return OUT_OF_MEMORY };
    // SAFETY: the layout's size is not zero.
    let address = unsafe { alloc(layout) };
    if address.is_null() {
        return OUT_OF_MEMORY;
    }
    PINNED.lock().unwrap_or_else(PoisonError::into_inner).insert(address as usize, layout);
    // SAFETY: the caller's place for the answer.
    unsafe { put(place, address.cast()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaHostAlloc(place: *mut *mut c_void, bytes: usize, _flags: c_uint) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { pin(place, bytes) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMallocHost(place: *mut *mut c_void, bytes: usize) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { pin(place, bytes) }
}

/// Managed memory is the host's here: programs may read it without a copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMallocManaged(place: *mut *mut c_void, bytes: usize, _flags: c_uint) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { pin(place, bytes) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaFreeHost(address: *mut c_void) -> Status {
    let layout = PINNED.lock().unwrap_or_else(PoisonError::into_inner).remove(&(address as usize));
    if let Some(layout) = layout {
        // SAFETY: it was allocated with this layout, and is now forgotten.
        unsafe { dealloc(address.cast(), layout) };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaHostGetDevicePointer(place: *mut *mut c_void, host: *mut c_void, _: c_uint) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(place, host) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, _kind: c_int) -> Status {
    // SAFETY: the caller's ranges.
    unsafe { copy(to, from, bytes) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpyAsync(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: c_int,
    _stream: Handle,
) -> Status {
    // SAFETY: the caller's ranges.
    unsafe { cudaMemcpy(to, from, bytes, kind) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpy2DAsync(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    rows: usize,
    _kind: c_int,
    _stream: Handle,
) -> Status {
    // SAFETY: the caller's ranges.
    unsafe { copy_rows(to, to_pitch, from, from_pitch, width, rows) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemset(to: *mut c_void, value: c_int, bytes: usize) -> Status {
    if !on_card(to) && !to.is_null() {
        // SAFETY: a host range of the caller's.
        unsafe { to.write_bytes(value as u8, bytes) };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemsetAsync(to: *mut c_void, value: c_int, bytes: usize, _stream: Handle) -> Status {
    // SAFETY: the caller's range.
    unsafe { cudaMemset(to, value, bytes) }
}

/// What PyTorch reads of a `cudaPointerAttributes`; CUDA 13 reserves 64 bytes more, which nobody reads.
#[repr(C)]
pub struct PointerAttributes {
    kind: c_int,
    device: c_int,
    on_card: *const c_void,
    on_host: *const c_void,
}

const UNREGISTERED: c_int = 0;
const HOST: c_int = 1;
const DEVICE: c_int = 2;

fn is_pinned(address: usize) -> bool {
    let pinned = PINNED.lock().unwrap_or_else(PoisonError::into_inner);
    let before = pinned.range(..=address).next_back();
    before.is_some_and(|(start, layout)| address < start + layout.size())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaPointerGetAttributes(found: *mut PointerAttributes, address: *const c_void) -> Status {
    let answer = if on_card(address) {
        PointerAttributes { kind: DEVICE, device: 0, on_card: address, on_host: null_mut() }
    } else if is_pinned(address as usize) {
        PointerAttributes { kind: HOST, device: 0, on_card: address, on_host: address }
    } else {
        PointerAttributes { kind: UNREGISTERED, device: -2, on_card: null_mut(), on_host: address }
    };
    // SAFETY: the caller's place for the answer.
    unsafe { put(found, answer) }
}

/// A constant of a kernel: an address of the card that is nobody's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetSymbolAddress(place: *mut *mut c_void, _symbol: *const c_void) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(place, memory::reserve(1).unwrap_or(0) as *mut c_void) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetDefaultMemPool(pool: *mut Handle, _device: c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(pool) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemPoolGetAttribute(_pool: Handle, _number: c_int, value: *mut u64) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(value, 0) }
}
