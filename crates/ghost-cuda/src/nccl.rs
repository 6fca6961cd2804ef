//! NCCL: a world whose other ranks always agree at once.

use crate::answer::{SUCCESS, Status, put};
use crate::card::card;
use crate::handles::Handle;
use crate::memory;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

/// What starts a communicator, as large as NCCL's.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UniqueId([u8; 128]);

struct Communicator {
    ranks: c_int,
    rank: c_int,
}

unsafe fn make(place: *mut Handle, ranks: c_int, rank: c_int) -> Status {
    let communicator = Box::into_raw(Box::new(Communicator { ranks, rank }));
    // SAFETY: the caller's place for the answer.
    unsafe { put(place, communicator.cast()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(version, card().nccl) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(id, UniqueId([7; 128])) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(place: *mut Handle, ranks: c_int, _id: UniqueId, rank: c_int) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { make(place, ranks, rank) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    place: *mut Handle,
    ranks: c_int,
    _id: UniqueId,
    rank: c_int,
    _configuration: *mut c_void,
) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { make(place, ranks, rank) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankScalable(
    place: *mut Handle,
    ranks: c_int,
    rank: c_int,
    _ids: c_int,
    _id: *mut UniqueId,
    _configuration: *mut c_void,
) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { make(place, ranks, rank) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommSplit(
    parent: Handle,
    _color: c_int,
    key: c_int,
    place: *mut Handle,
    _configuration: *mut c_void,
) -> Status {
    let ranks = if parent.is_null() {
        1
    } else {
        // SAFETY: a communicator that `make` gave out.
        unsafe { (*parent.cast::<Communicator>()).ranks }
    };
    // SAFETY: the caller's place for the answer.
    unsafe { make(place, ranks, key) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommCount(communicator: Handle, count: *mut c_int) -> Status {
    // SAFETY: a communicator that `make` gave out, and the caller's place for the answer.
    unsafe { put(count, (*communicator.cast::<Communicator>()).ranks) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommUserRank(communicator: Handle, rank: *mut c_int) -> Status {
    // SAFETY: a communicator that `make` gave out, and the caller's place for the answer.
    unsafe { put(rank, (*communicator.cast::<Communicator>()).rank) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(_communicator: Handle, error: *mut Status) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(error, SUCCESS) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommRegister(_: Handle, _: *mut c_void, _: usize, handle: *mut Handle) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(handle, null_mut()) }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(_status: Status) -> *const c_char {
    let text: &CStr = c"an error of the stand-in for NCCL";
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(_communicator: Handle) -> *const c_char {
    c"".as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclMemAlloc(place: *mut *mut c_void, bytes: usize) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { crate::runtime::memory::cudaMalloc(place, bytes) }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclMemFree(address: *mut c_void) -> Status {
    memory::give(address as usize);
    SUCCESS
}
