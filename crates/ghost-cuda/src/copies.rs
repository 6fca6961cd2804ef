//! Copies: between host addresses they happen; to the card they vanish; from the card come zeros.

use crate::memory::on_card;
use std::ffi::c_void;

/// # Safety
/// Host ranges of `bytes` behind `to` and `from` are valid.
pub(crate) unsafe fn copy(to: *mut c_void, from: *const c_void, bytes: usize) {
    if on_card(to) || to.is_null() || from.is_null() {
        return;
    }
    // SAFETY: both are host addresses by the checks here, and valid by the contract above.
    unsafe { if on_card(from) { to.write_bytes(0, bytes) } else { to.cast::<u8>().copy_from(from.cast(), bytes) } }
}

/// # Safety
/// As [`copy`], for every row.
pub(crate) unsafe fn copy_rows(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    rows: usize,
) {
    for row in 0..rows {
        // SAFETY: by the contract above.
        unsafe { copy(to.wrapping_byte_add(row * to_pitch), from.wrapping_byte_add(row * from_pitch), width) };
    }
}
