//! The driver: what PyTorch, Triton and libraries with a CUDA runtime of their own ask it for.

use crate::answer::{INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS, Status, put};
use crate::card::card;
use crate::handles::{Handle, put_fresh};
use crate::lookup::entry_point;
use crate::memory::{self, PAGE};
use crate::runtime::device::attribute;
use crate::runtime::memory as runtime_memory;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

/// Anything but null: there is one context.
const CONTEXT: Handle = 0x10 as Handle;

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> Status {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(version, card().cuda) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    function: *mut *mut c_void,
    _version: c_int,
    _flags: c_ulonglong,
    found: *mut c_int,
) -> Status {
    // SAFETY: a C string of the caller's, and its places for the answers.
    unsafe {
        let entry = entry_point(CStr::from_ptr(name));
        put(function, entry.unwrap_or(std::ptr::null_mut()));
        put(found, c_int::from(entry.is_none()));
        if entry.is_some() { SUCCESS } else { NOT_FOUND }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(_status: Status, text: *mut *const c_char) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(text, c"an error of the stand-in for CUDA's driver".as_ptr()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(_status: Status, text: *mut *const c_char) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(text, c"CUDA_ERROR_OF_STAND_IN".as_ptr()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(count, 1) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, _ordinal: c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(device, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(text: *mut c_char, room: c_int, _device: c_int) -> Status {
    let name = card().name.as_bytes();
    let length = name.len().min((room.max(1) - 1) as usize);
    // SAFETY: the caller has `room` bytes.
    unsafe {
        text.cast::<u8>().copy_from(name.as_ptr(), length);
        put(text.add(length), 0)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], _device: c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(uuid, *b"plimsoll-ghost-0") }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, number: c_int, _device: c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(value, attribute(number)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, _device: c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(bytes, card().total_bytes as usize) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxGetState(_device: c_int, flags: *mut c_uint, active: *mut c_int) -> Status {
    // SAFETY: the caller's places for the answers.
    unsafe { put(flags, 0) + put(active, 1) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, _device: c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(context, CONTEXT) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut Handle) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(context, CONTEXT) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut Handle) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(context, CONTEXT) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(device, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetLimit(value: *mut usize, _limit: c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(value, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetCtx(_stream: Handle, context: *mut Handle) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(context, CONTEXT) }
}

// Memory

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(place: *mut *mut c_void, bytes: usize) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { runtime_memory::cudaMalloc(place, bytes) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: *mut c_void) -> Status {
    runtime_memory::cudaFree(address)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Status {
    // SAFETY: the caller's places for the answers.
    unsafe { runtime_memory::cudaMemGetInfo(free, total) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAddressRange_v2(base: *mut usize, bytes: *mut usize, address: usize) -> Status {
    let Some((start, length)) = memory::range_of(address) else { return INVALID_VALUE };
    // SAFETY: the caller's places for the answers.
    unsafe { put(base, start) + put(bytes, length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAllocationGranularity(bytes: *mut usize, _what: *const c_void, _: c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(bytes, PAGE) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAddressReserve(
    place: *mut usize,
    bytes: usize,
    _alignment: usize,
    _wish: usize,
    _flags: c_ulonglong,
) -> Status {
    let Some(address) = memory::reserve(bytes) else { return OUT_OF_MEMORY };
    // SAFETY: the caller's place for the answer.
    unsafe { put(place, address) }
}

/// A handle of memory to map is its size: that is all that its release has to know.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemCreate(handle: *mut u64, bytes: usize, _what: *const c_void, _: c_ulonglong) -> Status {
    if !memory::create(bytes) {
        return OUT_OF_MEMORY;
    }
    // SAFETY: the caller's place for the answer.
    unsafe { put(handle, bytes as u64) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemRelease(handle: u64) -> Status {
    memory::release(handle as usize);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuPointerGetAttribute(
    value: *mut c_ulonglong,
    _number: c_int,
    address: c_ulonglong,
) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(value, address) }
}

// Modules and functions

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut Handle, _image: *const c_void) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(module) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(module: *mut Handle, _image: *const c_void) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(module) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoad(module: *mut Handle, _file: *const c_char) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(module) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(function: *mut Handle, _module: Handle, _name: *const c_char) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(function) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryLoadData(library: *mut Handle, _image: *const c_void) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(library) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryGetKernel(kernel: *mut Handle, _library: Handle, _name: *const c_char) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(kernel) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuKernelGetFunction(function: *mut Handle, _kernel: Handle) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(function) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkCreate_v2(
    _count: c_uint,
    _options: *mut c_int,
    _values: *mut *mut c_void,
    state: *mut Handle,
) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(state) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLinkComplete(_state: Handle, image: *mut *const c_void, bytes: *mut usize) -> Status {
    // SAFETY: the caller's places for the answers.
    unsafe { put(image, c"".as_ptr().cast()) + put(bytes, 0) }
}

/// Threads per block is the one attribute that is not zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, number: c_int, _function: Handle) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(value, if number == 0 { 1024 } else { 0 }) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    _function: Handle,
    threads: c_int,
    _shared_bytes: usize,
) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(blocks, (card().threads_per_multiprocessor() / threads.max(1)).clamp(1, 16)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxActiveClusters(count: *mut c_int, _: Handle, _: *const c_void) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(count, 1) }
}

// What a card of one's own may lack: parts of a card, and memory shared between cards.

#[unsafe(no_mangle)]
pub extern "C" fn cuGreenCtxCreate() -> Status {
    NOT_SUPPORTED
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetDevResource() -> Status {
    NOT_SUPPORTED
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMulticastCreate() -> Status {
    NOT_SUPPORTED
}
