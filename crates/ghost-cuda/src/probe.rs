//! What the Python side of the launcher asks the stand-in for.

use crate::blas;
use crate::memory;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};
use std::sync::{Mutex, PoisonError};

static GUESSED: Mutex<BTreeSet<&'static CStr>> = Mutex::new(BTreeSet::new());

/// Notes that this function answered a size that is not known.
pub fn guessed(function: &'static CStr) {
    GUESSED.lock().unwrap_or_else(PoisonError::into_inner).insert(function);
}

/// The name of the function at `place` among those that answered a size that is not known; null behind the last.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_ghost_guessed(place: usize) -> *const c_char {
    let guessed = GUESSED.lock().unwrap_or_else(PoisonError::into_inner);
    guessed.iter().nth(place).map_or(std::ptr::null(), |name| name.as_ptr())
}

/// The most memory that was held at once, in whole pages of the driver.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_ghost_peak_bytes() -> u64 {
    memory::peak_bytes()
}

/// Addresses of cuBLAS workspaces: writes up to `room` of them, answers how many there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_ghost_workspaces(addresses: *mut u64, room: usize) -> usize {
    let found = blas::workspaces();
    for (place, address) in found.iter().take(room).enumerate() {
        // SAFETY: the caller has room for `room` addresses.
        unsafe { addresses.add(place).write(*address as u64) };
    }
    found.len()
}
