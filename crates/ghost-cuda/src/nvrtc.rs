//! NVRTC: every program compiles, to nothing.

use crate::answer::{SUCCESS, Status, put};
use crate::card::card;
use crate::handles::{Handle, put_fresh};
use std::ffi::{CStr, c_char, c_int};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> Status {
    // SAFETY: the caller's places for the answers.
    unsafe { put(major, card().cuda / 1000) + put(minor, card().cuda % 1000 / 10) }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetErrorString(_status: Status) -> *const c_char {
    let text: &CStr = c"an error of the stand-in for NVRTC";
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCreateProgram(program: *mut Handle, _source: *const c_char) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put_fresh(program) }
}

/// Room for the end of an empty text, and no more.
unsafe fn empty_size(bytes: *mut usize) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { put(bytes, 1) }
}

unsafe fn empty_text(text: *mut c_char) -> Status {
    // SAFETY: the caller has the one byte it was told of.
    unsafe { put(text, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetPTXSize(_program: Handle, bytes: *mut usize) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { empty_size(bytes) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetPTX(_program: Handle, text: *mut c_char) -> Status {
    // SAFETY: of the size told.
    unsafe { empty_text(text) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBINSize(_program: Handle, bytes: *mut usize) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { empty_size(bytes) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBIN(_program: Handle, text: *mut c_char) -> Status {
    // SAFETY: of the size told.
    unsafe { empty_text(text) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLogSize(_program: Handle, bytes: *mut usize) -> Status {
    // SAFETY: the caller's place for the answer.
    unsafe { empty_size(bytes) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLog(_program: Handle, text: *mut c_char) -> Status {
    // SAFETY: of the size told.
    unsafe { empty_text(text) }
}

/// A kernel's own name serves: it is only given back to the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetLoweredName(
    _program: Handle,
    name: *const c_char,
    lowered: *mut *const c_char,
) -> Status {
    // SAFETY: the caller's place for the answer; the name lives as long as the caller keeps it.
    unsafe { put(lowered, name) };
    SUCCESS
}
